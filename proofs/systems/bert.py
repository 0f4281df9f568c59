"""BERT: post-norm, twelve layers in the base model."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import BERT, TRANSFORMERS
from proofs.systems._shared import POST, PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-bert",
    area="systems",
    title="BERT",
    statement="BERT is post-norm; the base model has 12 layers.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of BERT is post-norm.", "bert", POST, PRE),
        default(
            "The default configuration, which is the base model, has 12 layers.",
            "BertConfig",
            "num_hidden_layers",
            "12",
            "T5Config",
        ),
        Step(
            "The large model has 24.",
            "Devlin and others, 2018, section 3",
            Cited("BERT-large has 24 layers.", BERT("section 3", seen="memory")),
        ),
    ),
    sources=(
        BERT("section 3", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark="The depth of the large model is in no default configuration.",
)
