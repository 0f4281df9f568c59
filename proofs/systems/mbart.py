"""mBART: BART with its norms moved in front of the sublayers."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import MBART, TRANSFORMERS
from proofs.systems._shared import DECODER_POST, DECODER_PRE, POST, PRE, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-mbart",
    area="systems",
    title="mBART",
    statement=(
        "mBART and Pegasus are pre-norm, unlike BART, whose equations they share otherwise."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("An encoder layer of mBART is pre-norm.", "mbart", PRE, POST),
        layer("A decoder layer of mBART is pre-norm.", "mbart-decoder", DECODER_PRE, DECODER_POST),
        layer("An encoder layer of Pegasus is pre-norm.", "pegasus", PRE, POST),
    ),
    sources=(
        MBART("section 2.2", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
)
