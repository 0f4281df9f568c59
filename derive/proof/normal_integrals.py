r"""Expectations of polynomials, Gaussians and normal distribution functions of a normal variable.

For z standard normal, three rules reduce :math:`\mathbb E z^me^{-cz^2}\prod_i\Phi(a_iz)`, with at
most two factors :math:`\Phi`, to numbers:

- completing the square: with :math:`t = \sqrt{1+2c}` it is
  :math:`t^{-m-1}\,\mathbb E z^m\prod_i\Phi(a_iz/t)`;
- Stein's identity :math:`\mathbb E z\,h(z) = \mathbb E h'(z)`, which lowers m and takes a factor
  :math:`\Phi` away wherever it differentiates one;
- :math:`\mathbb E\Phi(az) = 1/2` and :math:`\mathbb E\Phi(az)\Phi(bz) = \frac14 + \frac1{2\pi}
  \arcsin\frac{ab}{\sqrt{(1+a^2)(1+b^2)}}`, Sheppard's probability of a quadrant, which follows
  from its derivative by a and its value 1/4 at a = 0.

Source: own, from these textbook rules.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.pointwise import normal_cdf
from derive.errors import UnknownNodeError

__all__ = ["normal_mean"]


def normal_mean(function: sp.Expr, z: sp.Symbol) -> sp.Expr:
    r"""Return :math:`\mathbb E f(z)` of a sum of terms :math:`z^me^{-cz^2}\prod_i\Phi(a_iz)`.

    Parameters
    ----------
    function : expression
        f; error functions are written by :math:`\Phi`.
    z : Symbol
        The standard normal variable.

    Raises
    ------
    UnknownNodeError
        If a term has another form, or more than two factors :math:`\Phi`.
    """
    function = sp.sympify(function).replace(sp.erfc, lambda a: 1 - sp.erf(a))
    function = function.replace(sp.erf, lambda a: 2 * normal_cdf(sp.sqrt(2) * a) - 1)
    terms = sp.Add.make_args(sp.expand(function))
    return sp.Add(*(_term(term, z) for term in terms))


def _term(term: sp.Expr, z: sp.Symbol) -> sp.Expr:
    constant, rest = term.as_independent(z, as_Add=False)
    power, decay, slopes = 0, sp.S.Zero, []
    for factor in sp.Mul.make_args(rest):
        base, exponent = factor.as_base_exp()
        if base == z and exponent.is_Integer and exponent > 0:
            power += int(exponent)
        elif base == sp.E and not (rate := sp.cancel(-exponent / z**2)).has(z):
            decay += rate
        elif isinstance(base, normal_cdf) and exponent.is_Integer and exponent > 0:
            slope = sp.cancel(base.args[0] / z)
            if slope.has(z):
                raise UnknownNodeError(f"expectation: no rule for {base} in {term}")
            slopes += [slope] * int(exponent)
        elif factor != 1:
            raise UnknownNodeError(f"expectation: no rule for {factor} in {term}")
    return constant * _mean(power, decay, tuple(slopes))


def _mean(power: int, decay: sp.Expr, slopes: tuple[sp.Expr, ...]) -> sp.Expr:
    """Return the mean of one product."""
    if decay != 0:
        squared = 1 + 2 * decay
        if not squared.is_positive:
            raise UnknownNodeError(f"expectation: no finite integral with exp({-decay} z^2)")
        root = sp.sqrt(squared)
        narrowed = tuple(slope / root for slope in slopes)
        return _mean(power, sp.S.Zero, narrowed) / root ** (power + 1)
    if power == 0:
        return _quadrant(slopes)
    lower = (power - 1) * _mean(power - 2, sp.S.Zero, slopes) if power > 1 else sp.S.Zero
    for k, slope in enumerate(slopes):
        others = slopes[:k] + slopes[k + 1 :]
        lower += slope / sp.sqrt(2 * sp.pi) * _mean(power - 1, slope**2 / 2, others)
    return lower


def _quadrant(slopes: tuple[sp.Expr, ...]) -> sp.Expr:
    match slopes:
        case ():
            return sp.S.One
        case (_,):
            return sp.S.Half
        case (a, b):
            angle = sp.asin(sp.simplify(a * b / sp.sqrt((1 + a**2) * (1 + b**2))))
            return sp.Rational(1, 4) + angle / (2 * sp.pi)
    raise UnknownNodeError(f"expectation: no rule for a product of {len(slopes)} factors Phi")
