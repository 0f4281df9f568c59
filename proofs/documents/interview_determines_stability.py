"""An identity residual is neither needed for stable gradients nor enough."""

from __future__ import annotations

import sympy as sp

from derive.proof import Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import INTERVIEW
from proofs.depth._shared import WIDE
from proofs.depth.deepnorm_identity_path import theorem as deepnorm_identity_path
from proofs.depth.no_norm_growth import theorem as no_norm_growth
from proofs.documents._shared import law

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-determines-stability",
    area="documents",
    title="Does the residual decide stability?",
    statement="Whether the residual is an identity or rescaled determines depth stability.",
    verdict=Verdict.REFUTED,
    uses=(
        no_norm_growth,
        deepnorm_identity_path,
    ),
    steps=(
        Step(
            (
                "Not enough: without norms the residual is an identity, and the mean "
                "squared gradient grows as $(3/2)^L$."
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
            (
                "Not needed: DeepNorm rescales the residual at every block, and its "
                "mean squared gradient is 1 at every depth."
            ),
            "what the branch adds to the variance it adds to the gradient",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("deepnorm"),
                instead=law("no-norm"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "An identity residual with norms gives $1 + L/2$.",
            "telescoping product",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1 + L / 2),
                of=law("pre"),
                instead=law("no-norm"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
    ),
    sources=(INTERVIEW("most common mistake", seen="text"),),
    assumptions=(WIDE,),
    holds_when=(
        "Only pre-norm and post-norm are compared, and only decoders with cross-attention."
    ),
    fails_when=(
        "Other placements are counted: what decides is the size of the branch "
        "against the stream, where the norm is one means of setting it."
    ),
)
