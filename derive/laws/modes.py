r"""Laws of uniform attention in closed form: the mean over tokens, and what deviates from it.

Uniform attention adds to every token the same multiple of the mean over tokens. In the variables

.. math:: m = \frac{v + (n-1)c}{n}, \qquad \delta = v - c, \qquad v = m + \frac{n-1}n\,\delta

a block :math:`\alpha x + \beta A(x)`, with any norms, multiplies each by a factor of its own,
:math:`m' = (\alpha^2 + \beta^2g)\,m` and :math:`\delta' = \alpha^2\delta`, and the transposed block
multiplies the same two parts of a gradient by the same factors. Hence for every placement with one
stream whose sublayers are all uniform attention, at every depth,

.. math:: \frac{\mathbb E|g_0|^2}{\mathbb E|g_L|^2}
    = B\,\frac{m_L}{m_0} + (1 - B)\,\frac{\delta_L}{\delta_0}, \qquad
    A = \frac{1 + (n-1)\rho}n,\quad B = \frac{1 + (n-1)r}n,

:math:`\rho` being the correlation of two tokens of the input and r that of the gradient at the
output: the forward moments are the law of the gradient. Solved in L are

- post-norm: v is set, and :math:`m/\delta` grows by a constant factor q a block, which makes
  :math:`1/(1 - \rho_l)` a linear recursion; the gradient ratio is
  :math:`(1 + B(q^L - 1))/(1 + A(q^L - 1))`, between B/A and 1;
- blocks that add a constant to m and leave :math:`\delta` (a norm behind the branch);
- blocks without norm, powers.

Where none applies (pre-norm: :math:`m' = m + gm/v`) the gradient is given in terms of :math:`v_L`.

Source: own; the bounds 1/n and n for post-norm as measured in docs/laws.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp

from derive.errors import DomainError
from derive.laws.asymptotic import leading
from derive.laws.moments import Moments
from derive.laws.solve import tidy
from derive.symbols import L, d, l, n

__all__ = ["A", "B", "TokenSolution", "solve_modes"]

A = sp.Symbol("A", positive=True)
"""Share of the mean over tokens in the input."""
B = sp.Symbol("B", positive=True)
"""Share of the mean over tokens in the gradient at the output."""
END = sp.Symbol("v_L", positive=True)
_m, _delta = sp.symbols("m delta", positive=True)


@dataclass(frozen=True)
class TokenSolution:
    r"""A law of uniform attention in L, n, and the shares A and B.

    Attributes
    ----------
    forward : expression or None
        :math:`v_L`; None where it is not solved.
    correlation : expression
        :math:`c_L/v_L`; in :math:`v_L` where that is not solved.
    gradient : expression
        :math:`\mathbb E|g_0|^2/\mathbb E|g_L|^2`; in :math:`v_L` where that is not solved.
    asymptotic : tuple of (expression or None)
        Leading terms of forward and gradient law for large L, at A > 0.
    rule : str
        Which rule solved it.
    """

    forward: sp.Expr | None
    correlation: sp.Expr
    gradient: sp.Expr
    asymptotic: tuple[sp.Expr | None, sp.Expr | None]
    rule: str

    def at(
        self,
        layers: int,
        tokens: int,
        correlation: float = 0.0,
        gradient_correlation: float = 0.0,
        *,
        forward: float | None = None,
        width: int = 1024,
    ) -> tuple[float, float]:
        """Return forward and gradient law as numbers; an unsolved one from its forward value.

        Raises
        ------
        DomainError
            If that is not solved and not given.
        """
        shares = [(1 + (tokens - 1) * r) / tokens for r in (correlation, gradient_correlation)]
        sizes: dict[sp.Symbol, Any] = {L: layers, n: tokens, d: width}
        sizes |= dict(zip((A, B), shares, strict=True))
        if self.forward is not None:
            forward = float(self.forward.subs(sizes))
        if forward is None:
            raise DomainError("forward: expected v_L, which is not solved, got none")
        return forward, float(self.gradient.subs({**sizes, END: forward}))


def solve_modes(ahead: Moments, v: sp.Symbol, c: sp.Symbol, start: sp.Expr) -> TokenSolution | None:
    r"""Solve the recursion of (v, c) of a block whose sublayer is uniform attention.

    Parameters
    ----------
    ahead : Moments
        The next v and c, in `v`, `c`, n, L and the number of the block ``l``.
    v, c : Symbol
        The state.
    start : expression
        :math:`v_0`.

    Returns
    -------
    TokenSolution or None
        None where the block does not multiply the two parts by factors, or these depend on l.
    """
    share = (n - 1) / n
    state = {v: _m + share * _delta, c: _m - _delta / n}
    after = [sp.together(sp.sympify(one).subs(state, simultaneous=True)) for one in ahead]
    apart = tidy(sp.simplify(after[0] - after[1]))
    mean = tidy(sp.simplify(after[0] - share * apart))
    kept, grown = (tidy(sp.simplify(x / y)) for x, y in ((apart, _delta), (mean, _m)))
    begin, rest = A * start, (1 - A) * start  # m_0, and (n-1)/n delta_0
    state_symbols = {_m, _delta}
    total = sp.simplify(after[0])
    quotient = tidy(sp.simplify(grown / kept))
    changing = any(one.has(l) for one in after)
    if changing and kept != 1:
        return None
    if not (total.free_symbols | quotient.free_symbols) & state_symbols and not changing:
        weight = 1 + A * (quotient**L - 1)
        end = [total * A * quotient**L / weight, total * (1 - A) / weight]
        rule = "1/(1 - c/v) is a linear recursion"
    elif kept == 1 and not changing and not tidy(mean - _m).free_symbols & state_symbols:
        end = [begin + L * tidy(mean - _m), rest]
        rule = "every block adds to the mean over tokens, and leaves what deviates"
    elif not (kept.free_symbols | grown.free_symbols) & state_symbols and not changing:
        end = [begin * grown**L, rest * kept**L]
        rule = "mean over tokens and deviation grow by constant factors"
    elif kept == 1:
        correlation = (END - rest * n / (n - 1)) / END
        gradient = B * (END - rest) / begin + 1 - B
        slope = sp.limit(sp.simplify((mean - _m).subs(_delta, 1)), _m, sp.oo)
        added = None
        if slope.is_positive and slope.is_finite and not slope.has(L):
            added = leading(sp.summation(slope, (l, 1, L)))
        far = (added, None if added is None else B * added / begin)
        return TokenSolution(
            None, correlation, gradient, far, "the gradient follows from v_L; v_L is not solved"
        )
    else:
        return None
    forward = total if rule.startswith("1/") else end[0] + end[1]
    correlation = 1 - tidy(sp.simplify(end[1] * n / (n - 1) / forward))
    gradient = sp.simplify(B * end[0] / begin) + sp.simplify((1 - B) * end[1] / rest)
    if rule.startswith("1/"):
        gradient = total / start * (1 + B * (quotient**L - 1)) / weight
    return TokenSolution(
        forward, correlation, gradient, (leading(forward), leading(gradient)), rule
    )
