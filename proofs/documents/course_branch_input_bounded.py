"""Pre-norm bounds what enters the sublayers; the stream itself it does not."""

from __future__ import annotations

from typing import Any

import sympy as sp

import derive
from derive.calculus.atoms import Inner
from derive.proof import (
    AtMost,
    Bound,
    Gaussian,
    MaxAbs,
    NormFact,
    SpectralNorm,
    Step,
    Theorem,
    Verdict,
)
from derive.symbols import L, d, eps
from proofs.bibliography import COURSE
from proofs.depth._shared import WIDE
from proofs.documents._shared import law
from proofs.norms.norm_output_length import theorem as norm_output_length
from proofs.setting import bias, block, derived, gain, norm, x

__all__ = ["theorem"]


def _square(D: Any) -> sp.Expr:
    xhat = derived("xhat", D)
    return Inner(xhat, xhat)


theorem = Theorem(
    id="course-branch-input-bounded",
    area="documents",
    title="What enters the sublayers of pre-norm",
    statement=(
        "Pre-norm keeps the activations that enter the sublayers from "
        r"exploding: $\lVert N(x)\rVert_2 \le \lVert\gamma\rVert_\infty\sqrt d "
        r"+ \lVert\beta\rVert_2$."
    ),
    verdict=Verdict.PROVED,
    uses=(norm_output_length,),
    steps=(
        Step(
            r"The normed vector has $\lVert\hat x\rVert^2 \le d$.",
            r"$d - \lVert\hat x\rVert^2 = d\epsilon/s^2 \ge 0$",
            Bound(
                claim=lambda D: (_square(D), d),
                of=norm("layernorm"),
                instead=lambda: derive.derivation(derive.LayerNorm(eps=0)(x), x),
                facts=lambda D: [AtMost(_square(D), d, d * eps / derived("s", D) ** 2)],
            ),
        ),
        Step(
            "So gain and bias bound what the sublayer gets.",
            "triangle inequality, norm of a diagonal",
            Bound(
                claim=lambda y: (
                    SpectralNorm(y.body.output if hasattr(y, "body") else y),
                    MaxAbs(gain) * sp.sqrt(d) + SpectralNorm(bias),
                ),
                of=lambda: derive.LayerNorm()(x),
                instead=lambda: block("pre"),
                facts=lambda y: [
                    NormFact(y.body.lets[-1], sp.sqrt(d), "course-branch-input-bounded, first step")
                ],
            ),
        ),
        Step(
            (
                "The stream has no bound of this kind: its mean square is $1 + L/2$ "
                "with relu sublayers."
            ),
            "every branch adds 1/2",
            Gaussian(
                claim=lambda found: (found.solution.forward, 1 + L / 2),
                of=law("pre"),
                instead=law("post"),
                name=r"\mathbb{E}|x_L|^2/d",
            ),
        ),
    ),
    sources=(COURSE("characteristics of pre-LN, improved stability", seen="text"),),
    assumptions=(WIDE,),
)
