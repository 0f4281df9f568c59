r"""The recursion of a law solved in L.

Solved are the recursions that placements lead to, each by its own rule:

- :math:`\Phi` constant: :math:`v_L = \Phi` after one block, and G at that value, a power of L;
- :math:`\Phi = v + f(l)`: a sum, and :math:`\prod (v_l + b)/v_l`, which telescopes for b = f and
  is a quotient of gamma functions otherwise;
- :math:`\Phi = a v + f`: by `sympy.rsolve`.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from derive.symbols import L, l

__all__ = ["Solution", "solve"]


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
    """

    forward: sp.Expr
    gradient: sp.Expr | None
    rule: str


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
    phi, gain = sp.simplify(phi), sp.simplify(gain)
    added = sp.simplify(phi - v)
    if not phi.has(v):
        return _fixed(phi, gain, v, start)
    if not added.has(v):
        return _additive(added, gain, v, start)
    slope = sp.simplify(sp.diff(phi, v))
    if not slope.has(v) and not phi.has(l):
        return _linear(slope, sp.simplify(phi - slope * v), gain, v, start)
    return None


def _fixed(phi: sp.Expr, gain: sp.Expr, v: sp.Symbol, start: sp.Expr) -> Solution:
    """Every block gives the same mean square, whatever it gets."""
    if phi.has(l):
        return Solution(phi.subs(l, L), None, "the mean square is set by the last block")
    first, rest = (sp.simplify(gain.subs(v, at)) for at in (start, phi))
    product = None
    if not rest.has(l):
        product = rest**L if sp.simplify(first - rest) == 0 else first * rest ** (L - 1)
    return Solution(phi, product, "every block sets the mean square; the gain is a constant")


def _additive(added: sp.Expr, gain: sp.Expr, v: sp.Symbol, start: sp.Expr) -> Solution:
    total = sp.summation(added, (l, 1, L)) if added.has(l) else added * L
    backward = sp.simplify((gain - 1) * v)  # G = 1 + b/v
    product: sp.Expr | None = None
    if backward == 0:
        product = sp.S.One
    elif not backward.has(v) and sp.simplify(backward - added) == 0:
        product = (start + total) / start
    elif not (backward.has(v) or backward.has(l) or added.has(l)):
        low = start / added
        ratio = backward / added
        product = (
            sp.gamma(L + low + ratio) * sp.gamma(low) / (sp.gamma(low + ratio) * sp.gamma(L + low))
        )
    return Solution(start + total, product, "every block adds its branch; the gain is 1 + b/v")


def _linear(
    slope: sp.Expr, added: sp.Expr, gain: sp.Expr, v: sp.Symbol, start: sp.Expr
) -> Solution:
    y = sp.Function("y")
    forward = sp.rsolve(y(l + 1) - slope * y(l) - added, y(l), {y(0): start})
    product = None if gain.has(v) or gain.has(l) else gain**L
    return Solution(sp.simplify(forward.subs(l, L)), product, "a linear recursion, by rsolve")
