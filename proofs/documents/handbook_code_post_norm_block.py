"""The second function of the handbook is the post-norm block: sublayer, addition, norm."""

from __future__ import annotations

from derive.proof import Identity, Step, Theorem, Verdict
from proofs.bibliography import COURSE, HANDBOOK, INTERVIEW
from proofs.documents._shared import layer_norm
from proofs.setting import F, block, x

__all__ = ["theorem"]


theorem = Theorem(
    id="handbook-code-post-norm-block",
    area="documents",
    title="The handbook's post-norm block",
    statement=(
        "Transforming, adding and norming in this order gives $N(x + F(x))$; "
        "what enters the next block is the normed sum."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The block's output is the written-out LayerNorm of $u = x + F(x)$.",
            "the ordering, step by step",
            Identity(
                claim=lambda y: (y.body.output, layer_norm(x + F(x))),
                of=lambda: block("post"),
                instead=lambda: block("N(F(x))"),
            ),
        ),
    ),
    sources=(
        HANDBOOK("equation and code, second function", seen="text"),
        COURSE("computation flow of post-LN", seen="text"),
        INTERVIEW("definition of post-norm", seen="text"),
    ),
    remark=(
        "The output of one block is the input of the next, so that the next "
        "block sees a normed vector and nothing else."
    ),
)
