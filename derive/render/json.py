"""A derivation as a dictionary that `json.dumps` takes."""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.calculus.derivation import Derivation
from derive.calculus.maps import TokenBlocks
from derive.calculus.printing import latex, text
from derive.render.assumptions import activations, assumptions
from derive.render.chains import defined, output_of
from derive.render.latex import rule_latex
from derive.render.paths import BlockName, mixing_blocks, paths

__all__ = ["derivation_json"]


def derivation_json(D: Derivation) -> dict[str, Any]:
    r"""Return a derivation as strings, lists and dictionaries.

    Parameters
    ----------
    D : Derivation
        From `derive.derivation`.

    Returns
    -------
    dict
        ``block``, ``state``, ``output`` : how they print, as ``{"text", "latex"}``.
        ``jacobian`` : ``{"text", "latex", "srepr"}``; `srepr` is SymPy's.
        ``token_block`` : :math:`\partial y_i/\partial x_j` likewise; None if no token sees another.
        ``definitions`` : list of ``{"name", "text", "latex"}`` with ``name_latex``.
        ``blocks`` : the Jacobians that mix tokens, each ``{"name", "name_latex", "paths"}``.
        ``steps`` : list of ``{"of", "before", "after", "rule", "why", "latex_before",
        "latex_after", "latex_rule"}``.
        ``assumptions`` : list of sentences.
    """
    return {
        "block": _printed(D.block),
        "state": _printed(D.state),
        "output": _printed(output_of(D)),
        "jacobian": {**_printed(D.jacobian), "srepr": sp.srepr(D.jacobian)},
        "token_block": _printed(D.token_block()) if D.mixes_tokens else None,
        "definitions": [
            *(
                {"name": text(name), "name_latex": latex(name), **_printed(value)}
                for name, value in defined(D)
            ),
            *(
                {"name": name, "name_latex": name_latex, **_printed(formula)}
                for name, name_latex, formula in activations(D)
            ),
        ],
        "blocks": [_block(node) for node in mixing_blocks(D)],
        "steps": [
            {
                "of": text(step.of),
                "before": text(step.before),
                "after": text(step.after),
                "rule": step.rule,
                "why": step.why,
                "latex_before": latex(step.before),
                "latex_after": latex(step.after),
                "latex_rule": rule_latex(D, step.rule),
            }
            for step in D.steps
        ],
        "assumptions": [a.text for a in assumptions(D)],
    }


def _printed(expr: sp.Basic) -> dict[str, str]:
    return {"text": text(expr), "latex": latex(expr)}


def _block(node: TokenBlocks) -> dict[str, Any]:
    name = BlockName(node.label, *node.args[2:])
    return {
        "name": text(name),
        "name_latex": latex(name),
        "paths": [{"path": label, **_printed(term)} for term, label in paths(node)],
    }
