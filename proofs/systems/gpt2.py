"""GPT-2: pre-norm, twelve layers in the default configuration."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import RADFORD, TRANSFORMERS
from proofs.systems._shared import POST, PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-gpt2",
    area="systems",
    title="GPT-2",
    statement=(
        "GPT-2 is pre-norm; its default configuration has 12 layers, and the "
        "family goes on to 24, 36 and 48."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of GPT-2 is pre-norm.", "gpt2", PRE, POST),
        default(
            "The default configuration has 12 layers.", "GPT2Config", "n_layer", "12", "GPTJConfig"
        ),
        Step(
            "The other sizes have 24, 36 and 48 layers.",
            "Radford and others, 2019, table 2",
            Cited(
                "The four models have 12, 24, 36 and 48 layers.", RADFORD("table 2", seen="memory")
            ),
        ),
    ),
    sources=(
        RADFORD("section 2.3: the norm is moved to the input of each sub-block", seen="secondary"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark=(
        "The model that the report calls GPT-2 is the largest, with 48 layers. "
        "None but the smallest is in a default configuration."
    ),
)
