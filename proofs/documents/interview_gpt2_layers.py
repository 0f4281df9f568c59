"""GPT-2 has 12 to 48 layers; 24 is one of four sizes."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import INTERVIEW, RADFORD, TRANSFORMERS
from proofs.systems._shared import POST, PRE, default, layer

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-gpt2-layers",
    area="documents",
    title="GPT-2's depth",
    statement="GPT-2 has 24 layers and is pre-norm.",
    verdict=Verdict.REFUTED,
    steps=(
        default(
            "The default configuration of GPT-2 has 12 layers.",
            "GPT2Config",
            "n_layer",
            "12",
            "GPTJConfig",
        ),
        layer("Pre-norm it is.", "gpt2", PRE, POST),
    ),
    sources=(
        INTERVIEW("paragraph on history; example 3", seen="text"),
        TRANSFORMERS("the layers named", seen="code"),
        RADFORD("table 2", seen="memory"),
    ),
    holds_when="What is meant is the second of the four sizes, GPT-2 medium.",
    fails_when=(
        "What is meant is GPT-2: the smallest has 12 layers, and the largest, "
        "which the report calls so, 48."
    ),
    remark=(
        "The other sizes have 24, 36 and 48 layers, as remembered from the report; they are in no "
        "default configuration."
    ),
)
