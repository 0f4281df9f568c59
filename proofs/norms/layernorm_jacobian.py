r"""The Jacobian of LayerNorm, for every d, gain and eps.

    J_LN = (1/s) diag(g) (I - 11'/d - xhat xhat'/d),   xhat = c/s,   s = sqrt(|c|^2/d + eps)

With this s and this xhat the formula is exact for every eps; the paper states it at eps = 0.
"""

from __future__ import annotations

from derive.calculus.atoms import Diag
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import XIONG
from proofs.setting import c, gain, identity, norm, one, s

__all__ = ["theorem"]

theorem = Theorem(
    id="layernorm-jacobian",
    area="norms",
    title="The Jacobian of LayerNorm",
    statement=(
        r"$J_{LN} = \frac1s\,\mathrm{diag}(\gamma)\bigl(I - \frac{\mathbf 1\mathbf 1^\top}d - "
        r"\frac{cc^\top}{ds^2}\bigr)$ with $c = x - \mu\mathbf 1$ and $s^2 = |c|^2/d + \epsilon$, "
        r"exactly, for every $\epsilon$, gain and width."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The Jacobian that the differential of mean, variance and quotient gives is this one.",
            "definitions of mean and variance; deviations sum to zero",
            Identity(
                claim=lambda D: (
                    D.jacobian,
                    1 / s * Diag(gain) * (identity - one * one.T / d - c * c.T / (d * s**2)),
                ),
                of=norm("layernorm"),
                instead=norm("rmsnorm"),
            ),
        ),
    ),
    sources=(XIONG(r"appendix D, at eps = 0 and unit gain", seen="text"),),
)
