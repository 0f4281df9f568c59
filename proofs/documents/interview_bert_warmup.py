"""BERT: post-norm at 12 and 24 layers, with 10000 warm-up steps."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import BERT, INTERVIEW, MEGATRON, TRANSFORMERS, XIONG
from proofs.systems._shared import POST, PRE, default, layer

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-bert-warmup",
    area="documents",
    title="BERT's warm-up",
    statement=(
        "BERT with 12 to 24 layers survived on post-norm with a warm-up of "
        "10000 steps; deeper variants became unstable."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of BERT is post-norm.", "bert", POST, PRE),
        default(
            "The base model has 12 layers.", "BertConfig", "num_hidden_layers", "12", "T5Config"
        ),
        layer("Megatron's BERT, made for larger sizes, is pre-norm.", "megatron-bert", PRE, POST),
        Step(
            "That place is reported to be critical as the model grows.",
            "Shoeybi and others, 2019, abstract",
            Cited(
                "The place of the norm is critical for larger BERT-like models to become better.",
                MEGATRON("abstract", seen="text"),
            ),
        ),
        Step(
            "BERT's schedule warms up over 10000 steps.",
            "Xiong and others, 2020, section 4.1",
            Cited("10000 warm-up steps to a rate of 1e-4.", XIONG("section 4.1", seen="text")),
        ),
        Step(
            "The large model has 24 layers.",
            "Devlin and others, 2018, section 3",
            Cited("BERT-large has 24 layers.", BERT("section 3", seen="memory")),
        ),
    ),
    sources=(
        INTERVIEW("paragraph on history; example 2", seen="text"),
        TRANSFORMERS("the layers named", seen="code"),
    ),
    remark="The report is about size; of its variants that were deeper only nothing was seen.",
)
