"""The 2017 paper's sublayers: transform, add, then norm."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import COURSE, HANDBOOK, INTERVIEW, PYTORCH, VASWANI
from proofs.systems._shared import POST, PRE, layer

__all__ = ["theorem"]


theorem = Theorem(
    id="handbook-original-post-norm",
    area="documents",
    title="The original placement",
    statement=(
        "The Transformer of 2017 applies the sublayer, adds the input, then norms: it is post-norm."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer(
            "torch's encoder layer, which follows the paper, is post-norm with its defaults.",
            "torch-post",
            POST,
            PRE,
        ),
        Step(
            "The paper states this equation.",
            "Vaswani and others, 2017, section 3.1",
            Cited(
                "The output of each sublayer is $N(x + F(x))$, with layer normalization.",
                VASWANI("section 3.1", seen="secondary"),
            ),
        ),
    ),
    sources=(
        HANDBOOK("paragraphs 1 and 5", seen="text"),
        COURSE("post-normalization", seen="text"),
        INTERVIEW("first paragraph", seen="text"),
        VASWANI("section 3.1", seen="secondary"),
        PYTORCH("TransformerEncoderLayer", seen="code"),
    ),
    remark=(
        "That the paper introduced the placement, rather than took it over, "
        "is a statement about history that nothing here settles. Implementing "
        "the paper exactly gives this."
    ),
)
