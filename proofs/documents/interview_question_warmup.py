"""Could a long warm-up fix post-norm's depth problem? Not at the start; later is open."""

from __future__ import annotations

import sympy as sp

from derive.proof import Cited, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import ADMIN, HANDBOOK, INTERVIEW, XIONG
from proofs.depth._shared import WIDE
from proofs.depth.decoder_memory import theorem as decoder_memory
from proofs.depth.update_amplification import theorem as update_amplification
from proofs.documents._shared import CROSS, law

__all__ = ["theorem"]

theorem = Theorem(
    id="interview-question-warmup",
    area="documents",
    title="Question: a long enough warm-up",
    statement=(
        "Asked: could a sufficiently long warm-up fix post-norm's depth "
        "problem? Answer: it cannot change the gradients of the start, which "
        "in decoders vanish with depth; it can make early steps small; "
        "whether long enough is ever enough is open, and one report says no."
    ),
    verdict=Verdict.OPEN,
    uses=(
        update_amplification,
        decoder_memory,
    ),
    steps=(
        Step(
            (
                "Proved: at the start the squared gradient of a decoder that reads "
                "one memory is $2^{-L}$ of what it is at the output; no rate of "
                "learning is in this."
            ),
            "the law depends on the weights only",
            Gaussian(
                claim=lambda found: (found.solution.gradient, sp.Rational(1, 2) ** L),
                of=law(CROSS, "attention"),
                instead=law("post"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "Proved: in an encoder there is nothing of this kind to fix; it is 1.",
            "relu sublayers",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("post"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "Proved: small relative changes of all weights move the output of a post-norm stack by "
            r"$\frac{2L}3$ times their square: to keep that fixed the rate would have to fall with "
            "depth, and a warm-up ends.",
            "the theorem used",
            update_amplification.steps[0].check,
        ),
        Step(
            "Proved: those of pre-norm move it by twice a harmonic number, a logarithm of depth.",
            "the theorem used",
            update_amplification.steps[1].check,
        ),
        Step(
            "Supported: six layers train with warm-up and fail without.",
            "Xiong and others, 2020, section 3.2",
            Cited(
                "Post-norm needs warm-up on translation at six layers.",
                XIONG("section 3.2", seen="text"),
            ),
        ),
        Step(
            "Supported, against: at 18 and 18 layers post-norm diverged with the usual warm-up.",
            "Liu and others, 2020, table of deep models",
            Cited(
                "English-German translation: post-norm diverged at 18 layers.",
                ADMIN("table of deep models", seen="secondary"),
            ),
        ),
    ),
    sources=(
        INTERVIEW("first follow-up question", seen="text"),
        HANDBOOK("paragraph 3", seen="text"),
    ),
    assumptions=(WIDE,),
    remark=(
        "Open: what the weights are after a warm-up. The laws are for random "
        "weights; training can restore a vanished gradient, and nothing here "
        "says that it must or cannot. A remedy that does not end with the "
        "warm-up is a scaled residual (DeepNorm, Admin)."
    ),
)
