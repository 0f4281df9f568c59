r"""A weight alpha on the skip inside a norm is a weight 1/alpha on the branch, with eps/alpha^2.

N_eps(alpha x + F(x)) = N_{eps/alpha^2}(x + F(x)/alpha)
"""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

import derive
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import eps
from proofs.bibliography import DEEPNET
from proofs.norms.norm_scale_invariance import theorem as norm_scale_invariance
from proofs.setting import EPS_ZERO, F, x

__all__ = ["theorem"]

alpha = sp.Symbol("alpha", positive=True)


def _sides(norm: Callable[..., derive.LayerNorm], other: sp.Expr) -> tuple[sp.Basic, sp.Basic]:
    """Return both Jacobians; `other` is the eps of the second block."""
    blocks = norm(eps=eps)(alpha * x + F(x)), norm(eps=other)(x + F(x) / alpha)
    return derive.jacobian(blocks[0], x), derive.jacobian(blocks[1], x)


theorem = Theorem(
    id="residual-scale-in-norm",
    area="placements",
    title="A weight on the skip is one on the branch",
    statement=r"$N(\alpha x + F(x))$ and $N(x + F(x)/\alpha)$ are the same block.",
    verdict=Verdict.CONDITIONAL,
    assumptions=(EPS_ZERO,),
    uses=(norm_scale_invariance,),
    steps=(
        Step(
            r"With LayerNorm their Jacobians are equal if the second has $\epsilon/\alpha^2$.",
            r"$N_\epsilon(\alpha u) = N_{\epsilon/\alpha^2}(u)$",
            Identity(
                claim=lambda other: _sides(derive.LayerNorm, other),
                of=lambda: eps / alpha**2,
                instead=lambda: eps,
            ),
        ),
        Step(
            "With RMSNorm likewise.",
            r"$N_\epsilon(\alpha u) = N_{\epsilon/\alpha^2}(u)$",
            Identity(
                claim=lambda other: _sides(derive.RMSNorm, other),
                of=lambda: eps / alpha**2,
                instead=lambda: eps,
            ),
        ),
        Step(
            r"At $\epsilon = 0$ without further condition.",
            "a norm does not see a scale",
            Identity(
                claim=lambda other: _sides(derive.LayerNorm, other),
                of=lambda: eps,
                instead=lambda: eps + 1,
                assuming=(EPS_ZERO,),
            ),
        ),
        Step(
            r"With $\epsilon = 1$ in both, $\alpha = 2$, $F(z) = z$ and $x = (1, 3)$ they differ.",
            r"$J_N$ at $3x$ times 3 against $J_N$ at $\frac32x$ times $\frac32$",
            Counterexample(
                claim=lambda N: (
                    derive.jacobian(N(2 * x + x), x),
                    derive.jacobian(derive.LayerNorm()(x + x / 2), x),
                ),
                of=derive.LayerNorm,
                instead=lambda: derive.LayerNorm(eps=4 * eps),
                relation="!=",
                stated=("0.0805735727", "0"),
                at={"x": (1, 3), "gain": (1, 1), "eps": 1},
            ),
        ),
    ),
    sources=(DEEPNET("the weight of the skip", seen="code"),),
    holds_when=r"$\epsilon = 0$, or the second norm has $\epsilon/\alpha^2$.",
    fails_when=r"both have the same $\epsilon > 0$ and $\alpha \ne 1$.",
)
