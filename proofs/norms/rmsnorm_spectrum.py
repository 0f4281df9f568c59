r"""The eigenvalues of RMSNorm's Jacobian at unit gain, with multiplicities.

J = (1/r) Q + (eps/r^3) xx'/|x|^2,   Q = I - xx'/|x|^2,   tr Q = d - 1
"""

from __future__ import annotations

from derive.calculus.atoms import Inner
from derive.calculus.trace import Trace
from derive.proof import Assumption, Identity, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.setting import GAIN_ONE, identity, jacobian, r, x

__all__ = ["theorem"]

NOT_ZERO = Assumption("not-zero", r"$x \ne 0$")
Q = identity - x * x.T / Inner(x, x)

theorem = Theorem(
    id="rmsnorm-spectrum",
    area="norms",
    title="The spectrum of RMSNorm's Jacobian",
    statement=(
        r"At unit gain $J$ is symmetric, with the eigenvalues $1/r$ ($d - 1$ times) and "
        r"$\epsilon/r^3$ (along the input): its rank is $d$ for $\epsilon > 0$ and $d - 1$ for "
        r"$\epsilon = 0$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(GAIN_ONE, NOT_ZERO),
    steps=(
        Step(
            r"$J = \frac1r Q + \frac{\epsilon}{r^3}\frac{xx^\top}{|x|^2}$ with $Q = I - "
            r"\frac{xx^\top}{|x|^2}$.",
            r"$|x|^2 = d(r^2 - \epsilon)$",
            Identity(
                claim=lambda J: (J, 1 / r * Q + eps / r**3 / Inner(x, x) * x * x.T),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
                assuming=(GAIN_ONE,),
            ),
        ),
        Step(
            r"$(rJ)(rJ) = Q$ up to the square of the second eigenvalue, so that $Q$ and "
            r"$xx^\top/|x|^2$ are orthogonal projections.",
            "a unit vector has length 1",
            Identity(
                claim=lambda J: (
                    r**2 * J * J,
                    Q + (eps / r**2) ** 2 / Inner(x, x) * x * x.T,
                ),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
                assuming=(GAIN_ONE,),
            ),
        ),
        Step(
            r"$\mathrm{tr}(rJ) = d - 1 + \epsilon/r^2$: the first eigenvalue has multiplicity "
            r"$d - 1$.",
            r"$\mathrm{tr}(xx^\top) = |x|^2$",
            Identity(
                claim=lambda J: (Trace(r * J), d - 1 + eps / r**2),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
                assuming=(GAIN_ONE,),
            ),
        ),
    ),
)
