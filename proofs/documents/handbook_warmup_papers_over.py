"""The original's schedule: linear to 7e-4 at step 4000, then the inverse square root."""

from __future__ import annotations

import sympy as sp

from derive.proof import Cited, Exact, Identity, Step, Theorem, Verdict
from proofs.bibliography import HANDBOOK, VASWANI
from proofs.depth.update_amplification import theorem as update_amplification

__all__ = ["theorem"]

_w = sp.Symbol("w", positive=True)


theorem = Theorem(
    id="handbook-warmup-papers-over",
    area="documents",
    title="The schedule of the original",
    statement=(
        "The authors used a warm-up schedule; such practices hide the "
        "stability issues of post-norm without removing them."
    ),
    verdict=Verdict.OPEN,
    uses=(update_amplification,),
    steps=(
        Step(
            (
                r"The two branches of the schedule $d^{-1/2}\min(t^{-1/2}, "
                r"t\,w^{-3/2})$ meet at the end $t = w$ of the warm-up."
            ),
            "algebra",
            Identity(
                claim=lambda power: (_w * _w**power, 1 / sp.sqrt(_w)),
                of=lambda: sp.Rational(-3, 2),
                instead=lambda: sp.Integer(-1),
            ),
        ),
        Step(
            (
                r"At $d = 512$, $w = 4000$ the largest rate is $1/(640\sqrt 5) = "
                r"6.99\cdot 10^{-4}$."
            ),
            "algebra",
            Exact(
                claim=lambda w: (1 / sp.sqrt(512 * w), 1 / (640 * sp.sqrt(5))),
                of=lambda: sp.Integer(4000),
                instead=lambda: sp.Integer(8000),
                sizes="d=512, 4000 steps",
            ),
        ),
        Step(
            "The original used 4000 steps.",
            "Vaswani and others, 2017, section 5.3",
            Cited(
                "The first 4000 steps raise the rate linearly.",
                VASWANI("section 5.3", seen="memory"),
            ),
        ),
    ),
    sources=(HANDBOOK("paragraph 3", seen="text"),),
    remark=(
        "That the schedule was used is a fact. Whether it hides or cures is "
        "the question of interview-question-warmup: a schedule changes no "
        "Jacobian, only how far a step goes."
    ),
)
