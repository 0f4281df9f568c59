r"""The law of weight gradients in symbols: in the moments of a block, and solved in l and L.

.. math:: \frac{\mathbb E\lVert\partial\mathcal L/\partial W_l\rVert_F^2}{\mathbb E|g_L|^2}
    = w(v_{l-1}, v_g), \qquad v_g = \frac{\mathbb E|g_l|^2}{\mathbb E|g_L|^2}
    = \frac{R(L)}{R(l)},

with w from `derive.laws.weight_gradients`, and :math:`v_l` and the gradient ratio R(L) of a stack
of L blocks from `derive.laws.solve`. Scalars that depend on the depth of the whole stack keep it.
"""

from __future__ import annotations

import sympy as sp

from derive.laws.law import GRADIENT, DepthLaw, _sized
from derive.laws.moments import Moments
from derive.laws.solve import solve, tidy
from derive.laws.weight_gradients import weight_gradients
from derive.symbols import L, l

__all__ = ["weight_moments", "weight_solution"]


def weight_moments(law: DepthLaw) -> dict[str, sp.Expr]:
    r"""Return the gradient of each matrix in v, c of a block's input and v_g, c_g at its output.

    Empty where there is no law in symbols: for streams, mixtures, layers, causal attention, for an
    activation without closed form, and where several tokens do not meet in an attention, so that
    the correlations they begin with stay in the law.

    Parameters
    ----------
    law : DepthLaw
        The law.

    Raises
    ------
    UnknownNodeError
        As for `derive.laws.weight_gradients.weight_gradients`.
    """
    symbolic = law.symbolic
    if symbolic is None or (law.recursion is not None and law.tokens > 1):
        return {}
    _, arriving = symbolic.reverse({("x", "x"): Moments(*GRADIENT)})
    return {name: _sized(value) for name, value in weight_gradients(symbolic, arriving).items()}


def weight_solution(
    law: DepthLaw,
) -> tuple[dict[str, sp.Expr], tuple[tuple[sp.Symbol, sp.Expr], ...]]:
    r"""Return the gradient of each matrix of block l of L in closed form, and its constants.

    Empty where the recursion is not solved for the signal and for the gradient.

    Parameters
    ----------
    law : DepthLaw
        The law.

    Examples
    --------
    >>> weight_solution(DepthLaw("pre"))
    ({'W_1': d*(L + 2)/(2*(l + 2)), 'W_2': 2*d*(L + 2)/(l + 2)}, ())
    """
    moments, whole = weight_moments(law), sp.Symbol("N", integer=True, positive=True)
    if not moments or law.recursion is None or law.symbolic is None:
        return {}, ()
    v = law.symbolic.state["x", "x"].v
    phi, gain = (part.subs(L, whole) for part in law.recursion)
    found = solve(phi, gain, v, sp.S.One)
    if found is None or found.gradient is None or tidy(found.forward.subs(L, 0)) != 1:
        return {}, ()
    at = {
        v: found.forward.subs(L, l - 1),
        GRADIENT[0]: found.gradient / found.gradient.subs(L, l),
    }
    return {
        name: sp.powsimp(tidy(value.subs(L, whole).subs(at).subs(whole, L)))
        for name, value in moments.items()
    }, tuple((symbol, value.subs(whole, L)) for symbol, value in found.where)
