"""Exploding or vanishing gradients early in training: decoders, and activations other than relu."""

from __future__ import annotations

import sympy as sp

from derive.proof import Counterexample, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import COURSE, INTERVIEW
from proofs.depth._shared import WIDE
from proofs.depth.decoder_memory import theorem as decoder_memory
from proofs.depth.post_norm_gelu import theorem as post_norm_gelu
from proofs.documents._shared import CROSS, law

__all__ = ["theorem"]


theorem = Theorem(
    id="course-post-norm-gradient-early",
    area="documents",
    title="Gradients of post-norm early in training",
    statement="In deep post-norm networks gradients can explode or vanish early in training.",
    verdict=Verdict.CONDITIONAL,
    uses=(
        post_norm_gelu,
        decoder_memory,
    ),
    steps=(
        Step(
            "With relu sublayers the mean squared gradient does neither.",
            "what the branch adds to the variance it adds to the gradient",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("post"),
                instead=law("no-norm"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "With gelu it grows by 2.15 % a sublayer: at 96 sublayers 7.70 times.",
            "the branch's gradient is a little larger than its output",
            Counterexample(
                claim=lambda found: (found.solution.explicit()[1].subs(L, 96), 1),
                of=law("post", "ffn:gelu"),
                instead=law("post"),
                relation=">",
                stated=("7.70", "1"),
            ),
        ),
        Step(
            "With cross-attention to one memory it vanishes as $2^{-L}$.",
            "the branch adds to the sum and not to the gradient",
            Gaussian(
                claim=lambda found: (found.solution.gradient, sp.Rational(1, 2) ** L),
                of=law(CROSS, "attention"),
                instead=law("post"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
    ),
    sources=(
        COURSE("characteristics of post-LN, potential instability", seen="text"),
        INTERVIEW("paragraph on the gradient highway", seen="text"),
    ),
    assumptions=(WIDE,),
    holds_when=(
        "A branch adds less to the gradient than to the variance, as "
        "cross-attention does, or more, as gelu does."
    ),
    fails_when=(
        "The sublayers are relu feed-forward ones: there the two agree at the start of training."
    ),
)
