r"""Theorems as text, LaTeX and HTML: the statement, the verdict, the steps with their certificates.

The formula of a step is printed from the expressions that were checked, never typed a second time.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from derive.proof import Theorem, Verified
from derive.proof.check import Formula
from derive.proof.source import SEEN, Cite
from derive.render.latex import aligned, escaped
from derive.render.linebreak import broken, width

__all__ = [
    "STRENGTH_WORDS",
    "proof_html",
    "proof_latex",
    "proof_tex",
    "proof_text",
    "relation_rows",
    "sentence_latex",
]

STRENGTH_WORDS = {
    "identity": "equal for every width, by a decision procedure or by induction over depth",
    "bound": "an inequality for every width, by named rules",
    "gaussian": "an expectation evaluated exactly",
    "exact": "exact arithmetic at the sizes named",
    "counterexample": "a witness, in rational or interval arithmetic",
    "observed": "read off installed software",
    "montecarlo": "a confidence interval",
    "training": "measured in a training run",
    "cited": "taken from a source, not checked here",
}
_LINE = 43.0
_LINES = 12
"""Lines of a formula above which it is not printed."""
_CHARACTERS = 1_200
"""The same for text."""
_COLUMNS = 92


# --- text ------------------------------------------------------------------------------------


def proof_text(theorem: Theorem, verified: Verified | None = None, *, steps: bool = True) -> str:
    """Return a theorem for a terminal; with `verified`, each step says what came of it."""
    lines = [f"{theorem.id}: {theorem.title}", *_wrapped(theorem.statement), ""]
    lines.append(f"{theorem.verdict}, strength: {theorem.label}")
    for label, words in (
        ("holds when", theorem.holds_when),
        ("fails when", theorem.fails_when),
        ("remark", theorem.remark),
    ):
        lines += _wrapped(f"{label}: {words}") if words else []
    for one in theorem.assumptions:
        lines += _wrapped(f"assumption: {one.statement}")
    if theorem.uses:
        lines += _wrapped("uses: " + ", ".join(t.id for t in theorem.uses))
    lines += [line for cite in theorem.sources for line in _wrapped(f"source: {cite}")]
    if steps:
        for number, step in enumerate(theorem.steps, 1):
            lines += ["", *_wrapped(f"{number}. {step.claim}")]
            lines += _wrapped(_shortened(step.check.formula().text), "       ")
            lines.append(f"     reason: {step.by}")
            lines.append(f"     {step.check.label}{_outcome(verified, number - 1)}")
    return "\n".join(lines)


def _outcome(verified: Verified | None, index: int) -> str:
    if verified is None:
        return ""
    result = verified.steps[index]
    word = "holds" if result.certificate.holds else "FAILS"
    word = f"not checked ({result.missing})" if result.missing else word
    return f": {word}" + (f"; {result.certificate.detail}" if not result.missing else "")


def _wrapped(words: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        " ".join(words.split()),
        _COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


# --- LaTeX -----------------------------------------------------------------------------------


def sentence_latex(words: str) -> str:
    """Return a sentence with ``$...$`` in it as LaTeX, everything else escaped."""
    parts = words.split("$")
    return "".join(f"${part}$" if k % 2 else escaped(part) for k, part in enumerate(parts))


def _shortened(words: str) -> str:
    if len(words) <= _CHARACTERS:
        return words
    return f"{words[:_CHARACTERS]} ... ({len(words)} characters)"


def _printed(formula: Formula) -> Formula:
    """Return a formula, or words in place of one that would take too many lines."""
    long = width(formula.left) + width(formula.right) > _LINES * _LINE
    unbroken = formula.left and max(map(width, relation_rows(formula))) > 1.3 * _LINE
    if not (long or unbroken or r"\begin{matrix}" in formula.latex):
        return formula
    return Formula(f"The formula that is checked is long ({len(formula.text)} characters of text).")


def relation_rows(formula: Formula, line: float = _LINE) -> list[str]:
    """Return rows of an alignment at the relation, each within the line where that is possible."""
    left, sign, right = formula.left, formula.relation, formula.right
    if width(left) <= line / 2:
        room = line - width(left) - 1.4
        first, *more = broken(right, room, room)
        return [f"{left} &{sign} {first}", *(f"&\\quad {piece}" for piece in more)]
    pieces = broken(left, line, line)
    rows = [f"&{piece}" for piece in pieces]
    return [
        *rows,
        *(
            f"&\\quad {sign} {piece}" if k == 0 else f"&\\qquad {piece}"
            for k, piece in enumerate(broken(right, line - 2, line - 3))
        ),
    ]


def proof_latex(
    theorem: Theorem,
    verified: Verified | None = None,
    cite: Callable[[Cite], str] = lambda c: escaped(str(c)),
    refer: Callable[[Theorem], str] = lambda t: rf"\texttt{{{escaped(t.id)}}}",
) -> str:
    r"""Return a LaTeX fragment: statement, verdict, readings, steps.

    Parameters
    ----------
    theorem : Theorem
        Which.
    verified : Verified, optional
        Each step then says what came of it.
    cite, refer : callable
        How a source and another theorem are referred to.
    """
    parts = [rf"\noindent\textbf{{Claim.}} {sentence_latex(theorem.statement)}", ""]
    strength = f"{theorem.label}: {STRENGTH_WORDS[theorem.strength]}"
    parts += [
        rf"\noindent\textbf{{Verdict: {theorem.verdict}}} (strength {escaped(strength)}).",
        "",
    ]
    for label, words in (
        ("It holds when:", theorem.holds_when),
        ("It fails when:", theorem.fails_when),
    ):
        parts += [rf"\noindent\emph{{{label}}} {sentence_latex(words)}", ""] if words else []
    if theorem.assumptions:
        stated = "; ".join(sentence_latex(a.statement) for a in theorem.assumptions)
        parts += [rf"\noindent\emph{{Assumptions:}} {stated}.", ""]
    if theorem.uses:
        used = ", ".join(refer(t) for t in theorem.uses)
        parts += [rf"\noindent\emph{{Uses}} {used}.", ""]
    parts.append(r"\begin{enumerate}")
    for index, step in enumerate(theorem.steps):
        parts.append(rf"\item {sentence_latex(step.claim)}")
        formula = _printed(step.check.formula())
        if formula.left:
            parts.append(aligned(relation_rows(formula)))
        else:
            parts.append(rf"\par {sentence_latex(formula.text)}")
        outcome = escaped(f"{step.check.label}{_outcome(verified, index)}")
        parts.append(
            rf"\par\noindent{{\small Reason: {sentence_latex(step.by)}. \emph{{{outcome}.}}}}"
        )
    parts.append(r"\end{enumerate}")
    if theorem.remark:
        parts += [rf"\noindent\emph{{Remark.}} {sentence_latex(theorem.remark)}", ""]
    if theorem.sources:
        found = "; ".join(cite(c) for c in theorem.sources)
        parts += [rf"\noindent{{\small Source: {found}.}}", ""]
    return "\n".join(parts)


def proof_tex(theorem: Theorem, verified: Verified | None = None) -> str:
    """Return a complete LaTeX document with one proof."""
    from derive.render.latex import document_tex

    return document_tex(theorem.title, [("", proof_latex(theorem, verified))])


# --- HTML ------------------------------------------------------------------------------------


def proof_entry(theorem: Theorem, verified: Verified | None = None) -> dict[str, Any]:
    """Return what the template of the book shows of a theorem."""
    from derive.render.page import lines_math, mixed

    steps = []
    for index, step in enumerate(theorem.steps):
        formula = _printed(step.check.formula())
        steps.append(
            {
                "claim": mixed(step.claim),
                "formula": lines_math(relation_rows(formula)) if formula.left else "",
                "words": [] if formula.left else mixed(formula.text),
                "by": mixed(step.by),
                "label": step.check.label,
                "outcome": _outcome(verified, index).removeprefix(": "),
                "ok": verified.steps[index].certificate.holds if verified else None,
            }
        )
    return {
        "id": theorem.id,
        "title": theorem.title,
        "statement": mixed(theorem.statement),
        "verdict": str(theorem.verdict),
        "strength": theorem.label,
        "meaning": STRENGTH_WORDS[theorem.strength],
        "readings": [
            (label, mixed(words))
            for label, words in (
                ("It holds when:", theorem.holds_when),
                ("It fails when:", theorem.fails_when),
                ("Remark:", theorem.remark),
            )
            if words
        ],
        "assumptions": [mixed(a.statement) for a in theorem.assumptions],
        "uses": [(t.id, t.title) for t in theorem.uses],
        "steps": steps,
        "sources": [(c.source.key, c.source.short, c.place, SEEN[c.seen]) for c in theorem.sources],
    }


def proof_html(theorem: Theorem, verified: Verified | None = None) -> str:
    """Return one self-contained HTML page with one proof."""
    from derive.render.book import book_html

    results: Mapping[str, Verified] = {theorem.id: verified} if verified else {}
    return book_html([theorem], results, title=theorem.title)
