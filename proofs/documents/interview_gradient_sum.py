"""Bounded by a sum of sublayer Jacobians? No: by a product, and that is attained."""

from __future__ import annotations

import derive
from derive.calculus.atoms import Inner, Matrix
from derive.proof import Bound, Counterexample, Identity, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import INTERVIEW
from proofs.documents._shared import BARE, DOUBLING, W, stretched, w
from proofs.placements.gradient_bounded_by_sum import theorem as gradient_bounded_by_sum
from proofs.placements.product_bound import theorem as product_bound
from proofs.setting import identity, x

__all__ = ["theorem"]

_A1, _A2 = Matrix("A_1", d, d), Matrix("A_2", d, d)


theorem = Theorem(
    id="interview-gradient-sum",
    area="documents",
    title="Bounded by a sum, not a product",
    statement=(
        "The gradient norm of pre-norm stays bounded by a sum of sublayer "
        "Jacobians, not by a product."
    ),
    verdict=Verdict.REFUTED,
    uses=(
        gradient_bounded_by_sum,
        product_bound,
    ),
    steps=(
        Step(
            (
                "24 blocks whose branch Jacobians have norm 1 each stretch a vector "
                "16777216 times; the sum of the norms is 24."
            ),
            "a projection W that keeps w, a fixed point x, and symmetry of J",
            Counterexample(
                claim=lambda J: (
                    stretched(J),
                    24 * Inner(w, (J - identity) * w) / Inner(w, w),
                ),
                of=lambda: derive.jacobian(x + W * BARE(x), x),
                instead=lambda: derive.jacobian(BARE(x) + W * BARE(x) / 2, x),
                relation=">",
                stated=("16777216", "24"),
                width=4,
                at=DOUBLING,
            ),
        ),
        Step(
            (
                r"What holds is a product: $\lVert(I+A_2)(I+A_1)\rVert \le (1+\lVert "
                r"A_2\rVert)(1+\lVert A_1\rVert)$, and so on for more blocks."
            ),
            "submultiplicativity, triangle inequality",
            Bound(
                claim=lambda stack: (
                    SpectralNorm(stack),
                    (1 + SpectralNorm(_A2)) * (1 + SpectralNorm(_A1)),
                ),
                of=lambda: (identity + _A2) * (identity + _A1),
                instead=lambda: (identity + 3 * _A2) * (identity + 3 * _A1),
            ),
        ),
        Step(
            (
                "A sum there is, of total derivatives: $J_2J_1 = I + A_1 + A_2J_1$, "
                "where $A_2J_1$ holds the product."
            ),
            "the product multiplied out",
            Identity(
                claim=lambda stack: (stack, identity + _A1 + _A2 * (identity + _A1)),
                of=lambda: (identity + _A2) * (identity + _A1),
                instead=lambda: _A2 * (identity + _A1),
            ),
        ),
    ),
    sources=(INTERVIEW("paragraph on pre-norm", seen="text"),),
    holds_when=(
        "The summands are total derivatives of the sublayers' outputs by the "
        "input, which contain all products."
    ),
    fails_when="The summands are the sublayers' own Jacobians, as the sentence says.",
)
