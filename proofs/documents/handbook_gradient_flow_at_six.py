"""At six layers the gradient of post-norm is manageable: exactly 1, or 1/64 at worst."""

from __future__ import annotations

import sympy as sp

from derive.proof import Counterexample, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import HANDBOOK, INTERVIEW
from proofs.depth._shared import WIDE
from proofs.depth.decoder_memory import theorem as decoder_memory
from proofs.documents._shared import CROSS, law

__all__ = ["theorem"]


theorem = Theorem(
    id="handbook-gradient-flow-at-six",
    area="documents",
    title="Gradients at six layers",
    statement=(
        "At six layers the gradient flow of post-norm is manageable, and it works at that depth."
    ),
    verdict=Verdict.SUPPORTED,
    uses=(decoder_memory,),
    steps=(
        Step(
            "Over an encoder of twelve relu sublayers the mean squared gradient does not change.",
            "the norm divides by as much as the branch adds",
            Gaussian(
                claim=lambda found: (found.solution.gradient.subs(L, 12), 1),
                of=law("post"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_{12}|^2",
            ),
        ),
        Step(
            "Over the six cross-attentions of a decoder that read one memory it falls to 1/64.",
            "cross-attention adds to the sum and not to the gradient",
            Gaussian(
                claim=lambda found: (found.solution.gradient.subs(L, 6), sp.Rational(1, 64)),
                of=law(CROSS, "attention"),
                instead=law("post"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_{6}|^2",
            ),
        ),
        Step(
            "At 24 layers that is 6e-8 already.",
            "the same law",
            Counterexample(
                claim=lambda found: (found.solution.gradient.subs(L, 24), sp.Rational(1, 10**6)),
                of=law(CROSS, "attention"),
                instead=law("post"),
                relation="<",
                stated=("5.96e-8", "1.00e-6"),
            ),
        ),
    ),
    sources=(
        HANDBOOK("paragraph 3", seen="text"),
        INTERVIEW("paragraph on consequences", seen="text"),
    ),
    assumptions=(WIDE,),
    remark=(
        "The law is for the start of training. That the models of 2017 "
        "trained is history, and is not disputed."
    ),
)
