"""Llama, Mistral, Qwen, DeepSeek-V3 and gpt-oss are pre-norm."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import INTERVIEW, TRANSFORMERS
from proofs.systems._shared import POST, PRE, layer

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-named-llms",
    area="documents",
    title="The models named",
    statement="Llama, Mistral, Qwen, DeepSeek, Claude and GPT use pre-norm.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of Llama is pre-norm.", "llama", PRE, POST),
        layer("So is one of Mistral.", "mistral", PRE, POST),
        layer("So is one of Qwen 3.", "qwen3", PRE, POST),
        layer("So is one of DeepSeek-V3.", "deepseek-v3", PRE, POST),
        layer(
            "So is one of gpt-oss.", "gpt-oss", PRE.replace("F(", "M("), POST.replace("F(", "M(")
        ),
    ),
    sources=(
        INTERVIEW("paragraph on history; table", seen="text"),
        TRANSFORMERS("the layers named", seen="code"),
    ),
    remark=(
        "Claude and GPT-4 and later are not public: nothing can be seen of "
        "them. DeepSeek-V4 has several residual streams that are mixed at "
        "every layer, see system-deepseek-v4."
    ),
)
