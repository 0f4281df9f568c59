r"""The recursion of a law solved in L.

Solved are the recursions that placements lead to, each by its own rule:

- :math:`\Phi` constant: :math:`v_L = \Phi` after one block, and G at that value, a power of L;
- :math:`\Phi = v + f(l)`: a sum, and :math:`\prod (v_l + b)/v_l`, which telescopes for b = f and
  is a quotient of gamma functions otherwise;
- :math:`\Phi = a v + f`: by `sympy.rsolve`.

Nothing is simplified as a whole: irrational constants are symbols while a quotient is reduced.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from derive.laws.asymptotic import leading
from derive.symbols import L, d, l

__all__ = ["Solution", "solve", "tidy"]

LONG = 120
"""Operations above which an expression is left as it is."""
DIGITS = 40
"""Of a number from a closed form: gamma functions of large arguments cancel."""


@dataclass(frozen=True)
class Solution:
    r"""A law in closed form.

    Attributes
    ----------
    forward : expression
        :math:`v_L` in L and :math:`v_0`.
    gradient : expression or None
        :math:`\mathbb E|g_0|^2/\mathbb E|g_L|^2`; None where the product has no closed form.
    rule : str
        Which rule solved it.
    where : tuple of (Symbol, expression)
        The constants that `forward` and `gradient` are written in.
    """

    forward: sp.Expr
    gradient: sp.Expr | None
    rule: str
    where: tuple[tuple[sp.Symbol, sp.Expr], ...] = ()

    def explicit(self) -> tuple[sp.Expr, sp.Expr | None]:
        """Return forward and gradient law with the constants put in."""
        constants = dict(self.where)
        gradient = None if self.gradient is None else self.gradient.subs(constants)
        return self.forward.subs(constants), gradient

    @property
    def asymptotic(self) -> tuple[sp.Expr | None, sp.Expr | None]:
        """Return the leading terms of both for large L, None where no rule gives one."""
        constants = dict(self.where)
        forward = leading(self.forward, constants)
        return forward, None if self.gradient is None else leading(self.gradient, constants)

    def at(self, layers: int, width: int = 1024) -> tuple[float, float | None]:
        """Return both as numbers at one depth (and width, where a norm's radius is not root d)."""
        forward, gradient = self.explicit()
        sizes = {L: layers, d: width}
        back = None if gradient is None else _number(gradient.subs(sizes))
        return _number(forward.subs(sizes)), back


def _number(expr: sp.Expr) -> float:
    return float(sp.N(expr.doit(), DIGITS))


def tidy(expr: sp.Expr) -> sp.Expr:
    """Return an expression in a form that reads well: constants expanded, quotients reduced."""
    expr = sp.sympify(expr)
    if expr.is_number:
        if expr.count_ops() > LONG:
            return expr
        expanded, simple = sp.expand(sp.radsimp(expr)), sp.simplify(expr)
        return expanded if expanded.count_ops() <= simple.count_ops() + 3 else simple
    constants: dict[sp.Expr, sp.Dummy] = {}
    masked = _masked(expr, constants)
    if masked.count_ops() > LONG or masked.has(sp.Piecewise):
        return expr
    reduced = sp.factor_terms(sp.cancel(masked))
    best, expanded = min((reduced, masked), key=sp.count_ops), sp.expand(reduced)
    if expanded.count_ops() <= best.count_ops() + 1:
        best = expanded
    return best.subs({s: c for c, s in constants.items()})


def _masked(expr: sp.Expr, constants: dict[sp.Expr, sp.Dummy]) -> sp.Expr:
    """Return the expression with a symbol in place of every irrational constant."""
    if expr.is_number:
        if expr.is_Rational:
            return expr
        return constants.setdefault(tidy(expr), sp.Dummy(positive=True))
    if isinstance(expr, sp.Add | sp.Mul):
        number = expr.func(*(a for a in expr.args if a.is_number))
        rest = [_masked(a, constants) for a in expr.args if not a.is_number]
        return expr.func(_masked(number, constants), *rest)
    if isinstance(expr, sp.Pow):
        return sp.Pow(_masked(expr.base, constants), expr.exp)
    return expr


def _named(value: sp.Expr, name: str, where: list[tuple[sp.Symbol, sp.Expr]]) -> sp.Expr:
    """Return a rational value as it is, a symbol for another constant, noted in `where`."""
    if value.is_Rational or not value.is_number:
        return value
    symbol = sp.Symbol(name, positive=True)
    where.append((symbol, value))
    return symbol


def solve(phi: sp.Expr, gain: sp.Expr, v: sp.Symbol, start: sp.Expr) -> Solution | None:
    r"""Solve :math:`v_l = \Phi_l(v_{l-1})`, l = 1..L, and :math:`\prod_l G_l(v_{l-1})`.

    Parameters
    ----------
    phi, gain : expression
        :math:`\Phi` and G in `v` and the number of the block ``l`` (from 1); they may hold L.
    v : Symbol
        The mean square at the input of a block.
    start : expression
        :math:`v_0`.

    Returns
    -------
    Solution or None
        None where no rule applies.
    """
    phi, gain = tidy(phi), tidy(gain)
    added = tidy(phi - v)
    if not phi.has(v):
        return _fixed(phi, gain, v, start)
    if not added.has(v):
        return _additive(added, gain, v, start)
    slope = tidy(sp.diff(phi, v))
    if not slope.has(v) and not phi.has(l):
        return _linear(slope, tidy(phi - slope * v), gain, v, start)
    return None


def _fixed(phi: sp.Expr, gain: sp.Expr, v: sp.Symbol, start: sp.Expr) -> Solution:
    """Every block gives the same mean square, whatever it gets."""
    if phi.has(l):
        return Solution(phi.subs(l, L), None, "the mean square is set by the last block")
    first, rest = (tidy(gain.subs(v, at)) for at in (start, phi))
    rule = "every block sets the mean square; the gain is a constant"
    where: list[tuple[sp.Symbol, sp.Expr]] = []
    if rest.has(l):
        product = _ratio_product(rest, where) if tidy(first - rest) == 0 else None
        return Solution(phi, product, rule.replace("constant", "ratio"), tuple(where))
    base = _named(rest, "r", where)
    if tidy(first - rest) == 0:
        return Solution(phi, base**L, rule, tuple(where))
    if tidy(first - rest * phi / start) == 0:  # homogeneous: the first block only rescales
        return Solution(phi, phi / start * base**L, rule, tuple(where))
    return Solution(phi, first * base ** (L - 1), rule, tuple(where))


def _ratio_product(gain: sp.Expr, where: list[tuple[sp.Symbol, sp.Expr]]) -> sp.Expr | None:
    """Return the product over l = 1..L of a quotient of two linear functions of l, or None."""
    parts = sp.fraction(sp.together(gain))
    slopes = [sp.diff(part, l) for part in parts]
    if any(slope.has(l) or slope == 0 for slope in slopes):
        return None
    product = _named(tidy(slopes[0] / slopes[1]), "s", where) ** L
    for part, slope, sign, name in zip(parts, slopes, (1, -1), "pq", strict=True):
        root = _named(tidy(part.subs(l, 0) / slope), name, where)
        product *= (sp.gamma(L + 1 + root) / sp.gamma(1 + root)) ** sign
    return product


def _additive(added: sp.Expr, gain: sp.Expr, v: sp.Symbol, start: sp.Expr) -> Solution:
    where: list[tuple[sp.Symbol, sp.Expr]] = []
    backward = tidy((gain - 1) * v)  # G = 1 + b/v
    same = not backward.has(v) and tidy(backward - added) == 0
    a = _named(added, "a", where)
    if not added.has(l):
        total = a * L
    elif added.is_rational_function(l):
        total = sp.summation(added, (l, 1, L))
    else:
        total = sp.Sum(added, (l, 1, L))
    product: sp.Expr | None = None
    rule = "every block adds its branch; the gain is 1 + b/v"
    if backward == 0:
        product, rule = sp.S.One, "every block adds its branch, through which no gradient comes"
    elif same:
        product, rule = (start + total) / start, "every block adds its branch; b = a telescopes"
    elif not (backward.has(v) or backward.has(l) or added.has(l)):
        low, b = start / a, _named(backward, "b", where)
        product = sp.gamma(L + low + b / a) * sp.gamma(low)
        product /= sp.gamma(low + b / a) * sp.gamma(L + low)
    return Solution(start + total, product, rule, tuple(where))


def _linear(
    slope: sp.Expr, added: sp.Expr, gain: sp.Expr, v: sp.Symbol, start: sp.Expr
) -> Solution:
    y = sp.Function("y")
    forward = sp.rsolve(y(l + 1) - slope * y(l) - added, y(l), {y(0): start})
    product = None if gain.has(v) or gain.has(l) else gain**L
    return Solution(tidy(forward.subs(l, L)), product, "a linear recursion, by rsolve")
