"""The 2017 Transformer as torch.nn has it: post-norm, six layers on either side."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import PYTORCH, VASWANI
from proofs.systems._shared import (
    DECODER_POST,
    DECODER_PRE,
    POST,
    PRE,
    layer,
    module_default,
)

__all__ = ["theorem"]

theorem = Theorem(
    id="system-original-transformer",
    area="systems",
    title="The 2017 Transformer",
    statement=(
        "The original Transformer puts the norm after the addition, in encoder "
        "and decoder, and has six layers of each."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("An encoder layer of torch with its defaults is post-norm.", "torch-post", POST, PRE),
        layer(
            "So is a decoder layer, with three norms.",
            "torch-decoder-post",
            DECODER_POST,
            DECODER_PRE,
        ),
        module_default(
            "The encoder has six layers.",
            "Transformer",
            "num_encoder_layers",
            "6",
            12,
            "encoder layers of torch.nn.Transformer by default",
        ),
        module_default(
            "The decoder has six layers.",
            "Transformer",
            "num_decoder_layers",
            "6",
            12,
            "decoder layers of torch.nn.Transformer by default",
        ),
        module_default(
            "Its switch to pre-norm is off by default.",
            "TransformerEncoderLayer",
            "norm_first",
            "0",
            1,
            "whether TransformerEncoderLayer is pre-norm by default",
        ),
    ),
    sources=(
        VASWANI("section 3.1 and figure 1", seen="secondary"),
        PYTORCH("its layer and its signature", seen="code"),
    ),
    remark=(
        "What is observed is torch's account of the paper. torch puts one more "
        "norm at the end of both stacks, which the paper does not mention."
    ),
)
