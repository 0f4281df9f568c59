r"""What RMSNorm's Jacobian kills: its input, at eps = 0, and nothing else.

The direction 1, which LayerNorm kills, is passed on; what becomes of it depends on the mean.
"""

from __future__ import annotations

from derive.calculus.atoms import Diag, Reciprocal
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import eps
from proofs.setting import GAIN_NOT_ZERO, gain, jacobian, mean, one, r, x

__all__ = ["theorem"]

theorem = Theorem(
    id="rmsnorm-null-vectors",
    area="norms",
    title="Null vectors of RMSNorm's Jacobian",
    statement=(
        r"$Jx = \frac{\epsilon}{r^3}\,\gamma\odot x$ and "
        r"$x^\top\mathrm{diag}(\gamma)^{-1}J = \frac{\epsilon}{r^3}x^\top$; the direction "
        r"$\mathbf 1$ is passed on: $J\mathbf 1 = \frac1r\gamma\odot(\mathbf 1 - "
        r"\frac{\mu}{r^2}x)$ with the mean $\mu$ of $x$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(GAIN_NOT_ZERO,),
    steps=(
        Step(
            r"$Jx = \frac{\epsilon}{r^3}\,\gamma\odot x$.",
            r"$|x|^2 = d(r^2 - \epsilon)$",
            Identity(
                claim=lambda J: (J * x, eps / r**3 * Diag(gain) * x),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
            ),
        ),
        Step(
            r"$x^\top\mathrm{diag}(\gamma)^{-1}J = \frac{\epsilon}{r^3}x^\top$: the only left null "
            r"vector, at $\epsilon = 0$.",
            "without its gain the Jacobian is symmetric",
            Identity(
                claim=lambda J: (x.T * Diag(Reciprocal(gain)) * J, eps / r**3 * x.T),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
            ),
        ),
        Step(
            r"$J\mathbf 1 = \frac1r\gamma\odot(\mathbf 1 - \frac{\mu}{r^2}x)$: zero only for $x$ "
            r"along $\mathbf 1$, and only at $\epsilon = 0$.",
            r"$x^\top\mathbf 1 = d\mu$",
            Identity(
                claim=lambda J: (J * one, 1 / r * Diag(gain) * (one - mean / r**2 * x)),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
            ),
        ),
        Step(
            r"$\mathbf 1^\top\mathrm{diag}(\gamma)^{-1}J = \frac1r(\mathbf 1^\top - "
            r"\frac{\mu}{r^2}x^\top)$, where LayerNorm has 0.",
            r"$\mathbf 1^\top x = d\mu$",
            Identity(
                claim=lambda J: (
                    one.T * Diag(Reciprocal(gain)) * J,
                    1 / r * (one.T - mean / r**2 * x.T),
                ),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
            ),
        ),
    ),
)
