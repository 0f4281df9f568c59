r"""Why relu keeps the gradient of a post-norm stack: a homogeneous activation has b = f.

A positively homogeneous function of one variable is phi(t) = p t for t > 0 and m t for t < 0. By
Euler's identity phi(t) = t phi'(t), and phi' depends on the sign of t only, which is independent of
|t|: E phi(z)^2 = E z^2 E phi'(z)^2 = E phi'(z)^2.
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Expectation, Gaussian, Step, Theorem, Verdict

__all__ = ["theorem"]

z = sp.Symbol("z", real=True)
p, m = sp.symbols("p m", real=True)


def _homogeneous(degree: int = 1) -> sp.Expr:
    return sp.Piecewise((p * z**degree, z > 0), (m * z, True))


theorem = Theorem(
    id="homogeneous-activations",
    area="depth",
    title="Homogeneous activations have equal forward and backward moments",
    statement=(
        r"For $\phi(t) = pt$ at $t > 0$ and $mt$ at $t < 0$ (relu, leaky relu, the identity, the "
        r"absolute value), $\mathbb E\,\phi(z)^2 = \mathbb E\,\phi'(z)^2 = (p^2 + m^2)/2$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The mean square of the value.",
            "each sign of z has half of the second moment",
            Gaussian(
                claim=lambda phi: (Expectation(phi**2, z), (p**2 + m**2) / 2),
                of=_homogeneous,
                instead=lambda: _homogeneous(2),
            ),
        ),
        Step(
            "The mean square of the derivative is the same.",
            "each sign of z has probability one half",
            Gaussian(
                claim=lambda phi: (Expectation(sp.diff(phi, z) ** 2, z), (p**2 + m**2) / 2),
                of=_homogeneous,
                instead=lambda: _homogeneous(2),
            ),
        ),
    ),
    remark=(
        "With weights of one variance on either side of the activation, the forward variance f of "
        "a feed-forward branch and its backward gain b share all other factors, so that b = f. A "
        r"function of degree $k$ has $b = k^2f/(2k - 1)$, which exceeds f for $k > 1$."
    ),
)
