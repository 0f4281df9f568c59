"""A published statement beside what the laws give at its setting, and the verdict that follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from derive.errors import DomainError

__all__ = ["SEEN", "Comparison", "Paper", "Published", "between", "equals", "rounds", "verdict"]

SEEN = {
    "text": "full text",
    "part": "part of the text",
    "code": "authors' code",
    "second-hand": "third-party summary or code",
    "memory": "from memory",
}
"""How a statement was seen, from the strongest to the weakest."""


@dataclass(frozen=True)
class Paper:
    """What is cited."""

    key: str
    authors: str
    title: str
    year: int
    reference: str


class Comparison(NamedTuple):
    """One number of a paper beside ours.

    Attributes
    ----------
    what : str
        What is compared.
    published : str
        The paper's value or relation at the setting.
    ours : float
        The value that the engine computes at the setting.
    holds : bool
        Whether ours fulfils it.
    """

    what: str
    published: str
    ours: float
    holds: bool


def equals(what: str, published: float, ours: float, rel: float = 1e-9) -> Comparison:
    """Return a comparison that holds where both agree up to a relative difference `rel`."""
    holds = math.isclose(ours, published, rel_tol=rel, abs_tol=1e-12)
    return Comparison(what, f"{published:.6g}", float(ours), holds)


def rounds(what: str, printed: str, ours: float) -> Comparison:
    """Return a comparison that holds where ours rounds to the digits that are printed."""
    digits = len(printed.partition(".")[2])
    return Comparison(what, printed, float(ours), math.isclose(round(ours, digits), float(printed)))


def between(what: str, low: float, high: float, ours: float) -> Comparison:
    """Return a comparison that holds where ours is from `low` to `high`, up to rounding."""
    slack = 1e-9 * max(abs(ours), 1e-300)
    low_text, high_text = f"{low:.6g}", f"{high:.6g}"
    shown = f"{low_text} to {high_text}"
    if math.isinf(high):
        shown = f"at least {low_text}"
    elif math.isinf(low):
        shown = f"at most {high_text}"
    return Comparison(what, shown, float(ours), low - slack <= ours <= high + slack)


def verdict(comparisons: tuple[Comparison, ...]) -> str:
    """Return ``agrees`` where all hold, ``differs`` where none does, ``depends`` where some do."""
    held = sum(one.holds for one in comparisons)
    if held == len(comparisons):
        return "agrees"
    return "depends" if held else "differs"


@dataclass(frozen=True)
class Published:
    """A statement of a paper.

    Attributes
    ----------
    name : str
        How it is asked for; begins with the key of its paper.
    paper : str
        Key of the paper.
    where : str
        Lemma, equation, table, figure or file.
    seen : str
        One of `SEEN`.
    statement : str
        What is stated, in our words.
    compare : callable
        Takes the setting as keywords and returns the comparisons.
    setting : mapping
        The paper's setting.
    reason : str
        Why it agrees, differs, or on what it depends.
    """

    name: str
    paper: str
    where: str
    seen: str
    statement: str
    compare: Callable[..., tuple[Comparison, ...]] = field(repr=False)
    setting: Mapping[str, Any]
    reason: str

    def evaluate(self, **changes: Any) -> tuple[Comparison, ...]:
        """Return the comparisons at the paper's setting, or at a changed one.

        Raises
        ------
        DomainError
            If a name is not in the setting.
        """
        unknown = sorted(set(changes) - set(self.setting))
        if unknown:
            raise DomainError(
                f"setting: expected among {', '.join(self.setting) or 'nothing'} for {self.name}, "
                f"got {', '.join(unknown)}"
            )
        return tuple(self.compare(**{**self.setting, **changes}))
