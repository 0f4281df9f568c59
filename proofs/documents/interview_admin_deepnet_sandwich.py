"""Admin and DeepNet are stabilised post-norm; the sandwich is not post-norm at all."""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Diag, Reciprocal, Vector
from derive.calculus.maps import JacobianOf
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import alpha, d
from proofs.bibliography import ADMIN, COGVIEW, DEEPNET, INTERVIEW
from proofs.documents._shared import centred, root
from proofs.setting import F, block_jacobian, gain, identity, one, x

__all__ = ["theorem"]

_u = alpha * x + F(x)


theorem = Theorem(
    id="interview-admin-deepnet-sandwich",
    area="documents",
    title="Placements that stabilise post-norm",
    statement=(
        "Admin, DeepNet and sandwich norm are placements made to stabilise post-norm at depth."
    ),
    verdict=Verdict.CONDITIONAL,
    steps=(
        Step(
            (
                r"DeepNorm is post-norm with a scaled skip: $J = J_N(u)(\alpha I + "
                r"D\!F(x))$, $u = \alpha x + F(x)$."
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
                    * (alpha * identity + JacobianOf(F, x)),
                ),
                of=block_jacobian("deepnorm"),
                instead=block_jacobian("post"),
            ),
        ),
        Step(
            (
                "Admin too loses the direction that every post-norm loses: "
                r"$\gamma^{-\top}J = 0$."
            ),
            "the norm is the last operation",
            Identity(
                claim=lambda J: (one.T * Diag(Reciprocal(gain)) * J, sp.ZeroMatrix(1, d)),
                of=block_jacobian("admin"),
                instead=block_jacobian("pre"),
            ),
        ),
        Step(
            (
                "The sandwich keeps an identity on the skip: its Jacobian is I plus a "
                "branch that the second norm's gain removes."
            ),
            r"$\gamma_2^{-\top}(J - I) = 0$",
            Identity(
                claim=lambda J: (
                    one.T * Diag(Reciprocal(Vector("gain_2", d))) * (J - identity),
                    sp.ZeroMatrix(1, d),
                ),
                of=block_jacobian("sandwich"),
                instead=block_jacobian("post"),
            ),
        ),
    ),
    sources=(
        INTERVIEW("when it does not apply", seen="text"),
        ADMIN("equation of the block", seen="code"),
        DEEPNET("equation of the block", seen="code"),
        COGVIEW("", seen="memory"),
    ),
    holds_when="Admin and DeepNet are meant.",
    fails_when="The sandwich is meant: it adds a norm to the branch of pre-norm.",
)
