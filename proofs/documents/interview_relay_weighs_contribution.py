"""Pre-norm weighs what a runner is given, not what he adds."""

from __future__ import annotations

import derive
from derive.proof import Gaussian, Identity, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import INTERVIEW
from proofs.depth._shared import WIDE
from proofs.depth.peri_norm_growth import theorem as peri_norm_growth
from proofs.documents._shared import law
from proofs.setting import F, block, x

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-relay-weighs-contribution",
    area="documents",
    title="The relay race: pre-norm",
    statement="Pre-norm weighs each runner's contribution before it is added to the baton.",
    verdict=Verdict.REFUTED,
    uses=(peri_norm_growth,),
    steps=(
        Step(
            "A runner ten times as strong adds ten times as much in pre-norm.",
            "the norm is in front of the sublayer, not behind it",
            Identity(
                claim=lambda y: (y - x, 10 * F(derive.LayerNorm()(x))),
                of=lambda: block("x + 10*F(N(x))"),
                instead=lambda: block("x + N(10*F(x))"),
            ),
        ),
        Step(
            (
                "Weighing contributions is res-post, $x + N(F(x))$: there a block "
                "adds 1 to the mean square whatever the branch's scale."
            ),
            "norm behind the sublayer",
            Gaussian(
                claim=lambda found: (found.solution.forward, 1 + L),
                of=law("x + N(10*F(x))"),
                instead=law("x + 10*F(N(x))"),
                name=r"\mathbb{E}|x_L|^2/d",
            ),
        ),
        Step(
            (
                "In pre-norm a branch of ten times the scale adds a hundred times as "
                "much: $1 + 50L$."
            ),
            "the branch's variance is 1/2",
            Gaussian(
                claim=lambda found: (found.solution.forward, 1 + 50 * L),
                of=law("x + 10*F(N(x))"),
                instead=law("x + N(10*F(x))"),
                name=r"\mathbb{E}|x_L|^2/d",
            ),
        ),
    ),
    sources=(INTERVIEW("analogy", seen="text"),),
    assumptions=(WIDE,),
    holds_when="The placement is res-post or sandwich.",
    fails_when=(
        "The placement is pre-norm: its norm sees the baton, and the "
        "contribution is added as it is."
    ),
)
