"""Whether pre-norm trains without warm-up: what was reported."""

from __future__ import annotations

from derive.proof import Cited, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import COURSE, XIONG
from proofs.depth._shared import WIDE
from proofs.documents._shared import law

__all__ = ["theorem"]


theorem = Theorem(
    id="course-pre-norm-without-warmup",
    area="documents",
    title="Pre-norm and warm-up",
    statement=(
        "Pre-norm is much less sensitive to the schedule, often trains with a "
        "short warm-up or none, and so is simpler to tune."
    ),
    verdict=Verdict.OPEN,
    steps=(
        Step(
            (
                "The squared gradient of the loss at the last block is, with the "
                "final norm, one over the variance of the stream: $1/(1 + L/2)$."
            ),
            "the final norm divides by it",
            Gaussian(
                claim=lambda found: (1 / found.solution.forward, 2 / (2 + L)),
                of=law("pre"),
                instead=law("post"),
                name=r"1/v_L",
            ),
        ),
        Step(
            "Pre-norm was trained without warm-up to the quality of post-norm with it.",
            "Xiong and others, 2020, section 4",
            Cited(
                "Pre-norm without warm-up reaches comparable results on translation and BERT.",
                XIONG("section 4", seen="text"),
            ),
        ),
    ),
    sources=(
        COURSE("characteristics of pre-LN, warm-up", seen="text"),
        COURSE("comparison table, warm-up", seen="text"),
    ),
    assumptions=(WIDE,),
    remark=(
        "That models in use nevertheless warm up is commonly reported. How "
        "sensitive a run is can only be measured."
    ),
)
