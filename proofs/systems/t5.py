"""T5: pre-norm with RMSNorm, in encoder and decoder."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import T5, TRANSFORMERS
from proofs.systems._shared import DECODER_POST, DECODER_PRE, POST, PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-t5",
    area="systems",
    title="T5",
    statement=(
        "T5 is pre-norm, in its encoder and in its decoder; its norm is RMSNorm without bias."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("An encoder layer is pre-norm.", "t5-encoder", PRE, POST),
        layer("A decoder layer is pre-norm.", "t5-decoder", DECODER_PRE, DECODER_POST),
        default(
            "The default configuration, which is the small model, has 6 layers.",
            "T5Config",
            "num_layers",
            "6",
            "UMT5Config",
        ),
    ),
    sources=(
        T5("section 2.1: the norm is outside the residual path", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark=(
        "The derived Jacobian has RMSNorm in it, without mean and bias: with "
        "LayerNorm it would not agree."
    ),
)
