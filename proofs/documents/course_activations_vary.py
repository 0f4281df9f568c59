"""In post-norm the size of the activations does not vary from layer to layer."""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.atoms import Inner
from derive.proof import Gaussian, Identity, Step, Theorem, Verdict
from derive.symbols import L, d
from proofs.bibliography import COURSE
from proofs.depth._shared import WIDE
from proofs.documents._shared import law
from proofs.setting import EPS_ZERO, F, x

__all__ = ["theorem"]

_bare = derive.LayerNorm(gain=False, bias=False)


theorem = Theorem(
    id="course-activations-vary",
    area="documents",
    title="Activations that vary from layer to layer",
    statement=(
        "In deep post-norm networks the size of the activations varies "
        "significantly from layer to layer."
    ),
    verdict=Verdict.REFUTED,
    steps=(
        Step(
            (
                r"At $\epsilon = 0$, without gain and bias, every block returns mean "
                "square 1, whatever its sublayer."
            ),
            "the norm divides by the root of the variance",
            Identity(
                claim=lambda y: (Inner(y.body.output, y.body.output) / d, sp.S.One),
                of=lambda: _bare(x + F(x)),
                instead=lambda: derive.LayerNorm(bias=False)(x + F(x)),
                assuming=(EPS_ZERO,),
            ),
        ),
        Step(
            "In pre-norm it does vary: 1 at the input, $1 + L/2$ after L relu sublayers.",
            "every branch adds 1/2",
            Gaussian(
                claim=lambda found: (found.solution.forward, 1 + L / 2),
                of=law("pre"),
                instead=law("post"),
                name=r"\mathbb{E}|x_L|^2/d",
            ),
        ),
    ),
    sources=(COURSE("characteristics of post-LN, potential instability", seen="text"),),
    assumptions=(
        EPS_ZERO,
        WIDE,
    ),
    holds_when=(
        "The placement is pre-norm, or gains have been learnt that differ from layer to layer."
    ),
    fails_when=(
        "The placement is post-norm: size varies by the gain and bias of the last norm only."
    ),
)
