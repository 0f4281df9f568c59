r"""The arc-cosine kernel of relu, by Price's theorem instead of an integral.

For normal a, b with variance 1 and correlation rho, d/drho E phi(a) phi(b) = E phi'(a) phi'(b). The
second derivative of the kernel of relu is the density of (a, b) at 0; value and slope at rho = 0
are squares of means.
"""

from __future__ import annotations

import sympy as sp

from derive.blocks.activations import activation
from derive.laws import DualKernel, dual_kernel
from derive.proof import Expectation, Gaussian, Step, Theorem, Verdict
from proofs.bibliography import CHO_SAUL, DEEPSCALE

__all__ = ["theorem"]

z = sp.Symbol("z", real=True)
t = sp.Symbol("t", positive=True)
RHO = t / (1 + t)
"""A correlation between 0 and 1."""


def _mean(order: int) -> sp.Expr:
    return Expectation(activation("relu").derivative(order)(z), z)


def _along(K: DualKernel, order: int) -> sp.Expr:
    rho = sp.Symbol("rho", real=True)
    return sp.diff(K.value(sp.S.One, rho), rho, order).subs(rho, RHO)


theorem = Theorem(
    id="relu-kernel",
    area="depth",
    title="The kernel of relu at correlated inputs",
    statement=(
        r"For normal $a, b$ with variance 1 and correlation $\rho$, $\mathbb E\,\mathrm{relu}(a)\,"
        r"\mathrm{relu}(b) = \frac1{2\pi}\bigl(\sqrt{1-\rho^2} + \rho(\pi - \arccos\rho)\bigr)$ "
        r"and "
        r"$\mathbb E\,\mathrm{relu}'(a)\,\mathrm{relu}'(b) = \frac{\pi - \arccos\rho}{2\pi}$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"At $\rho = 0$ the kernel is $(\mathbb E\,\mathrm{relu})^2 = \frac1{2\pi}$.",
            "independence",
            Gaussian(
                name=r"K(0)",
                claim=lambda K: (K.value(sp.S.One, sp.S.Zero), _mean(0) ** 2),
                of=lambda: dual_kernel("relu"),
                instead=lambda: dual_kernel("gelu"),
            ),
        ),
        Step(
            r"Its slope there is $(\mathbb E\,\mathrm{relu}')^2 = \frac14$.",
            "Price's theorem and independence",
            Gaussian(
                name=r"K'(0)",
                claim=lambda K: (K.slope(sp.S.One, sp.S.Zero), _mean(1) ** 2),
                of=lambda: dual_kernel("relu"),
                instead=lambda: dual_kernel("relu2"),
            ),
        ),
        Step(
            r"The second kernel is the derivative of the first, at $\rho = \frac t{1+t}$: "
            r"$\frac{\pi - \arccos\rho}{2\pi}$.",
            "Price's theorem",
            Gaussian(
                name=r"K'(\rho)",
                claim=lambda K: (_along(K, 1), (sp.pi - sp.acos(RHO)) / (2 * sp.pi)),
                of=lambda: dual_kernel("relu"),
                instead=lambda: dual_kernel("relu2"),
            ),
        ),
        Step(
            r"Its second derivative is $\frac1{2\pi\sqrt{1-\rho^2}}$.",
            r"Price's theorem twice: the second derivative of relu is a point mass at 0",
            Gaussian(
                name=r"K''(\rho)",
                claim=lambda K: (_along(K, 2), 1 / (2 * sp.pi * sp.sqrt(1 - RHO**2))),
                of=lambda: dual_kernel("relu"),
                instead=lambda: dual_kernel("relu2"),
            ),
        ),
    ),
    sources=(CHO_SAUL("section 2", seen="memory"), DEEPSCALE("covariance of relu", seen="code")),
)
