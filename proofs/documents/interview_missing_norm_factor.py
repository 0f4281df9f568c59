"""I + dSublayer/dx lacks the norm's Jacobian, unless Sublayer means both."""

from __future__ import annotations

import derive
from derive.calculus.atoms import Diag, Inner, Vector
from derive.calculus.maps import JacobianOf
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import INTERVIEW
from proofs.placements.missing_norm_jacobian import theorem as missing_norm_jacobian
from proofs.setting import F, block_jacobian, c, gain, identity, one, s, x

__all__ = ["theorem"]

_exact, _w = derive.LayerNorm(gain=False, bias=False, eps=0), Vector("w", d)


theorem = Theorem(
    id="interview-missing-norm-factor",
    area="documents",
    title="The Jacobian of a pre-norm block",
    statement=(
        r"For $x_{l+1} = x_l + \mathrm{Sublayer}(\mathrm{LayerNorm}(x_l))$ the "
        r"derivative is $I + \partial\mathrm{Sublayer}/\partial x$."
    ),
    verdict=Verdict.CONDITIONAL,
    uses=(missing_norm_jacobian,),
    steps=(
        Step(
            (
                r"The derivative is $I + D\!F(N(x))\,J_N(x)$: the formula holds for "
                r"the composite $F\circ N$."
            ),
            "chain rule",
            Identity(
                claim=lambda J: (
                    J,
                    identity
                    + JacobianOf(F, derive.LayerNorm()(x))
                    * (1 / s * Diag(gain) * (identity - one * one.T / d - c * c.T / (d * s**2))),
                ),
                of=block_jacobian("pre"),
                instead=block_jacobian("post"),
            ),
        ),
        Step(
            (
                "For the sublayer alone it fails: with $F(z) = z$ at $(10, -10, 0)$ "
                "the formula gives $2I$, where the last diagonal entry is 1.08."
            ),
            r"$\epsilon = 0$, $J_N$ is nearly 0 there",
            Counterexample(
                claim=lambda y: (Inner(_w, derive.jacobian(y, x) * _w), 2 * Inner(_w, _w)),
                of=lambda: x + _exact(x),
                instead=lambda: x + x,
                relation="<",
                stated=("1.08", "2"),
                width=3,
                at={"x": (10, -10, 0), "w": (0, 0, 1)},
            ),
        ),
    ),
    sources=(INTERVIEW("paragraph on pre-norm", seen="text"),),
    holds_when="Sublayer stands for the sublayer together with the norm in front of it.",
    fails_when=(
        "Sublayer is what the block's equation calls so: then the factor $J_N "
        "= O(1/s)$ is missing, which damps the branch where the stream is "
        "large."
    ),
)
