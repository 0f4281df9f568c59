r"""The bounds 1/sqrt(eps) of the norms are attained: at constant input, and at 0 for RMSNorm.

At x = t 1 LayerNorm's root is sqrt(eps) and J = C/sqrt(eps): it stretches every vector of mean zero
by exactly that. So 1/sqrt(eps) is its Lipschitz constant, and at eps = 0 there is none.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Vector
from derive.proof import Assumption, Identity, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.norms.layernorm_bound import theorem as layernorm_bound
from proofs.norms.rmsnorm_bound import theorem as rmsnorm_bound
from proofs.setting import GAIN_ONE, C, jacobian, one, x

__all__ = ["theorem"]

t = sp.Symbol("t", real=True)
v = Vector("v", d)
CONSTANT = Assumption(
    "constant-input", r"$x = t\mathbf 1$, and $t = 0$ for RMSNorm", ((x, t * one),)
)
ZERO = Assumption("zero-shift", r"$t = 0$ where RMSNorm is meant", ((t, 0),))

theorem = Theorem(
    id="norm-lipschitz-attained",
    area="norms",
    title="The Lipschitz constant of a norm",
    statement=(
        r"At unit gain the Lipschitz constant of LayerNorm ($d \ge 2$) and of RMSNorm is "
        r"$1/\sqrt\epsilon$: it is attained at constant input, and at 0."
    ),
    verdict=Verdict.PROVED,
    assumptions=(GAIN_ONE, CONSTANT, ZERO),
    uses=(layernorm_bound, rmsnorm_bound),
    steps=(
        Step(
            r"At $x = t\mathbf 1$, $J_{LN}Cv = \frac1{\sqrt\epsilon}Cv$ for every $v$.",
            "there are no deviations, so that the root is that of eps",
            Identity(
                claim=lambda J: (J * C * v, 1 / sp.sqrt(eps) * C * v),
                of=jacobian("layernorm"),
                instead=jacobian("dyt"),
                assuming=(GAIN_ONE, CONSTANT),
            ),
        ),
        Step(
            r"At $x = 0$, $J_{RMS}v = \frac1{\sqrt\epsilon}v$.",
            "there the root is that of eps",
            Identity(
                claim=lambda J: (J * v, 1 / sp.sqrt(eps) * v),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
                assuming=(GAIN_ONE, CONSTANT, ZERO),
            ),
        ),
    ),
    remark=(
        r"With a gain the norm at constant input is $\lVert\mathrm{diag}(\gamma)C\rVert_2/"
        r"\sqrt\epsilon$, at most $\lVert\gamma\rVert_\infty/\sqrt\epsilon$. At $\epsilon = 0$ the "
        r"norms are not Lipschitz: $J(kx) = J(x)/k$."
    ),
)
