"""Pre-norm's identity path, at every layer and over all of them."""

from __future__ import annotations

import derive
from derive.calculus.atoms import Diag, Matrix
from derive.calculus.maps import JacobianOf
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import INTERVIEW
from proofs.placements.pre_norm_paths import theorem as pre_norm_paths
from proofs.setting import F, block_jacobian, c, gain, identity, one, s, x

__all__ = ["theorem"]

_A1, _A2 = Matrix("A_1", d, d), Matrix("A_2", d, d)


theorem = Theorem(
    id="interview-identity-path",
    area="documents",
    title="The identity path of pre-norm",
    statement=(
        "In pre-norm the residual is left alone: gradients have an unscaled "
        "identity path at every layer."
    ),
    verdict=Verdict.PROVED,
    uses=(pre_norm_paths,),
    steps=(
        Step(
            r"Of one block: $J = I + D\!F(N(x))\,J_N(x)$.",
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
        Step(
            (
                "Of two blocks with Jacobians $I + A_1$, $I + A_2$ the identity "
                "remains, beside $A_1$, $A_2$ and $A_2A_1$."
            ),
            "the product multiplied out",
            Identity(
                claim=lambda stack: (stack, identity + _A1 + _A2 + _A2 * _A1),
                of=lambda: (identity + _A2) * (identity + _A1),
                instead=lambda: _A2 * (identity + _A1),
            ),
        ),
    ),
    sources=(
        INTERVIEW("paragraph on the gradient highway", seen="text"),
        INTERVIEW("table, residual path", seen="text"),
    ),
    remark=(
        "An identity among the summands is no bound from below or above: the "
        "others may cancel it or outgrow it, see "
        "interview-well-behaved-at-any-depth."
    ),
)
