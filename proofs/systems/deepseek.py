"""DeepSeek-V3: pre-norm with RMSNorm, 61 layers."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import DEEPSEEK3, TRANSFORMERS
from proofs.systems._shared import POST, PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-deepseek",
    area="systems",
    title="DeepSeek-V3",
    statement="DeepSeek-V3 is pre-norm with RMSNorm, with 61 layers.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A dense layer is pre-norm.", "deepseek-v3", PRE, POST),
        default("It has 61 layers.", "DeepseekV3Config", "num_hidden_layers", "61", "LlamaConfig"),
    ),
    sources=(
        DEEPSEEK3("section 4.2", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
)
