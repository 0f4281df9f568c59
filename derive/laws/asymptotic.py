r"""The leading term of a law for large L.

Read off term by term: of a sum the fastest-growing terms are kept, in the order of
:math:`r^L`, then powers of L, then powers of :math:`\log L`; quotients and powers of leading terms
are leading terms; and

.. math:: H_L \sim \log L, \qquad \frac{\Gamma(L + x)}{\Gamma(L + y)} \sim L^{x-y}, \qquad
    (1 + w)^L \sim e^{Lw} \text{ for } w \to 0,\ L w^2 \to 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from derive.symbols import L

__all__ = ["leading"]

Order = tuple[sp.Expr, sp.Expr, sp.Expr]
"""Logarithm of r, power of L, power of log L."""


def leading(expr: sp.Expr, where: Mapping[sp.Symbol, sp.Expr] | None = None) -> sp.Expr | None:
    """Return the leading term for L to infinity, or None where no rule gives one.

    Parameters
    ----------
    expr : expression
        A law in L.
    where : mapping, optional
        Values of constants that it is written in, by which terms are compared.

    Examples
    --------
    >>> leading(1 + sp.harmonic(L) / 2), leading(L / 2 + 1), leading((1 + L) / (2 + 3 * L))
    (log(L)/2, L/2, 1/3)
    """
    found = _leading(sp.sympify(expr), dict(where or {}))
    return None if found is None else found[0]


def _leading(expr: sp.Expr, where: dict[sp.Symbol, sp.Expr]) -> tuple[sp.Expr, Order] | None:
    zero = (sp.S.Zero, sp.S.Zero, sp.S.Zero)
    if not expr.has(L):
        return expr, zero
    if expr == L:
        return L, (sp.S.Zero, sp.S.One, sp.S.Zero)
    if isinstance(expr, sp.Piecewise):  # conditions on L: the last one holds
        return _leading(expr.args[-1][0], where)
    if isinstance(expr, sp.harmonic) and expr.args == (L,):
        return sp.log(L), (sp.S.Zero, sp.S.Zero, sp.S.One)
    if isinstance(expr, sp.Add):
        return _largest(expr, where)
    if isinstance(expr, sp.Mul):
        return _product(expr, where)
    if isinstance(expr, sp.Pow):
        return _power(expr, where)
    return None


def _largest(expr: sp.Add, where: dict[sp.Symbol, sp.Expr]) -> tuple[sp.Expr, Order] | None:
    terms = [_leading(term, where) for term in expr.args]
    if any(term is None for term in terms):
        return None
    known = [term for term in terms if term is not None]
    top = max((_numbers(order, where) for _, order in known))
    kept = [term for term in known if _numbers(term[1], where) == top]
    total = sp.Add(*(term for term, _ in kept))
    return (total, kept[0][1]) if total != 0 else None


def _numbers(order: Order, where: dict[sp.Symbol, sp.Expr]) -> tuple[float, ...]:
    return tuple(float(sp.N(part.subs(where))) for part in order)


def _product(expr: sp.Mul, where: dict[sp.Symbol, sp.Expr]) -> tuple[sp.Expr, Order] | None:
    product, order, gammas, shift = sp.S.One, [sp.S.Zero] * 3, sp.S.Zero, sp.S.Zero
    for factor in expr.args:
        base, exponent = factor.as_base_exp()
        if isinstance(base, sp.gamma) and base.has(L):
            inside = sp.expand(base.args[0] - L)
            if inside.has(L) or exponent.has(L):
                return None
            gammas, shift = gammas + exponent, shift + exponent * inside
            continue
        found = _leading(factor, where)
        if found is None:
            return None
        product *= found[0]
        order = [a + b for a, b in zip(order, found[1], strict=True)]
    if gammas != 0:
        return None
    rate, power, logs = order
    return product * L**shift, (rate, power + shift, logs)


def _power(expr: sp.Pow, where: dict[sp.Symbol, sp.Expr]) -> tuple[sp.Expr, Order] | None:
    base, exponent = expr.base, expr.exp
    if not base.has(L):
        rate = sp.diff(exponent, L)
        return None if rate.has(L) else (expr, (rate * sp.log(base), sp.S.Zero, sp.S.Zero))
    inside = _leading(base, where)
    if not exponent.has(L):
        if inside is None:
            return None
        rate, power, logs = (exponent * part for part in inside[1])
        return inside[0] ** exponent, (rate, power, logs)
    numerator, denominator = sp.fraction(sp.together(base))
    small = _leading(sp.expand(numerator - denominator), where)
    below = _leading(denominator, where)
    if exponent != L or small is None or below is None:
        return None
    w = small[0] / below[0]
    orders = [a - b for a, b in zip(small[1], below[1], strict=True)]
    if orders[0] != 0 or orders[2] != 0 or not orders[1] < sp.Rational(-1, 2):
        return None
    if orders[1] < -1:
        return sp.S.One, (sp.S.Zero, sp.S.Zero, sp.S.Zero)
    if orders[1] == -1:
        return sp.exp(sp.simplify(w * L)), (sp.S.Zero, sp.S.Zero, sp.S.Zero)
    return None
