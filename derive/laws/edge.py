r"""The edge: which scale makes the gradient ratio, or the update amplification, forget the depth.

A scale sits at one of three places, its *knob*:

- ``skip``: the factor of what a residual sum passes on, x in :math:`x + F`;
- ``branch``: the factor of what it adds, of a sublayer's output or of the norm behind it (then it
  is that norm's gain);
- ``init``: the factor of the standard deviation of all matrices.

Each multiplies what the placement has already. The condition is one of

.. math:: \bigl|\log\mathbb E|g_0|^2/\mathbb E|g_L|^2\bigr| \le \log R, \qquad A_L \le R

with the gradient ratio of the law and the update amplification of `derive.laws.update`. What is
found is the scale closest to 1 that meets it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from typing import Any

import sympy as sp
from scipy.optimize import brentq

from derive.calculus.let import Let
from derive.calculus.maps import Apply
from derive.calculus.tensor import Product, Sum, product, total
from derive.errors import DomainError, UnknownNameError
from derive.laws.initial import scheme
from derive.laws.law import DepthLaw
from derive.laws.update import update_amplification
from derive.symbols import L

__all__ = ["CONDITIONS", "KNOBS", "Edge", "ScaledLaw", "critical_scale", "residual_scaled"]

KNOBS = ("skip", "branch", "init")
CONDITIONS = ("gradient", "update")
DECADES = 6
"""Scales are sought from 1e-6 to 1e6."""
GRID = 2
"""Trial scales a decade, between which the condition is bracketed."""
FLAT = 1e-9
"""Change of a logarithm over the decade around 1 below which a knob does nothing."""
BEYOND = 1e3
"""Stands for a logarithm that is beyond a float."""
TARGET = sp.Symbol("R", positive=True)
SCALE = sp.Symbol("s", positive=True)


@dataclass(frozen=True)
class ScaledLaw(DepthLaw):
    """A law whose residual sums and matrices have a further factor.

    Parameters
    ----------
    skip, branch, gain : float or expression
        Factors of what a residual sum passes on, of what it adds, and of all matrices.
    """

    skip: Any = 1.0
    branch: Any = 1.0
    gain: Any = 1.0

    def __post_init__(self) -> None:
        """Check as `DepthLaw`, and put the factor of the matrices into the initialisation."""
        if self.gain != 1:
            base, factor = scheme(self.init), self.gain

            def variance(fan_in: Any, fan_out: Any) -> Any:
                return base.variance(fan_in, fan_out) * factor**2

            object.__setattr__(self, "init", replace(base, variance=variance))
        super().__post_init__()

    @classmethod
    def of(cls, law: DepthLaw, knob: str, scale: Any) -> ScaledLaw:
        """Return a law with one knob at a scale.

        Raises
        ------
        UnknownNameError
            If there is no such knob.
        """
        if knob not in KNOBS:
            raise UnknownNameError(f"knob: expected one of {', '.join(KNOBS)}, got {knob!r}")
        given = {one.name: getattr(law, one.name) for one in fields(DepthLaw)}
        return cls(**given, **{"gain" if knob == "init" else knob: scale})

    def blocks_of(self, number: int, layers: int) -> dict[str, sp.Basic]:
        """Return the new value of each stream, its residual sums scaled."""
        found = super().blocks_of(number, layers)
        if self.skip == 1 and self.branch == 1:
            return found
        return {name: residual_scaled(expr) for name, expr in found.items()}

    def _scalars(self, name: str, number: Any, layers: Any) -> dict[str, Any]:
        own = {"s_skip": self.skip, "s_branch": self.branch}
        return {**super()._scalars(name, number, layers), **own}


@lru_cache(maxsize=512)
def residual_scaled(expr: sp.Basic) -> sp.Basic:
    r"""Return a block whose sums have ``s_skip`` before what they pass on, ``s_branch`` else.

    A term of a sum is a branch if it is a sublayer's output, with norms and factors in front or
    none, or a multiple of a sum with one in it; anything else is passed on. A sum without a branch
    is left alone.

    Examples
    --------
    >>> from derive import block
    >>> print(residual_scaled(block("post")))
    N(s_skip x + s_branch F(x))
    """
    if isinstance(expr, Sum):
        branches = [_is_branch(term) for term in expr.args]
        if not any(branches):
            return expr
        return total(
            product([sp.Symbol("s_branch" if branch else "s_skip"), _inside(term)])
            for term, branch in zip(expr.args, branches, strict=True)
        )
    return _inside(expr)


def _inside(expr: sp.Basic) -> sp.Basic:
    if isinstance(expr, Sum):
        return residual_scaled(expr)
    if isinstance(expr, Let):
        return Let(expr.name, residual_scaled(expr.definition))
    if isinstance(expr, Product) and not isinstance(expr.args[-1], Sum):
        return product([*expr.args[:-1], _inside(expr.args[-1])])
    if isinstance(expr, Apply):
        return Apply(expr.mapping, _inside(expr.argument))
    return expr


def _is_branch(term: sp.Basic) -> bool:
    if isinstance(term, Product):
        rest = term.args[-1]
        return any(map(_is_branch, rest.args)) if isinstance(rest, Sum) else _is_branch(rest)
    if isinstance(term, Let):
        return _is_branch(term.definition)
    if isinstance(term, Apply):
        return term.mapping.family != "norm" or _is_branch(term.argument)
    return False


@dataclass(frozen=True)
class Edge:
    r"""The scale of one knob at which a condition holds.

    Attributes
    ----------
    condition, knob : str
        Which.
    verdict : str
        ``holds`` as it is (scale 1), ``scale`` where one was found, ``no effect`` where the knob
        does not enter, ``out of reach`` where no scale from 1e-6 to 1e6 meets it.
    scale : float or None
        The scale closest to 1 that meets the condition.
    value : float
        The gradient ratio or the update amplification there; at scale 1 where there is none.
    formula : expression or None
        The scale of a skip or branch in L and R in closed form, where the law has one.
    power : float or None
        p of scale ~ L^p, from L to 4 L blocks.
    """

    condition: str
    knob: str
    verdict: str
    scale: float | None
    value: float
    formula: sp.Expr | None = None
    power: float | None = None


def critical_scale(
    law: DepthLaw,
    knob: str,
    layers: int,
    *,
    condition: str = "gradient",
    target: float = 2.0,
    **at: Any,
) -> Edge:
    r"""Return the scale of a knob at which the gradient ratio or the update amplification is held.

    Parameters
    ----------
    law : DepthLaw
        The law.
    knob : str
        One of `KNOBS`.
    layers : int
        L.
    condition : str
        One of `CONDITIONS`.
    target : float
        R, above 1 for the gradient ratio, above 0 for the update amplification.
    **at
        Further arguments of `DepthLaw.predict`.

    Raises
    ------
    UnknownNameError
        If there is no such knob or condition.
    DomainError
        If the target is out of range, or as for `DepthLaw.predict`.
    """
    if condition not in CONDITIONS:
        raise UnknownNameError(
            f"condition: expected one of {', '.join(CONDITIONS)}, got {condition!r}"
        )
    least = 1.0 if condition == "gradient" else 0.0
    if not least < target < math.inf:
        raise DomainError(f"target: expected above {least:g}, got {target}")
    measure = _measure(condition, layers, at)
    here = measure(ScaledLaw.of(law, knob, 1.0))
    if math.isnan(here):
        law.predict(layers, **at)  # says why
    allowed = math.log(target)

    @cache
    def excess(power: float) -> float:
        """Return how far the logarithm is beyond its bound, at a scale of 10 to that power."""
        found = measure(ScaledLaw.of(law, knob, 10**power))
        if math.isnan(found):
            return BEYOND
        return (abs(found) if condition == "gradient" else found) - allowed

    if excess(0.0) <= FLAT:
        return Edge(condition, knob, "holds", 1.0, math.exp(here))
    power = _nearest(excess)
    if power is None:
        near = [excess(k) - excess(0.0) for k in (-1.0, -0.5, 0.5, 1.0)]
        verdict = "no effect" if all(abs(k) < 1e3 * FLAT for k in near) else "out of reach"
        return Edge(condition, knob, verdict, None, math.exp(here))
    scale = 10**power
    found = measure(ScaledLaw.of(law, knob, scale))
    formula = _formula(law, knob, found > 0) if condition == "gradient" and knob != "init" else None
    other = layers // 4 if layers >= 16 else 4 * layers
    there = _measure(condition, other, at)
    growth = _matching(lambda k: there(ScaledLaw.of(law, knob, 10**k)) - found, power)
    exponent = None if growth is None else (growth - power) / math.log10(other / layers)
    return Edge(condition, knob, "scale", scale, math.exp(found), formula, exponent)


def _measure(condition: str, layers: int, at: Mapping[str, Any]) -> Callable[[DepthLaw], float]:
    """Return the logarithm of what a condition bounds; nan where it is beyond a float."""

    def measure(law: DepthLaw) -> float:
        try:
            found = law.predict(layers, **at)
            if condition == "update":
                return math.log(update_amplification(found))
            return math.log(found.gradient_ratio)
        except (DomainError, ValueError, OverflowError):
            return math.nan

    return measure


def _nearest(excess: Callable[[float], float]) -> float | None:
    """Return the power closest to 0 at which the excess is 0, coming from where it is above."""
    for k in range(1, DECADES * GRID + 1):
        found = [
            float(brentq(excess, *sorted(((k - 1) * sign / GRID, k * sign / GRID)), xtol=1e-11))
            for sign in (1, -1)
            if excess(sign * k / GRID) <= 0
        ]
        if found:
            return min(found, key=abs)
    return None


def _matching(distance: Callable[[float], float], near: float) -> float | None:
    """Return the power near another at which a distance is 0, within a factor of 64 in scale."""
    low, high = near - 1.8, near + 1.8
    ends = distance(low), distance(high)
    if not all(map(math.isfinite, ends)) or ends[0] * ends[1] > 0:
        return None
    return float(brentq(lambda k: distance(k) if math.isfinite(distance(k)) else BEYOND, low, high))


def _formula(law: DepthLaw, knob: str, above: bool) -> sp.Expr | None:
    """Return the scale that gives a ratio of R (or 1/R), where the solved law can be inverted."""
    if law.open_state:
        return None
    solved = ScaledLaw.of(law, knob, SCALE).solution
    if solved is None or solved.gradient is None:
        return None
    ratio = solved.gradient.subs(dict(solved.where))
    wanted = TARGET if above else 1 / TARGET
    if isinstance(ratio, sp.Pow) and ratio.exp == L:
        ratio, wanted = ratio.base, wanted ** (1 / L)
    square, value = sp.symbols("S Q", positive=True)
    equation = sp.together(ratio.subs(SCALE, sp.sqrt(square)) - value)
    if not equation.is_rational_function(square):
        return None
    roots = sp.solve(sp.numer(equation), square)
    if len(roots) != 1 or roots[0].has(square):
        return None
    return sp.sqrt(sp.factor(roots[0])).subs(value, wanted)
