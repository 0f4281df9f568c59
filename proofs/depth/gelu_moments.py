r"""The second moments of gelu and of its derivative, and their quotient 1.072.

gelu(t) = t Phi(t). Stein's identity E z h(z) = E h'(z) lowers the power of z until the quadrant
probability E Phi(az)^2 is left, which is 1/3 at a = 1. No integral is looked up.
"""

from __future__ import annotations

import sympy as sp

from derive.blocks.activations import activation
from derive.calculus.pointwise import Activation
from derive.laws import DualKernel, dual_kernel
from derive.proof import Expectation, Gaussian, Step, Theorem, Verdict
from proofs.bibliography import DEEPSCALE

__all__ = ["theorem"]

z = sp.Symbol("z", real=True)
q = sp.Symbol("q", positive=True)


def _mean(phi: Activation, order: int, variance: sp.Expr = sp.S.One) -> sp.Expr:
    return Expectation(phi.derivative(order)(sp.sqrt(variance) * z) ** 2, z)


def _kedia(K: DualKernel) -> tuple[sp.Expr, sp.Expr]:
    """Put the published variance and the square of the mean beside the kernel."""
    share = q / (1 + q)
    angle = sp.pi / 2 - sp.asin(share)  # arccos
    root = sp.sqrt(sp.cancel((1 - share) / (1 + share)))
    variance = q / (2 * sp.pi) * (sp.pi - share - angle + 2 * share * root)
    return K.value(q), variance + q * share / (2 * sp.pi)


theorem = Theorem(
    id="gelu-moments",
    area="depth",
    title="The second moments of gelu and of its derivative",
    statement=(
        r"For $z$ standard normal, $f = \mathbb E\,\mathrm{gelu}(z)^2 = \frac13 + "
        r"\frac{\sqrt3}{6\pi}$ and $b = \mathbb E\,\mathrm{gelu}'(z)^2 = \frac13 + "
        r"\frac{2\sqrt3}{9\pi}$, so that $b/f = 1.0720\ldots$"
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"$f = \frac13 + \frac{\sqrt3}{6\pi} = 0.42522\ldots$",
            "Stein's identity twice, and the quadrant probability",
            Gaussian(
                claim=lambda phi: (
                    _mean(phi, 0),
                    sp.Rational(1, 3) + sp.sqrt(3) / (6 * sp.pi),
                ),
                of=lambda: activation("gelu"),
                instead=lambda: activation("relu"),
            ),
        ),
        Step(
            r"$b = \frac13 + \frac{2\sqrt3}{9\pi} = 0.45585\ldots$",
            "the same rules after completing squares",
            Gaussian(
                claim=lambda phi: (
                    _mean(phi, 1),
                    sp.Rational(1, 3) + 2 * sp.sqrt(3) / (9 * sp.pi),
                ),
                of=lambda: activation("gelu"),
                instead=lambda: activation("relu"),
            ),
        ),
        Step(
            "At every variance q, the kernel of the toolkit is the expectation.",
            "Stein's identity with slope root q",
            Gaussian(
                name=r"K(q)",
                claim=lambda K: (K.value(q), _mean(activation("gelu"), 0, q)),
                of=lambda: dual_kernel("gelu"),
                instead=lambda: dual_kernel("relu"),
            ),
        ),
        Step(
            "It is the published variance and the square of the published mean.",
            r"$\arccos a = \pi/2 - \arcsin a$",
            Gaussian(
                name=r"K(q)",
                claim=_kedia,
                of=lambda: dual_kernel("gelu"),
                instead=lambda: dual_kernel("relu"),
            ),
        ),
    ),
    sources=(DEEPSCALE("moments of gelu, simulations", seen="code"),),
)
