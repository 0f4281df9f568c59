"""Pre-norm and post-norm are different functions, for every sublayer."""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Diag, Reciprocal
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import COURSE, INTERVIEW
from proofs.placements.post_norm_null_vectors import theorem as post_norm_null_vectors
from proofs.setting import EPS_ZERO, block_jacobian, gain, one, x

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-not-interchangeable",
    area="documents",
    title="Not interchangeable",
    statement=(
        "Pre-norm and post-norm are not interchangeable, and the choice is "
        "not one of style: with the same weights they compute different "
        "things."
    ),
    verdict=Verdict.PROVED,
    uses=(post_norm_null_vectors,),
    steps=(
        Step(
            (
                r"Every post-norm block has $\gamma^{-\top}J = 0$, so that "
                r"$\gamma^{-\top}Jx = 0$."
            ),
            "the norm is the last operation",
            Identity(
                claim=lambda J: (one.T * Diag(Reciprocal(gain)) * J, sp.ZeroMatrix(1, d)),
                of=block_jacobian("post"),
                instead=block_jacobian("pre"),
            ),
        ),
        Step(
            (
                r"Every pre-norm block has $Jx = x$ at $\epsilon = 0$: where "
                r"$\gamma^{-\top}x \ne 0$ it is no post-norm block of any sublayer."
            ),
            "the norm does not see a scale",
            Identity(
                claim=lambda J: (J * x, x),
                of=block_jacobian("pre"),
                instead=block_jacobian("post"),
                assuming=(EPS_ZERO,),
            ),
        ),
    ),
    sources=(
        INTERVIEW("first paragraph, and the short summary", seen="text"),
        COURSE("introduction, and comparison", seen="text"),
    ),
    assumptions=(EPS_ZERO,),
)
