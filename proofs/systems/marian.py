"""Marian: an early translation model, post-norm."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import TRANSFORMERS
from proofs.systems._shared import DECODER_POST, DECODER_PRE, POST, PRE, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-marian",
    area="systems",
    title="Marian",
    statement="The translation models of Marian are post-norm, in encoder and decoder.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("An encoder layer is post-norm.", "marian", POST, PRE),
        layer("A decoder layer is post-norm.", "marian-decoder", DECODER_POST, DECODER_PRE),
    ),
    sources=(TRANSFORMERS("its layer and its configuration", seen="code"),),
)
