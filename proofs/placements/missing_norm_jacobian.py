r"""dx_l/dx_{l-1} = I + dF/dx is the Jacobian of pre-norm only if F means F(N(x)).

Written for the block x + F(N(x)) the factor J_N is missing. It scales as 1/s, so that the error
is a factor of about the size of the residual stream.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from proofs.bibliography import INTERVIEW
from proofs.norms.norm_scale_invariance import theorem as norm_scale_invariance
from proofs.placements._shared import DF, W, layernorm_at, linear
from proofs.setting import F, block, block_jacobian, identity, x

__all__ = ["theorem"]

N = derive.LayerNorm()


def _with_linear(name: str) -> tuple[sp.Basic, sp.Basic]:
    """Return the Jacobian of a placement with F(z) = Wz, and I + W."""
    return derive.jacobian(block(name, "layernorm", linear), x), identity + W


theorem = Theorem(
    id="missing-norm-jacobian",
    area="placements",
    title="The factor that is missing in I + dF/dx",
    statement=r"The Jacobian of a pre-norm block is $I + \frac{\partial F}{\partial x}$.",
    verdict=Verdict.CONDITIONAL,
    uses=(norm_scale_invariance,),
    steps=(
        Step(
            r"It is $I + \frac{d}{dx}F(N(x))$, with the whole branch differentiated.",
            "derivative of a sum",
            Identity(
                claim=lambda J: (J, identity + derive.jacobian(F(N(x)), x)),
                of=block_jacobian("pre"),
                instead=block_jacobian("post"),
            ),
        ),
        Step(
            r"That branch has the derivative $D\!F(N(x))\,J_N(x)$.",
            "chain rule",
            Identity(
                claim=lambda branch: (derive.jacobian(branch, x), DF(N(x)) * layernorm_at(x)),
                of=lambda: F(N(x)),
                instead=lambda: N(F(x)),
            ),
        ),
        Step(
            r"With $F(z) = z$, $\epsilon = 1$ and $x = (1, 3)$ the block's Jacobian is $I + J_N$ "
            r"and not $2I$.",
            r"the first entries are $1 + \frac1{4\sqrt2}$ and 2",
            Counterexample(
                claim=_with_linear,
                of=lambda: "pre",
                instead=lambda: "no-norm",
                relation="!=",
                stated=("0.823223305", "0"),
                at={"x": (1, 3), "W": ((1, 0), (0, 1)), "gain": (1, 1), "eps": 1},
            ),
        ),
    ),
    sources=(INTERVIEW("the equation of the pre-norm gradient", seen="text"),),
    holds_when=r"$F$ stands for the composite $F\circ N$.",
    fails_when=(
        r"$F$ is the sublayer of the block's own equation $x + F(N(x))$: the factor $J_N(x)$, of "
        r"size $1/s$, is then left out."
    ),
)
