"""Six layers in the encoder, six in the decoder."""

from __future__ import annotations

from derive.proof import Observed, Step, Theorem, Verdict
from proofs.bibliography import HANDBOOK, INTERVIEW, PYTORCH, VASWANI
from proofs.systems._shared import signature

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
        Step(
            "torch's Transformer has six encoder layers by default.",
            "the signature of the installed module",
            Observed(
                claim=lambda found: found["num_encoder_layers"],
                of=signature("Transformer"),
                instead=lambda: {"num_encoder_layers": 12},
                stated="6",
                quantity="encoder layers of torch.nn.Transformer by default",
            ),
        ),
        Step(
            "torch's Transformer has six decoder layers by default.",
            "the signature of the installed module",
            Observed(
                claim=lambda found: found["num_decoder_layers"],
                of=signature("Transformer"),
                instead=lambda: {"num_decoder_layers": 12},
                stated="6",
                quantity="decoder layers of torch.nn.Transformer by default",
            ),
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
