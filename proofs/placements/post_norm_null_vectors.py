r"""What a post-norm stack always kills, at every depth and whatever its sublayers.

The gradient that reaches a post-norm block passes J_N(u) first, whose left null vectors are
1/g (every eps) and c/g (eps = 0). So for the whole stack 1'diag(g)^-1 J = 0, with g the gain of the
last norm, and its rank over n tokens is at most n (d - 2) at eps = 0.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Diag, Inner, Matrix, Reciprocal
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.norms.layernorm_null_vectors import theorem as layernorm_null_vectors
from proofs.setting import EPS_ZERO, GAIN_NOT_ZERO, F, block_jacobian, gain, one, x

__all__ = ["theorem"]

M = Matrix("M", d, d)
u = x + F(x)
deviations = u - Inner(one, u) / d * one
over_gain = Diag(Reciprocal(gain))

theorem = Theorem(
    id="post-norm-null-vectors",
    area="placements",
    title="What a post-norm stack kills",
    statement=(
        r"$\mathbf 1^\top\mathrm{diag}(\gamma)^{-1}J = 0$ for a post-norm stack of any depth, with "
        r"$\gamma$ the gain of its last norm, whatever the sublayers; at $\epsilon = 0$ also "
        r"$c_u^\top\mathrm{diag}(\gamma)^{-1}J = 0$ with the deviations $c_u$ of the last sum, so "
        r"that the rank over $n$ tokens is at most $n(d - 2)$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(GAIN_NOT_ZERO, EPS_ZERO),
    uses=(layernorm_null_vectors,),
    steps=(
        Step(
            r"One block: $\mathbf 1^\top\mathrm{diag}(\gamma)^{-1}J_N(u)(I + D\!F(x)) = 0$.",
            "the norm of the block is its last step",
            Identity(
                claim=lambda J: (one.T * over_gain * J, 0 * x.T),
                of=block_jacobian("post"),
                instead=block_jacobian("pre"),
            ),
        ),
        Step(
            r"A stack: the same for $J M$ with any $M$, the product of all earlier blocks.",
            "a left null vector stays one under products from the right",
            Identity(
                claim=lambda J: (one.T * over_gain * J * M, 0 * x.T),
                of=block_jacobian("post"),
                instead=block_jacobian("pre"),
            ),
        ),
        Step(
            r"The second null vector at $\epsilon = 0$: $c_u^\top\mathrm{diag}(\gamma)^{-1}J = 0$.",
            r"$|c_u|^2 = ds^2$",
            Identity(
                claim=lambda J: (deviations.T * over_gain * J, 0 * x.T),
                of=block_jacobian("post"),
                instead=block_jacobian("pre"),
                assuming=(EPS_ZERO,),
            ),
        ),
        Step(
            r"The two are independent, since $\mathbf 1^\top c_u = 0$.",
            "deviations sum to zero",
            Identity(
                claim=lambda v: (Inner(one, v), sp.S.Zero),
                of=lambda: deviations,
                instead=lambda: u,
            ),
        ),
        Step(
            "With attention, which mixes tokens, the first holds for every token of the output.",
            "the norm acts on each token alone",
            Identity(
                claim=lambda J: (one.T * over_gain * J, 0 * x.T),
                of=block_jacobian("post", sublayer="attention"),
                instead=block_jacobian("pre", sublayer="attention"),
            ),
        ),
    ),
    remark="DeepNorm, Admin and every placement that ends in a norm have the same null vectors.",
)
