"""Whether post-norm peaks higher: reports, and what the laws say about late blocks."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import B2T, COURSE, DEEPNET

__all__ = ["theorem"]


theorem = Theorem(
    id="course-peak-performance",
    area="documents",
    title="Peak performance",
    statement=(
        "Post-norm can reach slightly better results with much tuning, or a "
        "lower final loss with proper warm-up; pre-norm is easier to tune."
    ),
    verdict=Verdict.OPEN,
    steps=(
        Step(
            "With six layers or fewer post-norm has been better throughout.",
            "Takase and others, 2022, abstract",
            Cited(
                "Post-norm has consistently been better than pre-norm in shallow Transformers.",
                B2T("abstract", seen="text"),
            ),
        ),
        Step(
            "Where both train, pre-norm is reported behind.",
            "Wang and others, 2022, introduction",
            Cited(
                (
                    "Pre-norm's gradients at the bottom are larger than at the top, which "
                    "costs quality."
                ),
                DEEPNET("introduction", seen="text"),
            ),
        ),
    ),
    sources=(
        COURSE("comparison table, peak performance", seen="text"),
        COURSE("caption of the loss curves", seen="text"),
    ),
    remark=(
        "The curves are hypothetical by their own caption. See "
        "interview-question-shallow-quality for what is proved about the two "
        "at small depth."
    ),
)
