"""Swin Transformer V2: the norm behind the sublayer, inside the branch."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import SWIN2, TRANSFORMERS
from proofs.systems._shared import PRE, RES_POST, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-swin-v2",
    area="systems",
    title="Swin Transformer V2",
    statement=(
        "Swin Transformer V2 norms what its sublayers return: $x + N(F(x))$, "
        "which its paper calls residual post-norm."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(layer("A layer of Swin V2 has this equation.", "swinv2", RES_POST, PRE),),
    sources=(
        SWIN2("section 3.2", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark="In spite of the name it is no post-norm: its residual is the identity.",
)
