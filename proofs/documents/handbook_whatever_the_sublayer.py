"""Stable statistics whatever the sublayer does, unless it cancels what it was given."""

from __future__ import annotations

import derive
from derive.calculus.atoms import Inner
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.bibliography import HANDBOOK
from proofs.documents._shared import root
from proofs.setting import C, F, bias, one, x

__all__ = ["theorem"]

_bare = derive.LayerNorm(gain=False, bias=False)


theorem = Theorem(
    id="handbook-whatever-the-sublayer",
    area="documents",
    title="Whatever the sublayer computes",
    statement=(
        "Whatever the sublayer computes and however the residual shifts the "
        "distribution, the last norm gives stable statistics."
    ),
    verdict=Verdict.CONDITIONAL,
    steps=(
        Step(
            "For every $F$ the mean of $N(x + F(x))$, without gain, is that of the bias.",
            "deviations sum to zero",
            Identity(
                claim=lambda y: (Inner(one, y.body.output), Inner(one, bias)),
                of=lambda: derive.LayerNorm(gain=False)(x + F(x)),
                instead=lambda: derive.RMSNorm(gain=False, bias=True)(x + F(x)),
            ),
        ),
        Step(
            (
                r"For every $F$ its mean square is $v/(v+\epsilon)$ with the variance "
                "$v$ of the sum."
            ),
            "definition of the variance",
            Identity(
                claim=lambda y: (
                    Inner(y.body.output, y.body.output) / d,
                    1 - eps / root(x + F(x)) ** 2,
                ),
                of=lambda: _bare(x + F(x)),
                instead=lambda: _bare(F(x)),
            ),
        ),
        Step(
            "A sublayer that takes the deviations away leaves a variance of 0, not of 1.",
            r"$F(z) = -(z - \mathrm{mean}\,z)$ at $x = (3, 1)$",
            Counterexample(
                claim=lambda y: (1, Inner(y.body.output, y.body.output) / d),
                of=lambda: _bare(x - C * x),
                instead=lambda: _bare(x + C * x),
                relation=">",
                stated=("1", "0"),
                at={"x": (3, 1), "eps": 1},
            ),
        ),
    ),
    sources=(HANDBOOK("paragraph after the output", seen="text"),),
    holds_when=r"The features of $x + F(x)$ differ by more than $\sqrt\epsilon$.",
    fails_when=(
        "The sublayer nearly cancels the deviations of its input; then the "
        "output is nearly the bias."
    ),
)
