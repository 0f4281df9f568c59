"""Consistent activation scales: kept by post-norm, not by pre-norm's stream."""

from __future__ import annotations

from derive.proof import Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import COURSE
from proofs.depth._shared import WIDE
from proofs.documents._shared import law

__all__ = ["theorem"]


theorem = Theorem(
    id="course-consistent-scales",
    area="documents",
    title="Consistent activation scales",
    statement="Layer normalization helps to maintain consistent activation scales.",
    verdict=Verdict.CONDITIONAL,
    steps=(
        Step(
            "In post-norm the mean square of the stream is the same after every block.",
            "the norm sets it",
            Gaussian(
                claim=lambda found: (found.solution.forward, 1),
                of=law("post"),
                instead=law("pre"),
                name=r"\mathbb{E}|x_L|^2/d",
            ),
        ),
        Step(
            "In pre-norm it grows with every block, to $1 + L/2$ with relu sublayers.",
            "nothing norms the stream",
            Gaussian(
                claim=lambda found: (found.solution.forward, 1 + L / 2),
                of=law("pre"),
                instead=law("post"),
                name=r"\mathbb{E}|x_L|^2/d",
            ),
        ),
    ),
    sources=(COURSE("introduction", seen="text"),),
    assumptions=(WIDE,),
    holds_when=(
        "The norm is applied to the stream itself, or what is meant is the input of the sublayers."
    ),
    fails_when="The norm is in the branch, and what is meant is the stream.",
)
