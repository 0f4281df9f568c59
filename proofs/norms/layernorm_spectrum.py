r"""The eigenvalues of LayerNorm's Jacobian at unit gain, with multiplicities.

    J = (1/s) Q + (eps/s^3) cc'/|c|^2 + 0 11'/d,   Q = I - 11'/d - cc'/|c|^2,   tr Q = d - 2

Three orthogonal projections that add up to the identity, so that their factors are the eigenvalues.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Inner
from derive.calculus.trace import Trace
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.setting import GAIN_ONE, NOT_CONSTANT, c, identity, jacobian, one, s, x

__all__ = ["theorem"]


def _without(vector: sp.Basic) -> sp.Basic:
    """Return I - 11'/d - vv'/|v|^2."""
    return identity - one * one.T / d - vector * vector.T / Inner(vector, vector)


theorem = Theorem(
    id="layernorm-spectrum",
    area="norms",
    title="The spectrum of LayerNorm's Jacobian",
    statement=(
        r"At unit gain $J$ is symmetric, with the eigenvalues $1/s$ ($d - 2$ times), "
        r"$\epsilon/s^3$ (along the deviations $c$) and $0$ (along $\mathbf 1$): its rank is "
        r"$d - 1$ for $\epsilon > 0$ and $d - 2$ for $\epsilon = 0$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(GAIN_ONE, NOT_CONSTANT),
    steps=(
        Step(
            r"$J = \frac1s Q + \frac{\epsilon}{s^3}\frac{cc^\top}{|c|^2}$ with $Q = I - "
            r"\frac{\mathbf 1\mathbf 1^\top}d - \frac{cc^\top}{|c|^2}$.",
            r"$|c|^2 = d(s^2 - \epsilon)$",
            Identity(
                claim=lambda J: (
                    J,
                    1 / s * _without(c) + eps / s**3 / Inner(c, c) * c * c.T,
                ),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
                assuming=(GAIN_ONE,),
            ),
        ),
        Step(
            r"$Q$ is a projection.",
            r"$\mathbf 1^\top c = 0$; of a vector with a mean this would not be one",
            Identity(
                claim=lambda v: (_without(v) * _without(v), _without(v)),
                of=lambda: c,
                instead=lambda: x,
            ),
        ),
        Step(
            r"It is orthogonal to $c$ and to $\mathbf 1$: $Q(c + \mathbf 1) = 0$ for both at once.",
            r"$\mathbf 1^\top c = 0$",
            Identity(
                claim=lambda v: (_without(v) * (v + one), 0 * x),
                of=lambda: c,
                instead=lambda: x,
            ),
        ),
        Step(
            r"$\mathrm{tr}\,Q = d - 2$, the multiplicity of $1/s$.",
            "each unit vector that is removed takes 1 from the trace of the identity",
            Identity(
                claim=lambda v: (Trace(v(c)), d - 2),
                of=lambda: _without,
                instead=lambda: lambda v: identity - v * v.T / Inner(v, v),
            ),
        ),
        Step(
            r"The trace for every $\epsilon$: $\mathrm{tr}(sJ) = d - 2 + \epsilon/s^2$.",
            "the sum of the eigenvalues",
            Identity(
                claim=lambda J: (Trace(s * J), d - 2 + eps / s**2),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
                assuming=(GAIN_ONE,),
            ),
        ),
    ),
    remark=(
        r"With a gain the rank is the same, since $\mathrm{diag}(\gamma)$ is invertible where no "
        r"entry is 0; the singular values are then not those of a projection."
    ),
)
