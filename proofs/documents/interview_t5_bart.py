"""T5 is pre-norm; BART is post-norm."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import INTERVIEW, T5, TRANSFORMERS
from proofs.systems._shared import DECODER_POST, DECODER_PRE, POST, PRE, default, layer

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-t5-bart",
    area="documents",
    title="T5 and BART",
    statement=(
        "T5, BART and early translation models often used post-norm with "
        "elaborate warm-up; they worked since they were not deep."
    ),
    verdict=Verdict.REFUTED,
    steps=(
        layer("An encoder layer of T5 is pre-norm.", "t5-encoder", PRE, POST),
        layer("A decoder layer of T5 is pre-norm.", "t5-decoder", DECODER_PRE, DECODER_POST),
        layer("A layer of BART is post-norm.", "bart-encoder", POST, PRE),
        layer("So is one of Marian, an early translation model.", "marian", POST, PRE),
        default(
            "BART has 12 layers on either side by default.",
            "BartConfig",
            "encoder_layers",
            "12",
            "BlenderbotConfig",
        ),
    ),
    sources=(
        INTERVIEW("when it does not apply", seen="text"),
        TRANSFORMERS("the layers named", seen="code"),
        T5("section 2.1", seen="memory"),
    ),
    holds_when="T5 is left out. BART's depth of 12 and 12 is modest.",
    fails_when=(
        "T5 is meant: its norm, RMSNorm, is in front of every sublayer, and "
        "its 11B model has 24 layers on either side."
    ),
)
