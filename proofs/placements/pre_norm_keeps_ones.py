r"""A pre-norm stack with LayerNorm never kills the direction 1: J 1 = 1 for all weights and depths.

So |dx_L/dx_0| >= 1 in the spectral norm. The final norm of a model kills exactly this direction, so
that the gradient of the loss has no such guarantee.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.atoms import Matrix
from derive.proof import Bound, Identity, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import d
from proofs.setting import C, block_jacobian, identity, one, x

__all__ = ["theorem"]

K, M = Matrix("K", d, d), Matrix("M", d, d)


def _two(last: str) -> sp.Basic:
    """Return the Jacobian of two blocks, the second of the given placement."""
    first = derive.block("x + F1(N1(x))", x=x)
    second = {"pre": first + derive.Sublayer("F_2")(derive.LayerNorm(2)(first))}
    second["post"] = derive.LayerNorm(2)(first + derive.Sublayer("F_2")(first))
    return derive.jacobian(second[last], x)


theorem = Theorem(
    id="pre-norm-keeps-ones",
    area="placements",
    title="What a pre-norm stack never kills",
    statement=(
        r"$\frac{\partial x_L}{\partial x_0}\mathbf 1 = \mathbf 1$ for every stack of pre-norm "
        r"blocks with LayerNorm, for all weights, depths and $\epsilon$; so its spectral norm is "
        r"at least 1."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"One block: $(I + D\!F\,J_N)\mathbf 1 = \mathbf 1$.",
            r"$J_N\mathbf 1 = 0$",
            Identity(
                claim=lambda J: (J * one, one),
                of=block_jacobian("pre"),
                instead=block_jacobian("post"),
            ),
        ),
        Step(
            r"Two blocks, as derived from their composition.",
            "the chain rule",
            Identity(
                claim=lambda last: (_two(last) * one, one),
                of=lambda: "pre",
                instead=lambda: "post",
            ),
        ),
        Step(
            r"Any number, by induction: if $M\mathbf 1 = \mathbf 1$, that is $M = I + KC$ for some "
            r"$K$, then $JM\mathbf 1 = \mathbf 1$.",
            r"$C\mathbf 1 = 0$",
            Identity(
                claim=lambda J: (J * (identity + K * C) * one, one),
                of=block_jacobian("pre"),
                instead=block_jacobian("post"),
            ),
        ),
        Step(
            r"So $\sqrt d = |M\mathbf 1| \le \lVert M\rVert_2\sqrt d$.",
            "definition of the spectral norm",
            Bound(
                claim=lambda v: (SpectralNorm(M * v), SpectralNorm(M) * SpectralNorm(one)),
                of=lambda: one,
                instead=lambda: 8 * one,
            ),
        ),
    ),
    remark=(
        r"With RMSNorm only $Jx = x$ holds, at $\epsilon = 0$. The final LayerNorm annihilates "
        r"$\mathbf 1$, so that the gradient of the loss has no such lower bound."
    ),
)
