"""The depth at which post-norm stops training: reports from 10 to 24 layers."""

from __future__ import annotations

import sympy as sp

from derive.proof import Cited, Exact, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import ADMIN, B2T, CURSE, INTERVIEW, XIONG
from proofs.depth._shared import WIDE
from proofs.depth.decoder_memory import theorem as decoder_memory
from proofs.documents._shared import CROSS, law

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-empirical-cliff",
    area="documents",
    title="The depth of the cliff",
    statement=(
        "Post-norm trains up to 12 to 18 layers; past 20 to 24, and when it "
        "was tried in 2018 at 24 and more, it routinely diverges without "
        "elaborate warm-up."
    ),
    verdict=Verdict.OPEN,
    uses=(decoder_memory,),
    steps=(
        Step(
            (
                "No depth is marked by the encoder at the start of training: the "
                "gradient's law is 1 at every L."
            ),
            "relu sublayers",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("post"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            (
                r"In a decoder that reads one memory the squared gradient is $2.4\cdot "
                r"10^{-4}$ at 12 layers and $6.0\cdot 10^{-8}$ at 24."
            ),
            "it halves at every cross-attention",
            Exact(
                claim=lambda found: (
                    found.solution.gradient.subs(L, 24) / found.solution.gradient.subs(L, 12),
                    sp.Rational(1, 4096),
                ),
                of=law(CROSS, "attention"),
                instead=law("post"),
                sizes="L=12, 24",
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_{24}|^2",
            ),
        ),
        Step(
            "Unstable from ten layers on.",
            "Takase and others, 2022, abstract",
            Cited(
                "Training of post-norm with ten or more layers often becomes unstable.",
                B2T("abstract", seen="text"),
            ),
        ),
        Step(
            "Diverged at 18.",
            "Liu and others, 2020, table of deep models",
            Cited(
                (
                    "English-German translation, 18 encoder and 18 decoder layers: "
                    "post-norm diverged."
                ),
                ADMIN("table of deep models", seen="secondary"),
            ),
        ),
        Step(
            "Unusable from 250 million parameters on.",
            "Sun and others, 2025, table 1",
            Cited(
                "Perplexity 26.95 at 130M, 1409.79 at 250M, 1368.33 at 350M with post-norm.",
                CURSE("table 1", seen="text"),
            ),
        ),
        Step(
            "BERT, whose large model has 24 layers, trained.",
            "Xiong and others, 2020, section 4.1, on BERT's settings",
            Cited(
                "BERT's schedule warms up over 10000 steps.",
                XIONG("section 4.1, on BERT's settings", seen="text"),
            ),
        ),
    ),
    sources=(
        INTERVIEW("paragraph on the cliff; table; key number of the quick scan", seen="text"),
    ),
    assumptions=(WIDE,),
    remark=(
        "The reports do not agree on a depth; task, decoder and schedule "
        "differ. About 20 is a rule of thumb that nothing here confirms or "
        "refutes."
    ),
)
