"""Megatron's BERT: the norm moved in front, for models larger than BERT-large."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import MEGATRON, TRANSFORMERS
from proofs.systems._shared import POST, PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-megatron-bert",
    area="systems",
    title="Megatron's BERT",
    statement="Megatron's BERT is pre-norm, unlike BERT.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of Megatron's BERT is pre-norm.", "megatron-bert", PRE, POST),
        default(
            "It has 24 layers by default.",
            "MegatronBertConfig",
            "num_hidden_layers",
            "24",
            "BertConfig",
        ),
        Step(
            "The move was made for size.",
            "Shoeybi and others, 2019, abstract",
            Cited(
                "The place of the norm is critical for larger BERT-like models to become better.",
                MEGATRON("abstract", seen="text"),
            ),
        ),
    ),
    sources=(
        MEGATRON("abstract", seen="text"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark=("It has BERT-large's depth: what grew beyond is width, and depth at the larger sizes."),
)
