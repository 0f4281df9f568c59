"""Norms on the residual are in use: MiniMax."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import GLM, INTERVIEW, MINIMAX, TRANSFORMERS
from proofs.systems._shared import PRE, default, layer

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-none-post-norm-2026",
    area="documents",
    title="No post-norm in use",
    statement="No language model of 2026 uses post-norm, but for research with DeepNet.",
    verdict=Verdict.REFUTED,
    steps=(
        layer(
            (
                r"A block of MiniMax is $\alpha c + \beta F(c)$ with $c = N(x)$: its "
                "residual crosses a norm at every block, as post-norm's."
            ),
            "minimax",
            "u = N1(x); h = attn_alpha*u + attn_beta*A(u); c = N2(h); mlp_alpha*c + mlp_beta*M(c)",
            PRE.replace("F(", "M("),
        ),
        default(
            "It has 32 layers by default.", "MiniMaxConfig", "num_hidden_layers", "32", "BertConfig"
        ),
    ),
    sources=(
        INTERVIEW("table, used by models of 2026", seen="text"),
        TRANSFORMERS("the layers named", seen="code"),
        MINIMAX("", seen="memory"),
        GLM("DeepNorm at 70 layers", seen="memory"),
    ),
    holds_when="Post-norm is taken narrowly, as $N(x + F(x))$ with nothing in front.",
    fails_when=(
        "It is taken as the residual that crosses a norm at every block, "
        "which is what the document calls the difference."
    ),
)
