"""Pre-norm ensures nothing: its Jacobian can double with every block."""

from __future__ import annotations

import derive
from derive.proof import Cited, Counterexample, Step, Theorem, Verdict
from proofs.bibliography import COURSE, XIONG
from proofs.documents._shared import BARE, DOUBLING, W, stretched
from proofs.setting import x

__all__ = ["theorem"]

theorem = Theorem(
    id="course-smoother-optimization",
    area="documents",
    title="A smoother optimization",
    statement=(
        "By norming in front of the sublayers pre-norm ensures a smoother "
        "optimization, at dozens or hundreds of layers."
    ),
    verdict=Verdict.OPEN,
    steps=(
        Step(
            (
                "It does not ensure small Jacobians: with $F(z) = Wz$, W a "
                "projection, J doubles a vector; 24 blocks give 16777216."
            ),
            "a fixed point x, so that J is the same in every block, and symmetry of J",
            Counterexample(
                claim=lambda J: (stretched(J), 1),
                of=lambda: derive.jacobian(x + W * BARE(x), x),
                instead=lambda: derive.jacobian(x - W * BARE(x), x),
                relation=">",
                stated=("16777216", "1"),
                width=4,
                at=DOUBLING,
            ),
        ),
        Step(
            "Pre-norm's loss is reported to fall faster at the start.",
            "Xiong and others, 2020, section 4.2",
            Cited(
                "Pre-norm converges faster than post-norm on BERT pre-training.",
                XIONG("section 4.2", seen="text"),
            ),
        ),
    ),
    sources=(COURSE("conclusion", seen="text"),),
    remark=(
        "Such weights are not those of the start of training, where gradients "
        "grow as $1 + L/2$. Whether training is smoother is measured, not "
        "proved."
    ),
)
