"""What the layers of installed language models have: identity residuals, one exception."""

from __future__ import annotations

from derive.backends.zoo import build_zoo
from derive.proof import Observed, Step, Theorem, Verdict
from proofs.bibliography import COURSE, TRANSFORMERS

__all__ = ["theorem"]

MODELS = (
    "mistral",
    "qwen2",
    "qwen3",
    "deepseek-v3",
    "mixtral",
    "olmo",
    "apertus",
    "gptj",
    "phi",
    "cohere",
    "falcon-40b",
    "gpt-oss",
    "olmo2",
    "exaone4",
    "gemma2",
    "gemma3",
    "glm4",
    "minimax",
)


theorem = Theorem(
    id="course-modern-usage",
    area="documents",
    title="Modern usage",
    statement="Pre-norm is widely adopted in large models, post-norm is less common.",
    verdict=Verdict.SUPPORTED,
    steps=(
        Step(
            "Of 18 decoder layers of language models, 12 are pre-norm.",
            "reading the layers, as for autodiff",
            Observed(
                claim=lambda names: sum(
                    build_zoo(name).placement in ("pre", "parallel", "parallel-two-norms")
                    for name in names
                ),
                of=lambda: MODELS,
                instead=lambda: MODELS[8:],
                stated="12",
                quantity="pre-norm layers among 18 of language models, parallel ones included",
            ),
        ),
        Step(
            "One has a norm on its residual.",
            "the same layers",
            Observed(
                claim=lambda names: sum(
                    build_zoo(name).placement in ("post", "scaled-normed-residual")
                    for name in names
                ),
                of=lambda: MODELS,
                instead=lambda: MODELS[:8],
                stated="1",
                quantity="layers with a normed residual among them",
            ),
        ),
    ),
    sources=(
        COURSE("comparison table, modern usage", seen="text"),
        COURSE("conclusion", seen="text"),
        TRANSFORMERS("the layers named in the file", seen="code"),
    ),
    remark=(
        "The other five norm what the sublayer returns. Among these layers "
        "the norm on the residual is not gone: MiniMax of 2025 has it."
    ),
)
