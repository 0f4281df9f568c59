r"""The variance of a pre-norm stream does not grow exponentially while its branches are bounded.

A branch sees a normalised input, so that for bounded weights it is at most C, and |x_L| is at most
|x_0| + L C: the mean square is at most quadratic in L for all weights, and linear at random ones.
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Counterexample, Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import CURSE, PERI
from proofs.depth._shared import WIDE, Recursion, f, general, law, stream
from proofs.placements.residual_stream_growth import theorem as growth

__all__ = ["theorem"]


def _at_48(laws: tuple[Recursion, Recursion]) -> tuple[sp.Expr, sp.Expr]:
    added, factor = laws[0].at(0).forward, laws[1].at(1).forward
    return 1 + 48 * added, sp.Pow(factor, 48, evaluate=False)


theorem = Theorem(
    id="pre-norm-exponential",
    area="literature",
    title="Pre-norm variance grows exponentially with depth",
    statement="The variance of the residual stream of pre-norm grows exponentially with depth.",
    verdict=Verdict.REFUTED,
    assumptions=(WIDE,),
    uses=(growth,),
    steps=(
        Step(
            "What is true at random weights: $v_L = 1 + Lf$.",
            "every branch adds f; for bounded weights the length grows at most linearly as well",
            Induction(
                claim=stream(1 + f * L),
                of=general("pre"),
                instead=general("no-norm"),
                name="v_L",
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
