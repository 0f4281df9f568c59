"""GLM-130B: post-norm with DeepNorm, as its report says."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import GLM

__all__ = ["theorem"]

theorem = Theorem(
    id="system-glm-130b",
    area="systems",
    title="GLM-130B",
    statement="GLM-130B has 70 layers with DeepNorm, a post-norm placement.",
    verdict=Verdict.OPEN,
    steps=(
        Step(
            "The report says so.",
            "Zeng and others, 2022, section 2",
            Cited("GLM-130B has 70 layers and uses DeepNorm.", GLM("section 2", seen="memory")),
        ),
    ),
    sources=(GLM("section 2", seen="memory"),),
    remark="No installed package has its layer; nothing of it was seen here.",
)
