"""Six layers in the encoder, six in the decoder."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import HANDBOOK, INTERVIEW, PYTORCH, VASWANI
from proofs.systems._shared import module_default

__all__ = ["theorem"]


theorem = Theorem(
    id="handbook-six-layers",
    area="documents",
    title="The depth of the original",
    statement=(
        "The original Transformer has six encoder and six decoder layers, and "
        "a depth of six in that sense."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        module_default(
            "torch's Transformer has six encoder layers by default.",
            "Transformer",
            "num_encoder_layers",
            "6",
            12,
            "encoder layers of torch.nn.Transformer by default",
        ),
        module_default(
            "torch's Transformer has six decoder layers by default.",
            "Transformer",
            "num_decoder_layers",
            "6",
            12,
            "decoder layers of torch.nn.Transformer by default",
        ),
    ),
    sources=(
        HANDBOOK("paragraph 3", seen="text"),
        INTERVIEW("last paragraph of the answer", seen="text"),
        VASWANI("section 3.1", seen="secondary"),
        PYTORCH("Transformer", seen="code"),
    ),
    remark=(
        "In sublayers, which is what the laws over depth count, the encoder "
        "has 12 and the decoder 18."
    ),
)
