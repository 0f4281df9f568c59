"""The comparison with the literature as text and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from derive.laws.literature.entry import SEEN

__all__ = ["literature_markdown", "literature_text"]

HELD = {True: "=", False: "!"}


def literature_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return one paragraph an entry, and a count of the verdicts below.

    A line of numbers begins with ``=`` where ours fulfils what is published, else with ``!``.
    """
    rows = list(rows)
    return "\n\n".join([*map(_paragraph, rows), _count(rows)])


def _paragraph(row: Mapping[str, Any]) -> str:
    lines = [
        f"{row['id']}: {row['verdict']}",
        f"  {row['paper']}, {row['where']} ({SEEN[row['seen']]})",
        f"  {row['statement']}",
    ]
    lines += [
        f"  {HELD[one['holds']]} {one['what']}: stated {one['published']}, ours {_number(one)}"
        for one in row["comparisons"]
    ]
    return "\n".join([*lines, f"  why: {row['reason']}"])


def _count(rows: list[Mapping[str, Any]]) -> str:
    found = Counter(row["verdict"] for row in rows)
    parts = [f"{word} {found[word]}" for word in ("agrees", "depends", "differs") if found[word]]
    return f"statements {len(rows)}: {', '.join(parts)}"


def _number(one: Mapping[str, Any]) -> str:
    value = one["ours"]
    return "0" if abs(value) < 1e-9 else f"{value:.4g}"


def literature_markdown(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a page with a table for each paper: statement, how seen, numbers, verdict, reason."""
    rows = list(rows)
    papers: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        papers.setdefault(f"{row['paper']} ({row['reference']})", []).append(row)
    parts = [
        "# The laws beside the literature: the table\n",
        "Written by `make literature`; how to read it is in [literature.md](literature.md).",
        f"{_count(rows)[0].upper()}{_count(rows)[1:]}. A statement's lines follow it; *no* marks "
        "the ones that do not hold.\n",
    ]
    for paper, group in papers.items():
        parts.append(f"## {paper}\n")
        parts.append("| statement | seen | stated | ours | verdict |")
        parts.append("|---|---|---|---|---|")
        for row in group:
            parts += _cells(row)
        parts.append("")
    return "\n".join(parts)


def _cells(row: Mapping[str, Any]) -> list[str]:
    where, statement, reason = (_escaped(row[k]) for k in ("where", "statement", "reason"))
    head = f"**{where}**: {statement}. *{reason}*"
    lines = [f"| {head} | {SEEN[row['seen']]} | | | **{row['verdict']}** |"]
    for one in row["comparisons"]:
        held = "" if one["holds"] else "no"
        what = _escaped(one["what"])
        lines.append(f"| &nbsp;&nbsp;{what} | | {one['published']} | {_number(one)} | {held} |")
    return lines


def _escaped(text: str) -> str:
    """Return text whose signs mean nothing to Markdown."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
