r"""All theorems as one book: LaTeX with contents, references and bibliography, or one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from derive.proof import Cite, Source, Theorem, Verified
from derive.proof.source import SEEN
from derive.proof.theorem import STRENGTHS
from derive.render.latex import escaped
from derive.render.page import environment
from derive.render.proof import STRENGTH_WORDS, proof_entry, proof_latex

__all__ = ["TITLE", "book_html", "book_tex", "by_area", "strength_rows", "strengths_markdown"]

TITLE = "Claims about the placement of the norm, settled"

_PREAMBLE = r"""\documentclass[10pt,openany]{book}
\usepackage{amsmath}
\usepackage{amssymb}
\usepackage[margin=1in]{geometry}
\usepackage[hidelinks]{hyperref}
\setlength{\emergencystretch}{4em}
\setlength{\parskip}{3pt}
\raggedbottom
\allowdisplaybreaks
\setcounter{tocdepth}{1}
\pagestyle{plain}
\makeatletter
\renewcommand*\l@section{\@dottedtocline{1}{1.5em}{3em}}
\makeatother"""


def by_area(theorems: Iterable[Theorem]) -> dict[str, list[Theorem]]:
    """Return theorems by area, in the order in which they come."""
    found: dict[str, list[Theorem]] = {}
    for theorem in theorems:
        found.setdefault(theorem.area, []).append(theorem)
    return found


def strength_rows(theorems: Iterable[Theorem]) -> list[tuple[str, int, Counter[str]]]:
    """Return, for each strength that occurs, how many entries have it, and their verdicts."""
    found: dict[str, Counter[str]] = {}
    for theorem in theorems:
        found.setdefault(theorem.strength, Counter())[str(theorem.verdict)] += 1
    return [(kind, found[kind].total(), found[kind]) for kind in STRENGTHS if kind in found]


def strengths_markdown(theorems: Iterable[Theorem]) -> str:
    """Return the table of strengths as Markdown: claims by their weakest certificate."""
    lines = ["| strength | claims | verdicts | rests on |", "|---|---|---|---|"]
    for kind, count, verdicts in strength_rows(theorems):
        said = ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items()))
        lines.append(f"| {kind} | {count} | {said} | {STRENGTH_WORDS[kind]} |")
    return "\n".join(lines)


def _sources(theorems: Iterable[Theorem]) -> list[Source]:
    found = {cite.source.key: cite.source for t in theorems for cite in t.sources}
    return sorted(found.values(), key=lambda s: (s.authors.lower(), s.year))


def _counts(theorems: Sequence[Theorem], results: Mapping[str, Verified]) -> list[str]:
    verdicts = Counter(str(t.verdict) for t in theorems)
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    lines = [f"{len(theorems)} claims: {said}"]
    if results:
        held = sum(r.holds is True for r in results.values())
        failed = sum(r.holds is False for r in results.values())
        lines.append(
            f"checked: {held} verdicts stand, {failed} do not, {len(results) - held - failed} "
            "could not be checked for want of a package"
        )
    return lines


def book_tex(
    theorems: Sequence[Theorem], results: Mapping[str, Verified] = {}, title: str = TITLE
) -> str:
    """Return the collection as one LaTeX document.

    Parameters
    ----------
    theorems : sequence of Theorem
        In the order of the book.
    results : mapping from id to Verified
        What came of checking them.
    title : str
        Of the book.
    """
    inside = {t.id for t in theorems}

    def cite(one: Cite) -> str:
        place = f", {one.place}" if one.place else ""
        return rf"\cite{{{one.source.key}}}{escaped(place)} ({SEEN[one.seen]})"

    def refer(one: Theorem) -> str:
        title = escaped(one.title)
        return rf"\emph{{{title}}} (\ref{{thm:{one.id}}})" if one.id in inside else title

    parts = [
        _PREAMBLE,
        rf"\title{{{escaped(title)}}}",
        r"\author{}",
        r"\date{}",
        r"\begin{document}",
        r"\maketitle",
        r"\tableofcontents",
        r"\chapter*{What the verdicts mean}",
        r"\addcontentsline{toc}{chapter}{What the verdicts mean}",
        r"\begin{itemize}",
        *(rf"\item {escaped(line)}." for line in _counts(theorems, results)),
        r"\end{itemize}",
        "A claim is as strong as the weakest certificate of its steps:",
        r"\begin{center}\begin{tabular}{llr}",
        r"strength & what it rests on & claims \\ \hline",
        *(
            rf"{escaped(kind)} & {escaped(STRENGTH_WORDS[kind])} & {count} \\"
            for kind, count, _ in strength_rows(theorems)
        ),
        r"\end{tabular}\end{center}",
    ]
    for area, group in by_area(theorems).items():
        parts.append(rf"\chapter{{{escaped(area.capitalize())}}}")
        for theorem in group:
            parts.append(rf"\section{{{escaped(theorem.title)}}}\label{{thm:{theorem.id}}}")
            parts.append(rf"\noindent{{\small\texttt{{{escaped(theorem.id)}}}}}\par")
            parts.append(proof_latex(theorem, results.get(theorem.id), cite, refer))
    sources = _sources(theorems)
    if sources:
        parts.append(r"\begin{thebibliography}{99}")
        parts += [
            rf"\bibitem{{{s.key}}} {escaped(s.authors)}, {s.year}. \emph{{{escaped(s.title)}}}. "
            f"{escaped(s.where)}."
            for s in sources
        ]
        parts.append(r"\end{thebibliography}")
    return "\n".join([*parts, r"\end{document}", ""])


def book_html(
    theorems: Sequence[Theorem], results: Mapping[str, Verified] = {}, title: str = TITLE
) -> str:
    """Return the collection as one self-contained page: no script, no network.

    Parameters
    ----------
    theorems, results, title
        As for `book_tex`.

    Raises
    ------
    MissingExtraError
        If jinja2 or latex2mathml is not installed.
    """
    inside = {t.id for t in theorems}
    chapters: list[dict[str, Any]] = [
        {"name": area, "entries": [proof_entry(t, results.get(t.id)) for t in group]}
        for area, group in by_area(theorems).items()
    ]
    return str(
        environment()
        .get_template("book.html.j2")
        .render(
            title=title,
            counts=_counts(theorems, results),
            strengths=[(k, STRENGTH_WORDS[k], c) for k, c, _ in strength_rows(theorems)],
            chapters=chapters,
            inside=inside,
            sources=_sources(theorems),
        )
    )
