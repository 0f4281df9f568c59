r"""The variance of a pre-norm stream does not grow exponentially while its branches are bounded.

A branch sees a normalised input, so that for bounded weights it is at most C, and |x_L| is at most
|x_0| + L C: the mean square is at most quadratic in L for all weights, and linear at random ones.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.proof import Bound, Counterexample, Induction, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import CURSE, PERI
from proofs.depth._shared import WIDE, Recursion, law
from proofs.depth.pre_norm_variance import theorem as variance
from proofs.norms.norm_output_length import theorem as length
from proofs.setting import F, block, x

__all__ = ["theorem"]

C, X = sp.symbols("C X", positive=True)
"""Bound of the branches, length of the input."""


def _longer(grown: sp.Basic) -> tuple[sp.Expr, sp.Expr]:
    return SpectralNorm(grown), SpectralNorm(x) + SpectralNorm(F(x))


def _length(factor: sp.Expr) -> tuple[Any, Any, Any]:
    return X + C * L, X, lambda y, k: factor * y + C


def _at_48(laws: tuple[Recursion, Recursion]) -> tuple[sp.Expr, sp.Expr]:
    added, factor = laws[0].at(0).forward, laws[1].at(1).forward
    return 1 + 48 * added, factor**48


theorem = Theorem(
    id="pre-norm-exponential",
    area="literature",
    title="Pre-norm variance grows exponentially with depth",
    statement="The variance of the residual stream of pre-norm grows exponentially with depth.",
    verdict=Verdict.REFUTED,
    assumptions=(WIDE,),
    uses=(variance, length),
    steps=(
        Step(
            r"$|x_{l+1}| \le |x_l| + |F(x_l)|$, where $F$ may hold a norm of its own.",
            "triangle inequality",
            Bound(claim=_longer, of=lambda: block("no-norm"), instead=lambda: 2 * block("no-norm")),
        ),
        Step(
            r"With $|F| \le C$ on the sphere of normalised inputs $|x_L| \le y_L$, where $y_l = "
            r"y_{l-1} + C$ and $y_0 = X = |x_0|$.",
            "induction over the blocks",
            Induction(
                claim=_length,
                of=lambda: sp.S.One,
                instead=lambda: sp.Rational(3, 2),
                name="y_L",
            ),
        ),
        Step(
            "At 48 random relu blocks the mean square is 25; without norms it grows as "
            r"$(3/2)^{48} = 2.8\cdot10^8$.",
            "exact arithmetic",
            Counterexample(
                claim=_at_48,
                of=lambda: (law("pre")(), law("no-norm")()),
                instead=lambda: (law("pre")(), law("post")()),
                relation="<",
                stated=("25", "2.83e8"),
            ),
        ),
    ),
    sources=(
        CURSE("abstract; Lemma 3.2 has it as an upper end", seen="text"),
        PERI("as widely summarised", seen="secondary"),
    ),
    holds_when=(
        "the bounds C of the branches themselves grow exponentially with depth, as weights of "
        "trained models may; that is an observation about them, not a consequence of pre-norm."
    ),
    fails_when="weights are bounded: growth is at most quadratic, and linear at initialisation.",
    remark=r"For a relu branch $C = \lVert W_2\rVert\,\lVert W_1\rVert\sqrt d$ at unit gain.",
)
