"""Pre-norm beyond 100 layers without warm-up: what is known."""

from __future__ import annotations

from derive.proof import Cited, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import INTERVIEW, LLAMA3
from proofs.depth._shared import WIDE
from proofs.documents._shared import law

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-pre-norm-100-layers",
    area="documents",
    title="Beyond 100 layers",
    statement=(
        "Pre-norm trains stably past 100 layers without any tricks of "
        "warm-up, or with minimal warm-up."
    ),
    verdict=Verdict.OPEN,
    steps=(
        Step(
            (
                "At 200 relu sublayers the mean squared gradient has grown to 101 at "
                "the start of training, no more."
            ),
            "$1 + L/2$",
            Gaussian(
                claim=lambda found: (found.solution.gradient.subs(L, 200), 101),
                of=law("pre"),
                instead=law("no-norm"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_{200}|^2",
            ),
        ),
        Step(
            "A model of 126 layers warmed up nevertheless.",
            "Grattafiori and others, 2024, section 3.4",
            Cited(
                (
                    "Llama 3.1 405B has 126 layers and was trained with 8000 steps of "
                    "linear warm-up."
                ),
                LLAMA3("section 3.4", seen="memory"),
            ),
        ),
    ),
    sources=(
        INTERVIEW("paragraph on the cliff; table", seen="text"),
        INTERVIEW("example 4", seen="text"),
    ),
    assumptions=(WIDE,),
    remark=(
        "That the largest pre-norm model named there used thousands of "
        "warm-up steps, if remembered rightly, speaks against the word any."
    ),
)
