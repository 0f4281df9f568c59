r"""With normalised queries and keys no score exceeds the product of the gains times sqrt(d).

|N(q)'N(k)| <= |N(q)||N(k)|, and |N(q)| <= max|g_q| sqrt(d) since |q|^2/r^2 = d (1 - eps/r^2).
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.calculus.atoms import Diag, Inner, State, Vector
from derive.proof import AtMost, Bound, MaxAbs, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import d, eps

__all__ = ["theorem"]

GAINS = Vector("g_q", d), Vector("g_k", d)
RAW = State("q", d), State("k", d)


def _root(vector: sp.Basic) -> sp.Expr:
    return sp.sqrt(Inner(vector, vector) / d + eps)


def _normed(factor: int = 1) -> list[sp.Basic]:
    """Return the normed query and key."""
    return [Diag(g) * (factor / _root(v) * v) for g, v in zip(GAINS, RAW, strict=True)]


def _facts(_: Any) -> list[AtMost]:
    return [AtMost(SpectralNorm(v), sp.sqrt(d) * _root(v), d * eps, power=2) for v in RAW]


theorem = Theorem(
    id="qk-norm-bounds-logits",
    area="attention",
    title="QK norm bounds the scores of attention",
    statement=(
        r"With RMS norms of queries and keys of width $d_h$, "
        r"$|q^\top k| \le \lVert\gamma_q\rVert_\infty\lVert\gamma_k\rVert_\infty d_h$; with the "
        r"factor $1/\sqrt{d_h}$ a score is at most "
        r"$\lVert\gamma_q\rVert_\infty\lVert\gamma_k\rVert_\infty\sqrt{d_h}$, whatever the weights."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The product of a normed query and a normed key, scaled as in attention.",
            "Cauchy-Schwarz; a normed vector is no longer than the root of its width",
            Bound(
                claim=lambda pair: (
                    sp.Abs(Inner(*pair)) / sp.sqrt(d),
                    MaxAbs(GAINS[0]) * MaxAbs(GAINS[1]) * sp.sqrt(d),
                ),
                of=_normed,
                instead=lambda: _normed(10),
                facts=_facts,
            ),
        ),
    ),
    remark="The width of a head is written d in the formula.",
)
