"""BLOOM: pre-norm, and with one flag a residual that looks like it and is not."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import BLOOM, TRANSFORMERS
from proofs.systems._shared import POST, PRE, config, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-bloom",
    area="systems",
    title="BLOOM",
    statement=(
        "BLOOM is pre-norm; with its flag for a residual after the norm it adds "
        "the branch to the normed stream, and no identity path is left."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of BLOOM with its defaults is pre-norm.", "bloom", PRE, POST),
        layer(
            "With the flag a block is $c + F(c)$, $c = N(x)$.",
            "bloom-normed-residual",
            "u = N1(x); h = u + A(u); c = N2(h); c + F(c)",
            PRE,
        ),
        default(
            "The flag is off by default.",
            "BloomConfig",
            "apply_residual_connection_post_layernorm",
            "0",
            config("BloomConfig", apply_residual_connection_post_layernorm=True),
        ),
    ),
    sources=(
        BLOOM("", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
)
