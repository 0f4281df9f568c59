"""The table: every entry, by name and by paper, as rows."""

from __future__ import annotations

from typing import Any

from derive.errors import UnknownNameError
from derive.laws.literature.entry import Published, verdict
from derive.laws.literature.growth import GROWTH
from derive.laws.literature.kernels import KERNELS
from derive.laws.literature.moments import MOMENTS
from derive.laws.literature.papers import PAPERS
from derive.laws.literature.tokens import TOKENS
from derive.laws.literature.updates import UPDATES
from derive.laws.literature.xiong import XIONG

__all__ = ["ENTRIES", "literature_row", "select"]

ENTRIES: dict[str, Published] = {
    entry.name: entry for entry in (*XIONG, *UPDATES, *MOMENTS, *GROWTH, *TOKENS, *KERNELS)
}


def select(name: str | None = None) -> list[Published]:
    """Return the entries of a paper, or the one of that name; all by default.

    Raises
    ------
    UnknownNameError
        If there is none; the message lists the papers.
    """
    if name is None:
        return list(ENTRIES.values())
    key = name.lower()
    if key in ENTRIES:
        return [ENTRIES[key]]
    found = [entry for entry in ENTRIES.values() if entry.paper == key]
    if not found:
        raise UnknownNameError(
            f"paper: expected one of {', '.join(PAPERS)}, or the name of an entry, got {name!r}"
        )
    return found


def literature_row(entry: Published, **changes: Any) -> dict[str, Any]:
    """Return an entry, computed now, as a dictionary.

    Parameters
    ----------
    entry : Published
        The entry.
    **changes
        Of its setting.

    Returns
    -------
    dict
        Keys ``id``, ``paper``, ``reference``, ``where``, ``seen``, ``statement``, ``setting``,
        ``comparisons`` (each ``what``, ``published``, ``ours``, ``holds``), ``verdict`` and
        ``reason``.

    Raises
    ------
    DomainError
        If a name is not in the setting.
    """
    paper = PAPERS[entry.paper]
    found = entry.evaluate(**changes)
    setting = {**entry.setting, **changes}
    return {
        "id": entry.name,
        "paper": f"{paper.authors}, {paper.title}, {paper.year}",
        "reference": paper.reference,
        "where": entry.where,
        "seen": entry.seen,
        "statement": entry.statement,
        "setting": {k: getattr(v, "name", v) for k, v in setting.items()},
        "comparisons": [one._asdict() for one in found],
        "verdict": verdict(found),
        "reason": entry.reason,
    }
