"""The identity path does not keep gradients well-behaved: 2^24 and 2^-24 at 24 blocks."""

from __future__ import annotations

import derive
from derive.proof import Counterexample, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import INTERVIEW
from proofs.depth._shared import WIDE
from proofs.depth.pre_norm_exponent import theorem as pre_norm_exponent
from proofs.documents._shared import BARE, DOUBLING, W, law, stretched
from proofs.setting import x

__all__ = ["theorem"]

theorem = Theorem(
    id="interview-well-behaved-at-any-depth",
    area="documents",
    title="Well-behaved through any depth",
    statement=(
        "Since pre-norm has an identity path, its gradients stay well-behaved "
        "through arbitrary depth."
    ),
    verdict=Verdict.REFUTED,
    uses=(pre_norm_exponent,),
    steps=(
        Step(
            (
                "With $F(z) = Wz$, W a projection, every block doubles w: after 24 "
                "blocks it is 16777216 times as long."
            ),
            "a fixed point x, so that J is the same in every block, and symmetry of J",
            Counterexample(
                claim=lambda J: (stretched(J), 1),
                of=lambda: derive.jacobian(x + W * BARE(x), x),
                instead=lambda: derive.jacobian(BARE(x) + W * BARE(x) / 2, x),
                relation=">",
                stated=("16777216", "1"),
                width=4,
                at=DOUBLING,
            ),
        ),
        Step(
            "With $F(z) = -Wz/2$ every block halves it.",
            "the same fixed point",
            Counterexample(
                claim=lambda J: (stretched(J), 1),
                of=lambda: derive.jacobian(x - W * BARE(x) / 2, x),
                instead=lambda: derive.jacobian(BARE(x) + W * BARE(x) / 2, x),
                relation="<",
                stated=("5.960e-8", "1"),
                width=4,
                at=DOUBLING,
            ),
        ),
        Step(
            "At random weights the mean squared gradient grows as $1 + L/2$, a power of depth.",
            "telescoping product, relu sublayers",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1 + L / 2),
                of=law("pre"),
                instead=law("no-norm"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
    ),
    sources=(
        INTERVIEW("paragraph on the gradient highway", seen="text"),
        INTERVIEW("paragraph on pre-norm: stable through arbitrary depth", seen="text"),
    ),
    assumptions=(WIDE,),
    holds_when=(
        "The weights are random and independent, as at the start of training: "
        "then the growth is polynomial."
    ),
    fails_when=(
        "The weights are any weights; they may add up in one direction, or "
        "cancel it, exponentially in depth."
    ),
)
