"""Better gradient flow: against no norm at all, and not the only way."""

from __future__ import annotations

import sympy as sp

from derive.proof import Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import COURSE
from proofs.depth._shared import WIDE
from proofs.depth.no_norm_growth import theorem as no_norm_growth
from proofs.documents._shared import law

__all__ = ["theorem"]


theorem = Theorem(
    id="course-improves-gradient-flow",
    area="documents",
    title="Better gradient flow",
    statement=(
        "Layer normalization generally improves gradient flow, so that deeper "
        "networks can be trained."
    ),
    verdict=Verdict.CONDITIONAL,
    uses=(no_norm_growth,),
    steps=(
        Step(
            (
                "Without a norm and with branches of full size the mean squared "
                "gradient grows as $(3/2)^L$."
            ),
            "every block multiplies by 1 + 1/2",
            Gaussian(
                claim=lambda found: (found.solution.gradient, sp.Rational(3, 2) ** L),
                of=law("no-norm"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "With pre-norm it grows as $1 + L/2$ only.",
            "the branch's gradient is divided by the size of the stream",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1 + L / 2),
                of=law("pre"),
                instead=law("no-norm"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            (
                r"Without a norm, branches times $1/\sqrt L$ give $(1 + 1/(2L))^L$, "
                r"which stays below $\sqrt e$."
            ),
            "every block multiplies by 1 + 1/(2L)",
            Gaussian(
                claim=lambda found: (found.solution.gradient, (1 + 1 / (2 * L)) ** L),
                of=law("skipinit"),
                instead=law("no-norm"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
    ),
    sources=(COURSE("introduction", seen="text"),),
    assumptions=(WIDE,),
    holds_when="It is compared with a residual stack that has neither norms nor small branches.",
    fails_when=(
        "Branches are scaled down with depth: then there is nothing for a "
        "norm to improve at the start of training."
    ),
)
