r"""Placements that are others at special values of their scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from derive.calculus.atoms import Vector
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import alpha, beta, d
from proofs.setting import block_jacobian, one

__all__ = ["theorem"]


def _same(words: str, first: str, at: Mapping[sp.Basic, Any], second: str, instead: str) -> Step:
    """Return the step that one placement, with scalars put in, is another."""
    return Step(
        words,
        "the equations are then the same",
        Identity(
            claim=lambda name: (block_jacobian(first)().xreplace(dict(at)), block_jacobian(name)()),
            of=lambda: second,
            instead=lambda: instead,
        ),
    )


theorem = Theorem(
    id="placements-special-values",
    area="placements",
    title="Placements that are others at special values",
    statement=(
        "ReZero, SkipInit and Fixup are one equation; DeepNorm, Admin, the residual scale, "
        "LayerScale and MiniMax's placement contain post-norm, DeepNorm, pre-norm, the residual "
        "scale and the normed residual as special cases."
    ),
    verdict=Verdict.PROVED,
    steps=(
        _same(
            r"ReZero and Fixup are one equation, $x + \alpha F(x)$; what differs is $\alpha$ at "
            "the start.",
            "rezero",
            {},
            "fixup",
            "no-norm",
        ),
        _same("So are ReZero and SkipInit.", "rezero", {}, "skipinit", "no-norm"),
        _same(
            r"DeepNorm with $\alpha = 1$ is post-norm.",
            "deepnorm",
            {alpha: sp.S.One},
            "post",
            "pre",
        ),
        _same(
            r"Admin with $\omega = \alpha\mathbf 1$ is DeepNorm.",
            "admin",
            {Vector("omega", d): alpha * one},
            "deepnorm",
            "post",
        ),
        _same(
            r"A residual scale of 1 is pre-norm.",
            "scaled-residual",
            {alpha: sp.S.One},
            "pre",
            "post",
        ),
        _same(
            r"LayerScale with $\lambda = \alpha\mathbf 1$ is the residual scale $\alpha$.",
            "layerscale",
            {Vector("lam", d): alpha * one},
            "scaled-residual",
            "pre",
        ),
        _same(
            r"MiniMax's placement with $\alpha = \beta = 1$ is the normed residual.",
            "scaled-normed-residual",
            {alpha: sp.S.One, beta: sp.S.One},
            "normed-residual",
            "pre",
        ),
    ),
    remark="No test of a function can tell the members of a pair apart.",
)
