"""The residual path of pre-norm is clean up to the final norm, and that one scales it."""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.atoms import Diag, Reciprocal, Vector
from derive.calculus.maps import JacobianOf
from derive.proof import Gaussian, Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import COURSE
from proofs.depth._shared import WIDE
from proofs.depth.final_norm import theorem as final_norm
from proofs.documents._shared import law
from proofs.setting import F, block_jacobian, c, gain, identity, one, s, x

__all__ = ["theorem"]


theorem = Theorem(
    id="course-clean-path",
    area="documents",
    title="A clean residual path",
    statement="In pre-norm the gradient path through the residual is not scaled by the norms.",
    verdict=Verdict.CONDITIONAL,
    uses=(final_norm,),
    steps=(
        Step(
            (
                r"Of one block that is so: what is left of $J$ without $D\!F\,J_N$ is "
                "the identity."
            ),
            "sum rule",
            Identity(
                claim=lambda J: (
                    J
                    - JacobianOf(F, derive.LayerNorm()(x))
                    * (1 / s * Diag(gain) * (identity - one * one.T / d - c * c.T / (d * s**2))),
                    identity,
                ),
                of=block_jacobian("pre"),
                instead=block_jacobian("post"),
            ),
        ),
        Step(
            (
                "With the final norm behind the last block, every path crosses a "
                r"norm: $\gamma^{-\top}J = 0$ again."
            ),
            "the final norm's own Jacobian",
            Identity(
                claim=lambda J: (
                    one.T * Diag(Reciprocal(Vector("gain_2", d))) * J,
                    sp.ZeroMatrix(1, d),
                ),
                of=block_jacobian("pre-final"),
                instead=block_jacobian("pre"),
            ),
        ),
        Step(
            (
                "It divides the squared gradient by the variance that the stream has "
                "reached: over the whole stack $1 + L/2$ and the final norm cancel."
            ),
            "relu sublayers",
            Gaussian(
                claim=lambda found: (found.solution.gradient / found.solution.forward, 1),
                of=law("pre"),
                instead=law("post", "ffn:gelu"),
                name=r"\mathbb{E}|g_0|^2/(v_L\,\mathbb{E}|g_L|^2)",
            ),
        ),
    ),
    sources=(COURSE("characteristics of pre-LN, improved stability", seen="text"),),
    assumptions=(WIDE,),
    holds_when=(
        "What is meant is the path through the blocks, without the final norm "
        "that pre-norm models have."
    ),
    fails_when=(
        "What is meant is the gradient of the loss: it goes through the final "
        "norm first. The paths through branches cross one norm each besides."
    ),
)
