r"""A derivation as LaTeX that compiles with amsmath and stays within the text width.

A fragment shows the block, its Jacobian, the definitions and the steps; a document wraps any number
of fragments. Long formulas are broken, see `derive.render.linebreak`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import sympy as sp

from derive.calculus.derivation import Derivation
from derive.calculus.maps import TokenBlocks
from derive.calculus.printing import latex, text
from derive.render.assumptions import activations, assumptions
from derive.render.chains import Chain, chains, defined, output_of, variants
from derive.render.linebreak import broken, text_width, width
from derive.render.paths import BlockName, mixing_blocks, named_token_block, paths

__all__ = [
    "aligned",
    "derivation_latex",
    "derivation_tex",
    "derivative_latex",
    "document_tex",
    "equation_rows",
    "escaped",
    "rule_latex",
    "rule_parts",
]

_LINE = 45.0  # em: the text width of an article in 10 pt with margins of one inch, with some slack
_LABEL = 10.0  # em: room for the names of rules beside a step
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}
_ASCII = str.maketrans({"\u2019": "'", "\u2018": "`", "\u2013": "--", "\u2014": "---"})


def escaped(words: str) -> str:
    r"""Escape text for LaTeX: special characters are printed, not obeyed.

    Examples
    --------
    >>> print(escaped("50% of W_O & {x}"))
    50\% of W\_O \& \{x\}
    """
    return "".join(_SPECIAL.get(c, c) for c in words.translate(_ASCII)).replace(
        r"\textquotedbl{}", "''"
    )


def derivative_latex(of: sp.Basic, by: sp.Basic, i: str = "", j: str = "") -> str:
    r"""LaTeX of a Jacobian: ``\frac{\partial y}{\partial x}``, of one block with tokens."""
    above, below = (f"{latex(of)}_{{{i}}}", f"{latex(by)}_{{{j}}}") if i else (latex(of), latex(by))
    return rf"\frac{{\partial {above}}}{{\partial {below}}}"


def rule_parts(D: Derivation, rule: str) -> tuple[tuple[str, str], ...]:
    """Split the names of rules into plain words, each followed by the LaTeX of a quantity or ''."""
    known = _names(D)
    parts = []
    for name in rule.split(", "):
        head, of, quantity = name.partition("definition of ")
        if of and quantity in known:
            parts.append((head + of, known[quantity]))
        else:
            parts.append((name, ""))
    return tuple(parts)


@lru_cache(maxsize=64)
def _names(D: Derivation) -> dict[str, str]:
    return {text(v): latex(v) for v in variants(D)}


def rule_latex(D: Derivation, rule: str) -> str:
    r"""LaTeX of the names of rules; a quantity in one is set as a formula."""
    parts = rule_parts(D, rule)
    return ", ".join(escaped(words) + (f"${of}$" if of else "") for words, of in parts)


def derivation_latex(D: Derivation, *, line: float = _LINE, steps: bool = True) -> str:
    r"""Return a LaTeX fragment: the block, its Jacobian, the definitions, the steps.

    Parameters
    ----------
    D : Derivation
        From `derive.derivation`.
    line : float, optional
        Room for one line in em of the surrounding text; 45 suits an article with margins of one
        inch, 30 one with LaTeX's own margins.
    steps : bool, optional
        Whether the steps follow, grouped by the quantity whose differential they find.

    Returns
    -------
    str
        Needs the packages amsmath and amssymb only.
    """
    parts = [r"\begingroup\allowdisplaybreaks", _heading(D, line)]
    parts += ["where", _where(D, line)] if defined(D) or activations(D) else []
    parts += [_block(node, line) for node in mixing_blocks(D)]
    stated = "; ".join(a.latex for a in assumptions(D))
    parts.append(rf"\noindent Assumptions: {stated}.")
    if steps:
        parts += ["", r"\medskip\noindent The derivation, one differential after the other:"]
        parts.append(_steps(D, line))
    return "\n".join([*parts, r"\endgroup", ""])


def derivation_tex(D: Derivation, title: str | None = None) -> str:
    """Return a complete document with one derivation; see `document_tex`."""
    heading = f"Jacobian of y = {text(D.block)}"
    return document_tex(title or heading, [("", derivation_latex(D))])


def document_tex(title: str, sections: Iterable[Sequence[str]]) -> str:
    r"""Return a complete LaTeX document.

    Parameters
    ----------
    title : str
        Plain text; escaped.
    sections : iterable of (title, latex) or (title, latex, text)
        The heading and the paragraph `text` are plain text and are escaped; the fragment `latex`
        is put in as it is. An empty heading starts no section.

    Returns
    -------
    str
        For pdflatex, with the packages amsmath, amssymb and geometry.
    """
    body = []
    for heading, fragment, *words in sections:
        body += [rf"\section{{{escaped(heading)}}}"] if heading else []
        body += [escaped(word) + "\n" for word in words if word]
        body.append(fragment)
    graphics = any(r"\includegraphics" in part for part in body)
    return "\n".join(
        [
            r"\documentclass[10pt]{article}",
            r"\usepackage{amsmath}",
            r"\usepackage{amssymb}",
            r"\usepackage[margin=1in]{geometry}",
            *([r"\usepackage{graphicx}"] if graphics else []),
            r"\setlength{\emergencystretch}{3em}",
            r"\renewcommand{\labelitemi}{$\bullet$}",
            rf"\title{{{escaped(title)}}}",
            r"\author{}",
            r"\date{}",
            r"\begin{document}",
            r"\maketitle",
            *body,
            r"\end{document}",
            "",
        ]
    )


def aligned(rows: Iterable[str], together: bool = False) -> str:
    """Return rows as an ``align*`` environment, on one page if `together`."""
    joined = (" \\\\*\n" if together else " \\\\\n").join(rows)
    return f"\\begin{{align*}}\n{joined}\n\\end{{align*}}"


def equation_rows(left: str, right: str, line: float = _LINE) -> list[str]:
    """Return rows of an alignment at the equality sign, each within the line."""
    room = line - width(left) - 1.4
    first, *more = broken(right, room, room)
    return [f"{left} &= {first}", *(f"&{piece}" for piece in more)]


def _heading(D: Derivation, line: float) -> str:
    y = output_of(D)
    rows = equation_rows(latex(y), latex(D.block), line)
    rows += equation_rows(derivative_latex(y, D.state), latex(D.jacobian), line)
    if D.mixes_tokens:
        block = latex(named_token_block(D))
        rows += equation_rows(derivative_latex(y, D.state, "i", "j"), block, line)
    return aligned(rows, together=True)


def _where(D: Derivation, line: float) -> str:
    pairs = [(latex(name), latex(value)) for name, value in defined(D)]
    pairs += [(name, latex(formula)) for _, name, formula in activations(D)]
    rows: list[str] = []
    waiting: tuple[str, str] | None = None
    half = line / 2 - 2
    lefts = max(width(left) for left, _ in pairs)
    for left, right in pairs:
        narrow = lefts + width(right) + 2 <= half and "cases" not in right
        if waiting and narrow:
            rows.append(f"{waiting[0]} &= {waiting[1]}, & {left} &= {right}")
            waiting = None
        elif narrow:
            waiting = (left, right)
        else:
            rows += [f"{waiting[0]} &= {waiting[1]}"] if waiting else []
            rows += equation_rows(left, right, line - max(0.0, lefts - width(left)))
            waiting = None
    rows += [f"{waiting[0]} &= {waiting[1]}"] if waiting else []
    ended = [r + ("" if r.endswith((",", "}")) and "cases" in r else ",") for r in rows]
    ended = [
        row if following.startswith("&") else row_with_comma
        for row, row_with_comma, following in zip(rows, ended, [*rows[1:], ""], strict=True)
    ]
    return aligned([*ended[:-1], ended[-1].removesuffix(",") + "."])


def _block(node: TokenBlocks, line: float) -> str:
    i_j = node.args[2:]
    left = latex(BlockName(node.label, *i_j))
    terms = paths(node)
    label = max(text_width(name) for _, name in terms) + 2
    rows = []
    room = line - width(left) - 1.4 - label
    for k, (term, name) in enumerate(terms):
        body = latex(term)
        sign = "" if k == 0 or body.startswith("-") else "{}+ "
        first, *more = broken(sign + body, room, room)
        head = f"{left} &= {first}" if k == 0 else rf"&\quad {first}"
        lines = [head, *(f"&{piece}" for piece in more)]
        lines[-1] += rf" && \text{{({name})}}" if name else ""
        rows += lines
    return r"\noindent with the token-to-token block" + "\n" + aligned(rows)


def _steps(D: Derivation, line: float) -> str:
    lefts = [width(latex(c.steps[0].before)) for c in chains(D) if c.steps]
    lefts.append(width(derivative_latex(output_of(D), D.state)))
    label = max(text_width(_bare(p)) for step in D.steps for p in _pieces(step.rule)) + 1
    room = line - max(lefts) - label - 3.2
    groups = [_chain_rows(D, chain, room) for chain in chains(D)]
    body = " \\\\[1.5ex]\n".join(" \\\\\n".join(steps) for steps in groups)
    return f"\\begin{{align*}}\n{body}\n\\end{{align*}}"


def _chain_rows(D: Derivation, chain: Chain, room: float) -> list[str]:
    rows: list[str] = []  # one entry for each step
    for k, step in enumerate(chain.steps):
        left = latex(step.before) if k == 0 else ""
        rows.append(_labelled(D, left, latex(step.after), step.rule, room))
    if chain.reads_off is not None:
        left = derivative_latex(chain.of, D.state)
        rows.append(_labelled(D, left, latex(D.jacobian), chain.reads_off.rule, room))
    return rows


def _labelled(D: Derivation, left: str, right: str, rule: str, room: float) -> str:
    """Rows of one step, its rules beside the last of them; many rules take several rows."""
    first, *more = broken(right, room, room)
    rows = [f"{left} &= {first}".strip(), *(f"&{piece}" for piece in more)]
    labels = [rule_latex(D, piece) for piece in _pieces(rule)]
    labels = [*(f"{label}," for label in labels[:-1]), f"{labels[-1]})"]
    labels[0] = f"({labels[0]}"
    start = max(0, len(rows) - len(labels))
    rows += ["&"] * (start + len(labels) - len(rows))
    for k, label in enumerate(labels, start):
        rows[k] += rf" && \text{{{label}}}"
    return " \\\\*\n".join(rows)  # no page break inside a step


def _pieces(rule: str) -> list[str]:
    """Split the names of several rules into lines, as many on a line as fit beside a formula."""
    lines: list[str] = []
    for name in rule.split(", "):
        if lines and text_width(f"{lines[-1]}, {name}") <= _LABEL:
            lines[-1] += f", {name}"
        else:
            lines.append(name)
    return lines


def _bare(rule: str) -> str:
    """Return what a rule is as wide as: the indices of a quantity stand below it."""
    return re.sub(r"\[[^\]]*\]", "xx", rule)
