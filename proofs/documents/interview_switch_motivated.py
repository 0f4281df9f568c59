"""Why the field switched: what the GPT-2 report says."""

from __future__ import annotations

import sympy as sp

from derive.proof import Cited, Gaussian, Step, Theorem, Verdict
from proofs.bibliography import INTERVIEW, RADFORD
from proofs.depth._shared import WIDE
from proofs.documents._shared import law

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-switch-motivated",
    area="documents",
    title="The motive for the switch",
    statement=(
        "The switch to pre-norm in 2019 and 2020, from GPT-2 on, was "
        "motivated by stability at depth, and the report cites this."
    ),
    verdict=Verdict.OPEN,
    steps=(
        Step(
            "The report describes the move and likens it to pre-activation ResNets.",
            "Radford and others, 2019, section 2.3",
            Cited(
                (
                    "The norm is moved to the input of each sub-block, similar to a "
                    "pre-activation residual network, with one more norm at the end."
                ),
                RADFORD("section 2.3", seen="secondary"),
            ),
        ),
        Step(
            "It gives accumulation over depth as the reason for its initialization.",
            "Radford and others, 2019, section 2.3",
            Cited(
                (
                    "Weights of residual layers are scaled by one over the root of their "
                    "number, to account for the accumulation on the residual path."
                ),
                RADFORD("section 2.3", seen="secondary"),
            ),
        ),
        Step(
            r"GPT-2's scale $1/\sqrt L$ keeps its stream at $3/2$ at any depth.",
            "L branches of 1/(2L)",
            Gaussian(
                claim=lambda found: (found.solution.forward, sp.Rational(3, 2)),
                of=law("scaled-residual"),
                instead=law("pre"),
                name=r"\mathbb{E}|x_L|^2/d",
            ),
        ),
    ),
    sources=(INTERVIEW("paragraph on consequences; example 3", seen="text"),),
    assumptions=(WIDE,),
    remark=(
        "In what was seen of the report depth is the reason for the scaling "
        "of weights, not, in words, for the place of the norm. The report "
        "itself was not seen."
    ),
)
