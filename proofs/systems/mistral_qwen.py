"""Mistral and Qwen: pre-norm with RMSNorm."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import TRANSFORMERS
from proofs.systems._shared import POST, PRE, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-mistral-qwen",
    area="systems",
    title="Mistral and Qwen",
    statement="Mistral, Qwen 2 and Qwen 3 are pre-norm with RMSNorm.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of Mistral is pre-norm.", "mistral", PRE, POST),
        layer("A layer of Qwen 2 is pre-norm.", "qwen2", PRE, POST),
        layer("A layer of Qwen 3 is pre-norm.", "qwen3", PRE, POST),
    ),
    sources=(TRANSFORMERS("its layer and its configuration", seen="code"),),
)
