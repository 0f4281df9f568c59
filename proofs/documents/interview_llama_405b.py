"""Llama 3.1 405B: pre-norm with RMSNorm; its 126 layers are not in what is installed."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import INTERVIEW, LLAMA3, TRANSFORMERS
from proofs.systems._shared import POST, PRE, layer

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-llama-405b",
    area="documents",
    title="Llama 3.1 405B",
    statement="Llama 3.1 405B has 126 layers, pre-norm with RMSNorm.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of Llama is pre-norm with RMSNorm.", "llama", PRE, POST),
        Step(
            "The largest model has 126 layers.",
            "Grattafiori and others, 2024, table 3",
            Cited("Llama 3.1 405B: 126 layers.", LLAMA3("table 3", seen="secondary")),
        ),
    ),
    sources=(
        INTERVIEW("example 4", seen="text"),
        TRANSFORMERS("the layers named", seen="code"),
    ),
    remark=(
        "The default configuration has 32 layers, see system-llama. That only "
        "pre-norm makes 126 possible is refuted in interview-necessity."
    ),
)
