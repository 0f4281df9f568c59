"""Pre-norm ensures nothing: its Jacobian can double with every block."""

from __future__ import annotations

import derive
from derive.calculus.atoms import Inner, Matrix, Vector
from derive.proof import Cited, Counterexample, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import COURSE, XIONG
from proofs.setting import x

__all__ = ["theorem"]

_W, _w = Matrix("W", d, d), Vector("w", d)
_exact = derive.LayerNorm(gain=False, bias=False, eps=0)
_half = "1/2"
_AT = {
    "W": [
        [_half, 0, "-1/2", 0],
        [0, _half, 0, "-1/2"],
        ["-1/2", 0, _half, 0],
        [0, "-1/2", 0, _half],
    ],
    "x": (1, -1, 1, -1),
    "w": (1, 0, -1, 0),
}


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
                claim=lambda J: ((Inner(_w, J * _w) / Inner(_w, _w)) ** 24, 1),
                of=lambda: derive.jacobian(x + _W * _exact(x), x),
                instead=lambda: derive.jacobian(x - _W * _exact(x), x),
                relation=">",
                stated=("16777216", "1"),
                width=4,
                at=_AT,
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
