"""Llama: pre-norm with RMSNorm."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import LLAMA3, TRANSFORMERS
from proofs.systems._shared import POST, PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-llama",
    area="systems",
    title="Llama",
    statement=(
        "Llama is pre-norm with RMSNorm; the default configuration has 32 "
        "layers, the 405B model of Llama 3.1 has 126."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer is pre-norm.", "llama", PRE, POST),
        default(
            "The default configuration has 32 layers.",
            "LlamaConfig",
            "num_hidden_layers",
            "32",
            "BertConfig",
        ),
        Step(
            "The 405B model has 126 layers.",
            "Grattafiori and others, 2024, table 3",
            Cited("Llama 3.1 405B has 126 layers.", LLAMA3("table 3", seen="secondary")),
        ),
    ),
    sources=(
        LLAMA3("table 3", seen="secondary"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark="No default configuration carries the 126 layers; two public tables of models do.",
)
