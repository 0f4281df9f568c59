"""GPT-2 and ViT are pre-norm; of GPT-3 no code was seen."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import BROWN, COURSE, TRANSFORMERS
from proofs.systems._shared import POST, PRE, layer

__all__ = ["theorem"]


theorem = Theorem(
    id="course-gpt2-vit-pre-norm",
    area="documents",
    title="GPT-2, GPT-3 and ViT",
    statement="Pre-norm is the standard of large implementations such as GPT-2, GPT-3 and ViT.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of GPT-2 is pre-norm.", "gpt2", PRE, POST),
        layer("A layer of ViT is pre-norm.", "vit", PRE, POST),
        Step(
            "GPT-3 has GPT-2's architecture.",
            "Brown and others, 2020, section 2.1",
            Cited(
                (
                    "GPT-3 uses the model and architecture of GPT-2, with sparse "
                    "attention in alternate layers."
                ),
                BROWN("section 2.1", seen="memory"),
            ),
        ),
    ),
    sources=(
        COURSE("characteristics of pre-LN, common practice", seen="text"),
        TRANSFORMERS("GPT2Block, ViTLayer", seen="code"),
    ),
)
