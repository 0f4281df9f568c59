"""Post-norm's gradients pass the norm after the addition; pre-norm's skip bypasses it."""

from __future__ import annotations

import derive
from derive.calculus.atoms import Diag
from derive.calculus.maps import JacobianOf
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import COURSE, INTERVIEW
from proofs.documents._shared import centred, root
from proofs.setting import F, block_jacobian, c, gain, identity, one, s, x

__all__ = ["theorem"]

_u = x + F(x)


theorem = Theorem(
    id="course-gradient-flow-row",
    area="documents",
    title="Where gradients meet the norm",
    statement=(
        "In post-norm gradients pass through the norm after the addition, in "
        "pre-norm those on the skip bypass it."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            (
                r"Post-norm: $J = J_N(u)\,(I + D\!F(x))$ with $u = x + F(x)$; both "
                "paths cross $J_N$."
            ),
            "chain rule",
            Identity(
                claim=lambda J: (
                    J,
                    1
                    / root(_u)
                    * Diag(gain)
                    * (
                        identity
                        - one * one.T / d
                        - centred(_u) * centred(_u).T / (d * root(_u) ** 2)
                    )
                    * (identity + JacobianOf(F, x)),
                ),
                of=block_jacobian("post"),
                instead=block_jacobian("pre"),
            ),
        ),
        Step(
            r"Pre-norm: $J = I + D\!F(N(x))\,J_N(x)$; the skip crosses none.",
            "sum rule and chain rule",
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
    ),
    sources=(
        COURSE("comparison table, gradient flow", seen="text"),
        INTERVIEW("table, residual path", seen="text"),
    ),
)
