r"""Parallel branches add; branches in sequence have a cross term besides.

Without norms: (I + DF(y))(I + DA(x)) against I + DA(x) + DF(x); for linear branches the difference
is the product FA.
"""

from __future__ import annotations

from functools import lru_cache

import sympy as sp

import derive
from derive.calculus.atoms import Matrix
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import GPTJ
from proofs.setting import block_jacobian, identity, x
from proofs.variants._shared import DA, DF, A, layernorm, layernorm_jacobian

__all__ = ["theorem"]

M_A, M_F = Matrix("M_A", d, d), Matrix("M_F", d, d)
c = layernorm(x, "1")


@lru_cache(maxsize=4)
def linear(sequential: bool) -> sp.Basic:
    """Return the Jacobian of two linear branches, in sequence or parallel."""
    y = x + M_A * x
    return derive.jacobian(y + M_F * (y if sequential else x), x)


theorem = Theorem(
    id="parallel-no-cross-term",
    area="variants",
    title="Parallel branches have no cross term",
    statement=(
        r"A parallel layer has $J = I + (D\!A + D\!F)J_{LN}$; two blocks in sequence have "
        r"$(I + D\!F)(I + D\!A) = I + D\!A + D\!F + D\!F\,D\!A$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The parallel layer with one norm.",
            "sum rule",
            Identity(
                claim=lambda J: (J, identity + (DA(c) + DF(c)) * layernorm_jacobian(x, "1")),
                of=block_jacobian("parallel"),
                instead=block_jacobian("parallel-two-norms"),
            ),
        ),
        Step(
            "Two blocks in sequence, without a norm.",
            "chain rule",
            Identity(
                claim=lambda J: (
                    J,
                    identity + DA(x) + DF(x + A(x)) + DF(x + A(x)) * DA(x),
                ),
                of=block_jacobian("y_A = x + A(x); y_A + F(y_A)"),
                instead=block_jacobian("x + A(x) + F(x)"),
            ),
        ),
        Step(
            "For linear branches the difference is their product.",
            "multiplied out",
            Identity(
                claim=lambda J: (J - linear(False), M_F * M_A),
                of=lambda: linear(True),
                instead=lambda: linear(False),
            ),
        ),
    ),
    sources=(GPTJ("parallel attention and feed-forward", seen="code"),),
)
