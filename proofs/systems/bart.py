"""BART: post-norm, in encoder and decoder."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import BART, TRANSFORMERS
from proofs.systems._shared import DECODER_POST, DECODER_PRE, POST, PRE, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-bart",
    area="systems",
    title="BART",
    statement="BART is post-norm, with 12 layers on either side in its default configuration.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("An encoder layer is post-norm.", "bart-encoder", POST, PRE),
        layer("A decoder layer is post-norm.", "bart-decoder", DECODER_POST, DECODER_PRE),
        default(
            "The encoder has 12 layers.", "BartConfig", "encoder_layers", "12", "BlenderbotConfig"
        ),
        default(
            "The decoder has 12 layers.", "BartConfig", "decoder_layers", "12", "BlenderbotConfig"
        ),
    ),
    sources=(
        BART("section 2.1", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
)
