"""The field's convergence on pre-norm, and the debate that goes on."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import B2T, DEEPNET, HANDBOOK

__all__ = ["theorem"]


theorem = Theorem(
    id="handbook-converged-by-2020",
    area="documents",
    title="Convergence on pre-norm",
    statement=(
        "By 2020 the field had largely converged on pre-norm for large "
        "models; whether post-norm is slightly better with enough training is "
        "still debated."
    ),
    verdict=Verdict.OPEN,
    steps=(
        Step(
            (
                "A paper of 2022 says that recent Transformers prefer pre-norm, and "
                "that post-norm is better in shallow ones."
            ),
            "Takase and others, 2022, abstract",
            Cited(
                (
                    "Recent Transformers prefer pre-norm; post-norm has consistently been "
                    "better with six layers or fewer."
                ),
                B2T("abstract", seen="text"),
            ),
        ),
        Step(
            "Another has pre-norm behind post-norm where both train.",
            "Wang and others, 2022, introduction",
            Cited(
                (
                    "Gradients of pre-norm are larger at the bottom than at the top, "
                    "which costs quality against post-norm."
                ),
                DEEPNET("introduction", seen="text"),
            ),
        ),
    ),
    sources=(HANDBOOK("paragraph 4", seen="text"),),
    remark=(
        "Counts of papers and the outcome of a debate are not mathematics. "
        "What installed models have is in course-modern-usage."
    ),
)
