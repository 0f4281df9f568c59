"""Whether post-norm needs a warm-up: what was reported."""

from __future__ import annotations

import sympy as sp

from derive.proof import Cited, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import ADMIN, COURSE, INTERVIEW, XIONG
from proofs.depth._shared import WIDE
from proofs.depth.last_layer_gradient import theorem as last_layer_gradient
from proofs.depth.update_amplification import theorem as update_amplification
from proofs.documents._shared import law

__all__ = ["theorem"]

_v = sp.Symbol("v", positive=True)


theorem = Theorem(
    id="course-warmup-required",
    area="documents",
    title="Post-norm and warm-up",
    statement=(
        "Post-norm often needs a careful warm-up of the learning rate; "
        "pre-norm and post-norm do not train with the same schedule."
    ),
    verdict=Verdict.OPEN,
    uses=(
        update_amplification,
        last_layer_gradient,
    ),
    steps=(
        Step(
            r"A relative change of all weights moves post-norm's output by $\frac{2L}3$ times its "
            "square.",
            "the theorem used",
            update_amplification.steps[0].check,
        ),
        Step(
            "It moves pre-norm's by twice a harmonic number.",
            "the theorem used",
            update_amplification.steps[1].check,
        ),
        Step(
            (
                "At the last block post-norm's squared gradient does not fall with "
                "depth, pre-norm's does: their quotient is $(2/3)(1 + L/2)$."
            ),
            "both divide by the variance in front of their last norm",
            Gaussian(
                claim=lambda found: (
                    found.solution.forward / found.recursion[0].subs(_v, 1),
                    sp.Rational(2, 3) * (1 + L / 2),
                ),
                of=law("pre"),
                instead=law("res-post"),
                name=r"\mathbb{E}|g_{post}|^2/\mathbb{E}|g_{pre}|^2",
            ),
        ),
        Step(
            (
                "Post-norm without warm-up, or with a short one, did not reach the "
                "quality of post-norm with it."
            ),
            "Xiong and others, 2020, section 3.2 and 4",
            Cited(
                (
                    "On IWSLT and WMT translation post-norm depends on warm-up, and "
                    "pre-norm trains without."
                ),
                XIONG("section 3.2 and 4", seen="text"),
            ),
        ),
        Step(
            "The instability is one of updates, not of gradients.",
            "Liu and others, 2020, section 4",
            Cited(
                "Post-norm amplifies small changes of the weights in proportion to its depth.",
                ADMIN("section 4", seen="secondary"),
            ),
        ),
    ),
    sources=(
        COURSE("characteristics of post-LN, warm-up", seen="text"),
        COURSE("comparison table, warm-up", seen="text"),
        INTERVIEW("the second claim in the sentence", seen="text"),
    ),
    assumptions=(WIDE,),
    remark=(
        "A rate that suits pre-norm is too large for post-norm, in proportion to depth: a reason "
        "for the reports, not a proof of them. Steps of training are not independent changes."
    ),
)
