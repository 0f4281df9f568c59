r"""The block matrix of a placement with several streams, as text, LaTeX and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from derive.calculus.derivation import Derivation
from derive.calculus.printing import latex, text
from derive.render.chains import defined
from derive.render.json import derivation_json
from derive.render.latex import aligned, equation_rows
from derive.render.text import aligned_text, derivation_text

__all__ = ["streams_json", "streams_latex", "streams_text"]

Blocks = Mapping[tuple[str, str], Derivation]


def streams_text(blocks: Blocks, steps: bool = False) -> str:
    """Return the equations, the blocks of the Jacobian and the definitions as text.

    Parameters
    ----------
    blocks : mapping from (output stream, input stream) to Derivation
        From `derive.blocks.build.streams`.
    steps : bool
        Whether the derivation of every block follows, step by step.
    """
    jacobian = [(f"d{a}'/d{b}", text(D.jacobian)) for (a, b), D in blocks.items()]
    sections = [
        aligned_text([(f"{a}'", text(e)) for a, e in _equations(blocks).items()]),
        aligned_text(jacobian),
        ["where", *("  " + line for line in aligned_text(_printed(blocks, text)))],
    ]
    shown = "\n\n".join("\n".join(lines) for lines in sections if len(lines) > 1)
    if steps:
        for (a, b), D in blocks.items():
            shown += f"\n\n-- d{a}'/d{b}\n\n{derivation_text(D, steps=True)}"
    return shown


def streams_latex(blocks: Blocks) -> str:
    """Return the equations, the blocks of the Jacobian and the definitions as aligned LaTeX.

    Parameters
    ----------
    blocks
        As for `streams_text`.
    """
    rows: list[str] = []
    for a, expr in _equations(blocks).items():
        rows += equation_rows(f"{a}'", latex(expr))
    for (a, b), D in blocks.items():
        left = rf"\frac{{\partial {a}'}}{{\partial {b}}}"
        rows += equation_rows(left, latex(D.jacobian))
    listed: list[str] = []
    for name, value in _printed(blocks, latex):
        listed += equation_rows(name, value)
    return "\n".join([aligned(rows), "where", aligned(listed)])


def streams_json(blocks: Blocks) -> dict[str, Any]:
    """Return ``{"equations", "blocks"}``: each block as `derivation_json`, with ``of`` and ``by``.

    Parameters
    ----------
    blocks
        As for `streams_text`.
    """
    return {
        "equations": [
            {"stream": a, "text": text(e), "latex": latex(e)} for a, e in _equations(blocks).items()
        ],
        "blocks": [{"of": f"{a}'", "by": b, **derivation_json(D)} for (a, b), D in blocks.items()],
    }


def _equations(blocks: Blocks) -> dict[str, sp.Basic]:
    return {a: D.block for (a, b), D in blocks.items() if a == b}


def _printed(blocks: Blocks, printed: Any) -> list[tuple[str, str]]:
    """Return what the names stand for, each once."""
    found = {printed(k): printed(v) for D in blocks.values() for k, v in defined(D)}
    return list(found.items())
