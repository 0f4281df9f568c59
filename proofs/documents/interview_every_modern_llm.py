"""Not every language model of more than 12 layers is pre-norm."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import INTERVIEW, MINIMAX, OLMO2, TRANSFORMERS
from proofs.systems._shared import POST, PRE, RES_POST, default, layer

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-every-modern-llm",
    area="documents",
    title="Every modern language model",
    statement=(
        "Every modern language model with more than 12 layers, every one "
        "since GPT-3, uses pre-norm."
    ),
    verdict=Verdict.REFUTED,
    steps=(
        layer(
            "OLMo 2 has no norm in front of its sublayers; it norms what they return.",
            "olmo2",
            RES_POST,
            PRE,
        ),
        default(
            "It has 32 layers by default.", "Olmo2Config", "num_hidden_layers", "32", "BertConfig"
        ),
        layer(
            "With one switch OPT, of 2022, is post-norm; its 350M model has it so.",
            "opt-350m",
            POST,
            PRE,
        ),
        layer(
            "MiniMax, of 2025, adds its branch to the normed stream.",
            "minimax",
            "u = N1(x); h = attn_alpha*u + attn_beta*A(u); c = N2(h); mlp_alpha*c + mlp_beta*M(c)",
            PRE.replace("F(", "M("),
        ),
    ),
    sources=(
        INTERVIEW("paragraphs on consequences and on history", seen="text"),
        TRANSFORMERS("the layers named", seen="code"),
        OLMO2("", seen="memory"),
        MINIMAX("", seen="memory"),
    ),
    holds_when=(
        "Most is meant: see course-modern-usage; or pre-norm is taken to "
        "include every identity residual, but for OPT-350m and MiniMax."
    ),
    fails_when="Every is meant.",
)
