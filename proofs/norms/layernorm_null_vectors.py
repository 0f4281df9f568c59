r"""What LayerNorm's Jacobian kills, on either side.

On the right it kills 1 at every eps, and the deviations c at eps = 0; on the left the same two
vectors divided by the gain. With eps > 0 the second direction is left with the factor eps/s^3.
"""

from __future__ import annotations

from derive.calculus.atoms import Diag, Reciprocal
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import eps
from proofs.setting import GAIN_NOT_ZERO, c, gain, jacobian, one, s, x

__all__ = ["theorem"]

theorem = Theorem(
    id="layernorm-null-vectors",
    area="norms",
    title="Null vectors of LayerNorm's Jacobian",
    statement=(
        r"$J\mathbf 1 = 0$ and $\mathbf 1^\top\mathrm{diag}(\gamma)^{-1}J = 0$ for every "
        r"$\epsilon$; $Jc = \frac{\epsilon}{s^3}\,\gamma\odot c$ and "
        r"$c^\top\mathrm{diag}(\gamma)^{-1}J = \frac{\epsilon}{s^3}c^\top$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(GAIN_NOT_ZERO,),
    steps=(
        Step(
            r"$J\mathbf 1 = 0$: LayerNorm does not see a shift.",
            "the mean is subtracted",
            Identity(
                claim=lambda J: (J * one, 0 * x),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
            ),
        ),
        Step(
            r"$Jc = \frac{\epsilon}{s^3}\,\gamma\odot c$, zero only where $\epsilon = 0$ or "
            r"$c = 0$.",
            r"$|c|^2 = d(s^2 - \epsilon)$",
            Identity(
                claim=lambda J: (J * c, eps / s**3 * Diag(gain) * c),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
            ),
        ),
        Step(
            r"$\mathbf 1^\top\mathrm{diag}(\gamma)^{-1}J = 0$ for every $\epsilon$.",
            "normalised deviations sum to zero",
            Identity(
                claim=lambda J: (one.T * Diag(Reciprocal(gain)) * J, 0 * x.T),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
            ),
        ),
        Step(
            r"$c^\top\mathrm{diag}(\gamma)^{-1}J = \frac{\epsilon}{s^3}c^\top$: the second left "
            r"null vector, at $\epsilon = 0$.",
            "without its gain the Jacobian is symmetric",
            Identity(
                claim=lambda J: (c.T * Diag(Reciprocal(gain)) * J, eps / s**3 * c.T),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
            ),
        ),
    ),
)
