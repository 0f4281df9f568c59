"""Large initial gradients of post-norm: true of the last blocks only, and for another reason."""

from __future__ import annotations

import sympy as sp

from derive.proof import Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import COURSE, XIONG
from proofs.depth._shared import WIDE
from proofs.depth.last_layer_gradient import theorem as last_layer_gradient
from proofs.documents._shared import law

__all__ = ["theorem"]

_v = sp.Symbol("v", positive=True)


theorem = Theorem(
    id="course-initial-gradients-large",
    area="documents",
    title="Why initial gradients are large",
    statement=(
        "Without warm-up post-norm's initial gradients can be excessively "
        "large because its additions are not normed."
    ),
    verdict=Verdict.REFUTED,
    uses=(last_layer_gradient,),
    steps=(
        Step(
            "The additions are normed: every block passes on mean square 1, at any depth.",
            "the norm sets the variance of what the next block adds to",
            Gaussian(
                claim=lambda found: (found.recursion[0], 1),
                of=law("post"),
                instead=law("pre"),
                name=r"v_l",
            ),
        ),
        Step(
            (
                r"Nor do gradients grow towards the input: $\mathbb E|g_0|^2 = \mathbb "
                "E|g_L|^2$."
            ),
            "relu sublayers",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("post"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            (
                "Against pre-norm's, the squared gradients of the last block are "
                "$(2/3)(1 + L/2)$ times as large: 8.67 at 24 sublayers."
            ),
            "pre-norm's are divided by a stream that has grown",
            Gaussian(
                claim=lambda found: (
                    (found.solution.forward / found.recursion[0].subs(_v, 1)).subs(L, 24),
                    sp.Rational(26, 3),
                ),
                of=law("pre"),
                instead=law("res-post"),
                name=r"\mathbb{E}|g_{post}|^2/\mathbb{E}|g_{pre}|^2",
            ),
        ),
    ),
    sources=(
        COURSE("characteristics of post-LN, warm-up", seen="text"),
        XIONG("theorem 1", seen="text"),
    ),
    assumptions=(WIDE,),
    holds_when=(
        "Large means large against pre-norm's at the same depth; the reason "
        "is that pre-norm's shrink."
    ),
    fails_when=(
        "Large means growing with depth, or the cause is meant: no addition "
        "is left without its norm."
    ),
)
