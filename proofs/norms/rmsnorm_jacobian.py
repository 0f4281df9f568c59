r"""The Jacobian of RMSNorm, for every d, gain and eps.

J_RMS = (1/r) diag(g) (I - xx'/(d r^2)),   r = sqrt(|x|^2/d + eps)
"""

from __future__ import annotations

from derive.calculus.atoms import Diag
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import ZHANG
from proofs.setting import gain, identity, jacobian, r, x

__all__ = ["theorem"]

theorem = Theorem(
    id="rmsnorm-jacobian",
    area="norms",
    title="The Jacobian of RMSNorm",
    statement=(
        r"$J_{RMS} = \frac1r\,\mathrm{diag}(\gamma)\bigl(I - \frac{xx^\top}{dr^2}\bigr)$ with "
        r"$r^2 = |x|^2/d + \epsilon$, exactly, for every $\epsilon$, gain and width."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The Jacobian that the differential of the mean square and the quotient gives.",
            "definition of the mean square, quotient rule",
            Identity(
                claim=lambda J: (J, 1 / r * Diag(gain) * (identity - x * x.T / (d * r**2))),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
            ),
        ),
    ),
    sources=(ZHANG("equation (4) defines the norm"),),
)
