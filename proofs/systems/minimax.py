"""MiniMax: the residual is the normed stream, so that no identity path is left."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import MINIMAX, TRANSFORMERS
from proofs.systems._shared import PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-minimax",
    area="systems",
    title="MiniMax",
    statement=(
        r"MiniMax has no identity path: with $c = N(x)$ a block is $\alpha c + "
        r"\beta F(c)$, so that every block multiplies the skip by $J_N$."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer(
            "A layer of MiniMax adds its branch to the normed stream.",
            "minimax",
            "u = N1(x); h = attn_alpha*u + attn_beta*A(u); c = N2(h); mlp_alpha*c + mlp_beta*M(c)",
            PRE.replace("F(", "M("),
        ),
        default(
            "It has 32 layers by default.", "MiniMaxConfig", "num_hidden_layers", "32", "BertConfig"
        ),
    ),
    sources=(
        MINIMAX("", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark=(
        "A language model of 2025 whose skip crosses a norm at every block, as "
        "post-norm's does; the norms are one place further on."
    ),
)
