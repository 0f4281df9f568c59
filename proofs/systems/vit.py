"""Vision Transformer: pre-norm."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import TRANSFORMERS, VIT
from proofs.systems._shared import POST, PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-vit",
    area="systems",
    title="Vision Transformer",
    statement="The Vision Transformer is pre-norm; its base model has 12 layers.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer is pre-norm.", "vit", PRE, POST),
        default(
            "The default configuration has 12 layers.",
            "ViTConfig",
            "num_hidden_layers",
            "12",
            "LlamaConfig",
        ),
    ),
    sources=(
        VIT("section 3.1", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
)
