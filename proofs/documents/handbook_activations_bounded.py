"""Post-norm bounds the activations, for all weights and every depth."""

from __future__ import annotations

from typing import Any

import sympy as sp

import derive
from derive.calculus.atoms import Inner
from derive.proof import AtMost, Bound, MaxAbs, NormFact, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.bibliography import HANDBOOK
from proofs.norms.norm_output_length import theorem as norm_output_length
from proofs.setting import F, bias, block, derived, gain, x

__all__ = ["theorem"]

_half = derive.LayerNorm(eps=0)(x + F(x))


def _square(D: Any) -> sp.Expr:
    xhat = derived("xhat", D)
    return Inner(xhat, xhat)


def _output(y: Any) -> sp.Basic:
    return y.body.output if hasattr(y, "body") else y


theorem = Theorem(
    id="handbook-activations-bounded",
    area="documents",
    title="Activations cannot grow in post-norm",
    statement=(
        r"In a post-norm stack $\lVert x_l\rVert_2 \le "
        r"\lVert\gamma\rVert_\infty\sqrt d + \lVert\beta\rVert_2$ for every "
        "block, whatever the sublayers."
    ),
    verdict=Verdict.PROVED,
    uses=(norm_output_length,),
    steps=(
        Step(
            r"The normed vector has $\lVert\hat x\rVert^2 \le d$.",
            r"$d - \lVert\hat x\rVert^2 = d\epsilon/s^2 \ge 0$",
            Bound(
                claim=lambda D: (_square(D), d),
                of=lambda: derive.derivation(block("post"), x),
                instead=lambda: derive.derivation(_half, x),
                facts=lambda D: [AtMost(_square(D), d, d * eps / derived("s", D) ** 2)],
            ),
        ),
        Step(
            "So gain and bias bound the output.",
            "triangle inequality, norm of a diagonal",
            Bound(
                claim=lambda y: (
                    SpectralNorm(_output(y)),
                    MaxAbs(gain) * sp.sqrt(d) + SpectralNorm(bias),
                ),
                of=lambda: block("post"),
                instead=lambda: block("pre"),
                facts=lambda y: [
                    NormFact(
                        y.body.lets[-1], sp.sqrt(d), "handbook-activations-bounded, first step"
                    )
                ],
            ),
        ),
    ),
    sources=(HANDBOOK("last paragraph", seen="text"),),
    remark=(
        "The bound has neither the depth nor the weights of the sublayers in "
        "it. A pre-norm stream has none such."
    ),
)
