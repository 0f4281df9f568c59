"""Does post-norm's gradient drift with depth? Not with relu; with gelu up, in decoders down."""

from __future__ import annotations

import sympy as sp

from derive.proof import Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import INTERVIEW
from proofs.depth._shared import WIDE
from proofs.depth.decoder_memory import theorem as decoder_memory
from proofs.depth.post_norm_gain import theorem as post_norm_gain
from proofs.depth.post_norm_gelu import theorem as post_norm_gelu
from proofs.documents._shared import CROSS, law

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-post-norm-drift",
    area="documents",
    title="Gradients that drift with depth",
    statement=(
        "In post-norm gradients go through a chain of rescalings, so that "
        "they drift with depth, and without careful initialization and "
        "warm-up the model diverges."
    ),
    verdict=Verdict.CONDITIONAL,
    uses=(
        post_norm_gain,
        post_norm_gelu,
        decoder_memory,
    ),
    steps=(
        Step(
            (
                "At the start of training, with relu sublayers, they do not: "
                "rescaling by $1/s$ undoes what the branch adds."
            ),
            "$(1 + b)/(1 + f) = 1$ where $b = f$",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("post"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            (
                r"With gelu every sublayer multiplies by $4(\sqrt 3 + 6\pi)/(3(\sqrt 3 "
                r"+ 8\pi)) = 1.0215$."
            ),
            "$(1 + b)/(1 + f)$ with $b > f$",
            Gaussian(
                claim=lambda found: (
                    found.solution.explicit()[1],
                    (4 * (sp.sqrt(3) + 6 * sp.pi) / (3 * (sp.sqrt(3) + 8 * sp.pi))) ** L,
                ),
                of=law("post", "ffn:gelu"),
                instead=law("post"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "With cross-attention to one memory every block halves.",
            "$b = 0$, $f = 1$",
            Gaussian(
                claim=lambda found: (found.solution.gradient, sp.Rational(1, 2) ** L),
                of=law(CROSS, "attention"),
                instead=law("post"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "Pre-norm's drifts too, upwards: $1 + L/2$.",
            "telescoping product",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1 + L / 2),
                of=law("pre"),
                instead=law("post"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
    ),
    sources=(INTERVIEW("paragraphs on the gradient highway and on post-norm", seen="text"),),
    assumptions=(WIDE,),
    holds_when=(
        "Branches give the gradient another share than the variance: gelu, "
        "cross-attention, attention to tokens whose gradients differ."
    ),
    fails_when=(
        "The sublayers are relu feed-forward ones at the start of training. "
        "That models diverge is about updates, and open here."
    ),
)
