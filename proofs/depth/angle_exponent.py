r"""In a post-norm feed-forward block nearly equal tokens part at the rate at which gradients grow.

The correlation behind N(a x + F(x)) is (a^2 rho + K(rho))/(a^2 + f) with the kernel K. Its slope at
rho = 1 is (a^2 + b)/(a^2 + f), K'(1) being E phi'^2: the gain of the gradient.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.laws import Moments
from derive.laws.meanfield import BlockMoments
from derive.proof import Gaussian, Step, Theorem, Verdict
from proofs.depth._shared import WIDE, a, composed
from proofs.depth.gelu_moments import theorem as gelu
from proofs.depth.post_norm_gain import theorem as gain

__all__ = ["theorem"]

rho = sp.Symbol("rho", real=True)
F_GELU = sp.Rational(1, 3) + sp.sqrt(3) / (6 * sp.pi)
B_GELU = sp.Rational(1, 3) + 2 * sp.sqrt(3) / (9 * sp.pi)


def _block(equation: str, activation: str) -> Any:
    """Return a subject: a block on two tokens of correlation rho."""
    signal = Moments(sp.S.One, rho)
    return lambda: composed(equation, activation, sp.Integer(2), signal, alpha=a)


def _slope(block: BlockMoments) -> sp.Expr:
    """Return the slope of the correlation at equal tokens."""
    ahead = block.forward()["x", "x"]
    return sp.simplify(sp.diff(ahead.c / ahead.v, rho)).subs(rho, 1)


def _gain(block: BlockMoments) -> sp.Expr:
    one = {("x", "x"): Moments(sp.S.One, sp.S.Zero)}
    return block.backward(one)["x", "x"].v


theorem = Theorem(
    id="angle-exponent",
    area="depth",
    title="Angle and gradient exponent of a post-norm feed-forward block",
    statement=(
        r"For $N(ax + F(x))$ with a feed-forward branch, $1 - \rho' = \frac{a^2+b}{a^2+f}(1 - "
        r"\rho)$ to first order at $\rho = 1$: the distance of nearly equal tokens has the "
        "exponent of the gradient. For relu it is 0, for gelu positive."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    uses=(gain, gelu),
    steps=(
        Step(
            "Gelu: the slope of the correlation at equal tokens.",
            "Price's theorem: the slope of the kernel is the kernel of the derivative",
            Gaussian(
                name=r"\frac{d\rho'}{d\rho}",
                claim=lambda block: (_slope(block), (a**2 + B_GELU) / (a**2 + F_GELU)),
                of=_block("N(alpha*x + F(x))", "ffn:gelu"),
                instead=_block("N(alpha*x + F(x))", "ffn:relu"),
            ),
        ),
        Step(
            "Gelu: the gain of the gradient is the same number.",
            "composed from the expression of the block",
            Gaussian(
                name=r"G",
                claim=lambda block: (_gain(block), (a**2 + B_GELU) / (a**2 + F_GELU)),
                of=_block("N(alpha*x + F(x))", "ffn:gelu"),
                instead=_block("N(alpha*x + F(x))", "ffn:relu"),
            ),
        ),
        Step(
            "Relu: the slope is 1.",
            "b = f",
            Gaussian(
                name=r"\frac{d\rho'}{d\rho}",
                claim=lambda block: (_slope(block), sp.S.One),
                of=_block("N(alpha*x + F(x))", "ffn:relu"),
                instead=_block("N(alpha*x + F(x))", "ffn:gelu"),
            ),
        ),
    ),
    remark=(
        "So that bias-free relu has no chaotic phase in post-norm, and gelu is always on the "
        "chaotic side, by little. Attention separates the two exponents."
    ),
)
