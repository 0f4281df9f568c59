"""gpt-oss: pre-norm with RMSNorm, 36 layers."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import TRANSFORMERS
from proofs.systems._shared import POST, PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-gpt-oss",
    area="systems",
    title="gpt-oss",
    statement="gpt-oss is pre-norm with RMSNorm, with 36 layers.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer(
            "A layer with its mixture of experts is pre-norm.",
            "gpt-oss",
            PRE.replace("F(", "M("),
            POST.replace("F(", "M("),
        ),
        default("It has 36 layers.", "GptOssConfig", "num_hidden_layers", "36", "LlamaConfig"),
    ),
    sources=(TRANSFORMERS("its layer and its configuration", seen="code"),),
)
