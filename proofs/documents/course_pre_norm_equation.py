"""Pre-norm: norm, sublayer, addition of the unmodified input."""

from __future__ import annotations

import derive
from derive.calculus.atoms import Diag
from derive.calculus.maps import JacobianOf
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import COURSE, INTERVIEW
from proofs.setting import F, block_jacobian, c, gain, identity, one, s, x

__all__ = ["theorem"]


theorem = Theorem(
    id="course-pre-norm-equation",
    area="documents",
    title="The pre-norm block",
    statement=(
        "Pre-norm norms the input of the sublayer inside the branch and adds "
        r"the unmodified input: $x + F(N(x))$, with Jacobian $I + D\!F\,J_N$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"The Jacobian is $I + D\!F(N(x))\,J_N(x)$ with LayerNorm's $J_N$.",
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
        COURSE("pre-normalization", seen="text"),
        COURSE("comparison table, placement", seen="text"),
        INTERVIEW("definition of pre-norm", seen="text"),
    ),
)
