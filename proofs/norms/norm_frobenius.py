r"""The Frobenius norms of the Jacobians, with gain and eps.

    |J_LN|_F^2 = (1/s^2) ((1 - 1/d) |g|^2 - (1 + eps/s^2) |g*c|^2/(d s^2))

At unit gain and eps = 0 this is (d - 2)/s^2, and (d - 1)/r^2 for RMSNorm.
"""

from __future__ import annotations

from derive.calculus.atoms import Diag, Inner
from derive.calculus.trace import Trace
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.setting import EPS_ZERO, GAIN_ONE, c, gain, jacobian, r, s, x

__all__ = ["theorem"]

gx, gc = Diag(gain) * x, Diag(gain) * c

theorem = Theorem(
    id="norm-frobenius",
    area="norms",
    title="Frobenius norms of the Jacobians of norms",
    statement=(
        r"$\lVert J_{LN}\rVert_F^2 = \frac1{s^2}\bigl((1 - \frac1d)|\gamma|^2 - "
        r"(1 + \frac{\epsilon}{s^2})\frac{|\gamma\odot c|^2}{ds^2}\bigr)$, which is "
        r"$(d - 2)/s^2$ at $\gamma = \mathbf 1$ and $\epsilon = 0$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(EPS_ZERO, GAIN_ONE),
    steps=(
        Step(
            r"LayerNorm, every gain and $\epsilon$.",
            r"$\lVert J\rVert_F^2 = \mathrm{tr}(J^\top J)$",
            Identity(
                claim=lambda J: (
                    Trace(J.T * J),
                    1
                    / s**2
                    * (
                        (1 - 1 / d) * Inner(gain, gain)
                        - (1 + eps / s**2) * Inner(gc, gc) / (d * s**2)
                    ),
                ),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
            ),
        ),
        Step(
            r"RMSNorm, every gain and $\epsilon$: $\frac1{r^2}\bigl(|\gamma|^2 - "
            r"(1 + \frac{\epsilon}{r^2})\frac{|\gamma\odot x|^2}{dr^2}\bigr)$.",
            r"$\lVert J\rVert_F^2 = \mathrm{tr}(J^\top J)$",
            Identity(
                claim=lambda J: (
                    Trace(J.T * J),
                    1 / r**2 * (Inner(gain, gain) - (1 + eps / r**2) * Inner(gx, gx) / (d * r**2)),
                ),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
            ),
        ),
        Step(
            r"LayerNorm at $\gamma = \mathbf 1$ and $\epsilon = 0$: $(d - 2)/s^2$.",
            r"$|c|^2 = ds^2$",
            Identity(
                claim=lambda J: (Trace(J.T * J), (d - 2) / s**2),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
                assuming=(EPS_ZERO, GAIN_ONE),
            ),
        ),
        Step(
            r"RMSNorm there: $(d - 1)/r^2$.",
            r"$|x|^2 = dr^2$",
            Identity(
                claim=lambda J: (Trace(J.T * J), (d - 1) / r**2),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
                assuming=(EPS_ZERO, GAIN_ONE),
            ),
        ),
    ),
)
