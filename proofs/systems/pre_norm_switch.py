"""torch.nn with its switch to pre-norm on: the norm at the other place."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import PYTORCH
from proofs.systems._shared import DECODER_POST, DECODER_PRE, POST, PRE, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-pre-norm-switch",
    area="systems",
    title="The switch of torch.nn",
    statement="With their argument for it (norm first) the layers of torch.nn are pre-norm.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("An encoder layer is pre-norm then.", "torch-pre", PRE, POST),
        layer("So is a decoder layer.", "torch-decoder-pre", DECODER_PRE, DECODER_POST),
    ),
    sources=(PYTORCH("its layer and its signature", seen="code"),),
)
