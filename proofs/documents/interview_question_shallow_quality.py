"""Why post-norm is reported slightly better when shallow: what is proved, and what is not."""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.proof import Cited, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import B2T, COURSE, INTERVIEW
from proofs.depth._shared import WIDE
from proofs.depth.last_layer_gradient import theorem as last_layer_gradient
from proofs.documents._shared import law

__all__ = ["theorem"]


_v = sp.Symbol("v", positive=True)


def _share(found: Any) -> sp.Expr:
    """Return the share of the next branch in its sum with the stream, after L blocks."""
    added = found.components[0].output.subs(_v, 1)
    return added / (found.solution.forward + added)


theorem = Theorem(
    id="interview-question-shallow-quality",
    area="documents",
    title="Question: quality at shallow depth",
    statement=(
        "Asked: why do some papers report slightly better quality of "
        "post-norm at shallow depth? Answer: at small depth its stability "
        "costs little, and its late blocks count as much as its early ones, "
        "where pre-norm's count less and less; that this makes the difference "
        "in quality is open."
    ),
    verdict=Verdict.OPEN,
    uses=(last_layer_gradient,),
    steps=(
        Step(
            (
                "Proved: in post-norm every block adds the same share to its stream, "
                "$f/(1+f) = 1/3$ with relu, at any depth."
            ),
            "the stream has mean square 1 in front of every block",
            Gaussian(
                claim=lambda found: (_share(found), sp.Rational(1, 3)),
                of=law("post"),
                instead=law("pre"),
                name=r"f/(v_L + f)",
            ),
        ),
        Step(
            (
                "Proved: in pre-norm the share of the block after L others is $1/(L + "
                "3)$: the twelfth sublayer of six layers adds 1/14."
            ),
            "$f/(v_L + f)$ with $v_L = 1 + L/2$",
            Gaussian(
                claim=lambda found: (_share(found), 1 / (L + 3)),
                of=law("pre"),
                instead=law("post"),
                name=r"f/(v_L + f)",
            ),
        ),
        Step(
            (
                "Proved: at six layers pre-norm's squared gradients differ by a "
                "factor of 7 from first to last, post-norm's not at all: what "
                "pre-norm gains at depth there is little of."
            ),
            "$1 + L/2$ at 12 sublayers",
            Gaussian(
                claim=lambda found: (found.solution.gradient.subs(L, 12), 7),
                of=law("pre"),
                instead=law("post"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_{12}|^2",
            ),
        ),
        Step(
            "Supported: the observation, and an explanation of this kind.",
            "Takase and others, 2022, abstract",
            Cited(
                (
                    "Post-norm keeps larger gradient norms in the higher layers, which "
                    "may lead to effective training."
                ),
                B2T("abstract", seen="text"),
            ),
        ),
    ),
    sources=(
        INTERVIEW("third follow-up question", seen="text"),
        COURSE("comparison table, peak performance", seen="text"),
    ),
    assumptions=(WIDE,),
    remark=(
        "Open: that shares of a stream or sizes of gradients decide the "
        "quality after training. No theorem links them, and the reports are "
        "few."
    ),
)
