"""GPT-1: post-norm, twelve layers."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import GPT1, TRANSFORMERS
from proofs.systems._shared import POST, PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-gpt1",
    area="systems",
    title="GPT-1",
    statement="GPT-1 is post-norm, with 12 layers.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of GPT-1 is post-norm.", "gpt1", POST, PRE),
        default("It has 12 layers.", "OpenAIGPTConfig", "n_layer", "12", "GPTJConfig"),
    ),
    sources=(
        GPT1("section 4.1", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark=(
        "The first of the GPT models is a post-norm language model; only from "
        "the second on the family is pre-norm."
    ),
)
