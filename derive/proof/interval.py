r"""Rigorous arithmetic: every number is an interval that contains it.

`IntervalRing` evaluates expressions of the calculus at rational values, `enclose` evaluates plain
scalars. Two sides whose intervals do not meet differ: that is what a counterexample rests on.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp
from mpmath import iv

from derive import symbols
from derive.calculus.instantiate import Instantiation, token_blocks
from derive.calculus.maps import Map
from derive.calculus.pointwise import Activation, normal_cdf, sigmoid
from derive.calculus.tensor import is_scalar
from derive.errors import DomainError, UnknownNodeError

__all__ = ["Interval", "IntervalRing", "enclose", "entries", "sizes_at"]

iv.prec = 120


class Interval:
    """A closed interval of reals, with arithmetic that encloses."""

    __slots__ = ("iv",)

    def __init__(self, value: Any) -> None:
        if isinstance(value, Fraction | sp.Rational):
            top, bottom = int(value.numerator), int(value.denominator)
            self.iv = iv.mpf(top) / iv.mpf(bottom)
        elif isinstance(value, int):
            self.iv = iv.mpf(value)
        else:
            self.iv = value

    @property
    def low(self) -> float:
        """The lower end, rounded to a float."""
        return float(self.iv.a)

    @property
    def high(self) -> float:
        """The upper end, rounded to a float."""
        return float(self.iv.b)

    def __float__(self) -> float:
        return float(self.iv.mid)

    def __add__(self, other: Any) -> Interval:
        return NotImplemented if isinstance(other, np.ndarray) else Interval(self.iv + _iv(other))

    def __sub__(self, other: Any) -> Interval:
        return NotImplemented if isinstance(other, np.ndarray) else Interval(self.iv - _iv(other))

    def __mul__(self, other: Any) -> Interval:
        return NotImplemented if isinstance(other, np.ndarray) else Interval(self.iv * _iv(other))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rtruediv__(self, other: Any) -> Interval:
        return Interval(_iv(other) / self._away_from_zero())

    def __pow__(self, power: int) -> Interval:
        return Interval((self.iv if power >= 0 else self._away_from_zero()) ** power)

    def _away_from_zero(self) -> Any:
        if 0 in self.iv:
            raise DomainError("interval: expected a divisor that is not 0")
        return self.iv

    def above(self, other: Interval) -> bool:
        """Whether every number in this interval exceeds every number in the other."""
        return bool(self.iv.a > other.iv.b)

    def apart(self, other: Interval) -> bool:
        """Whether the intervals do not meet."""
        return self.above(other) or other.above(self)

    def meets(self, low: Fraction, high: Fraction) -> bool:
        """Whether the interval is within ``[low, high]``."""
        return bool(Interval(low).iv.a <= self.iv.a and self.iv.b <= Interval(high).iv.b)


def _iv(value: Any) -> Any:
    return value.iv if isinstance(value, Interval) else Interval(value).iv


class IntervalRing:
    """Entries that are intervals around random rational values, or around given ones.

    Parameters
    ----------
    seed : int
        Of the values that are not given.
    values : mapping, optional
        By the name of a symbol a number; by that of a vector, matrix or state a nested list of
        numbers, one row each (for a state with several tokens, one column each token).
    """

    def __init__(self, seed: int = 0, values: Mapping[str, Any] | None = None) -> None:
        self._random = random.Random(seed)
        self._given = dict(values or {})
        self._table: dict[Any, Any] = {}

    def _fraction(self) -> Fraction:
        sign = self._random.choice((-1, 1))
        return Fraction(sign * self._random.randint(1, 9), self._random.randint(2, 7))

    def _value(self, key: Any, make: Any) -> Any:
        if key not in self._table:
            self._table[key] = make()
        return self._table[key]

    def number(self, value: sp.Expr) -> Interval:
        """Return a constant."""
        return Interval(Fraction(str(value)))

    def symbol(self, symbol: sp.Basic) -> Interval:
        """Return the value of a scalar: positive unless the symbol may be negative."""
        name = str(symbol)
        if name in self._given:
            return Interval(Fraction(str(self._given[name])))

        def make() -> Fraction:
            drawn = self._fraction()
            if symbol.is_integer:
                return Fraction(self._random.randint(1, 5))
            return abs(drawn) if symbol.is_nonnegative else drawn

        return Interval(self._value(("symbol", symbol), make))

    def entry(self, kind: str, name: str, position: tuple[int, ...], row: int, col: int) -> Any:
        """Return an entry of a vector, a matrix or a state."""
        if name in self._given:
            given = np.asarray(self._given[name], dtype=object)
            given = given[:, None] if given.ndim == 1 else given
            return Interval(Fraction(str(given[row, position[0] if kind == "state" else col])))
        return Interval(self._value((kind, name, position, row, col), self._fraction))

    def root(self, value: Interval) -> Interval:
        """Return the square root."""
        if value.low < 0:
            raise DomainError("interval: expected a radicand that is not negative")
        return Interval(iv.sqrt(value.iv))

    def function(self, kind: Any, value: Interval) -> Interval:
        """Return a function of one variable."""
        return Interval(_function(kind, value.iv))

    def activation(self, activation: Activation, order: int, value: Interval) -> Interval:
        """Return a derivative of an activation: of its formula, or generic where it has none."""
        if activation.is_abstract:
            key = ("phi", activation, order, _point([value]))
            return Interval(self._value(key, self._fraction))
        formula = activation.derivative(order)
        return _evaluate(formula.expr, {formula.variables[0]: value})

    def _jet(self, mapping: Map, argument: list[Interval]) -> tuple[list[Any], list[list[Any]]]:
        size = range(len(argument))
        return self._value(
            ("map", mapping, _point(argument)),
            lambda: (
                [self._fraction() for _ in size],
                [[self._fraction() for _ in size] for _ in size],
            ),
        )

    def drawn(self) -> dict[str, str]:
        """Return what was drawn besides the given values, to be shown: atoms and sublayers."""
        found: dict[str, str] = {}
        for key, value in self._table.items():
            if key[0] == "map":
                values, slopes = value
                rows = "; ".join(" ".join(map(str, row)) for row in slopes)
                point = ", ".join(f"{float(z):.6g}" for z in key[2])
                found[f"{key[1].name} at ({point})"] = (
                    f"({', '.join(map(str, values))}) with Jacobian [{rows}]"
                )
            elif key[0] == "symbol":
                found[str(key[1])] = str(value)
            elif key[0] in ("state", "weight"):
                name = key[1]
                found[name] = f"{found[name]}, {value}" if name in found else str(value)
        return found

    def map(self, mapping: Map, argument: list[Interval]) -> list[Interval]:
        """Return the value of an abstract sublayer: arbitrary, the same at the same point."""
        return [Interval(v) for v in self._jet(mapping, argument)[0]]

    def map_jacobian(self, mapping: Map, argument: list[Interval]) -> np.ndarray:
        """Return the Jacobian of an abstract sublayer."""
        rows = self._jet(mapping, argument)[1]
        return np.array([[Interval(s) for s in row] for row in rows], dtype=object)


def _point(argument: list[Interval]) -> tuple[str, ...]:
    return tuple(f"{float(a):.12e}" for a in argument)


_FUNCTIONS = {
    sp.exp: iv.exp,
    sp.log: iv.log,
    sp.sin: iv.sin,
    sp.cos: iv.cos,
    sp.gamma: iv.gamma,
    sp.Abs: abs,
}


def _function(kind: Any, value: Any) -> Any:
    if kind is sigmoid:
        return 1 / (1 + iv.exp(-value))
    if kind is sp.tanh:
        return 1 - 2 / (1 + iv.exp(2 * value))
    if kind is normal_cdf:
        return _normal_cdf(value)
    if kind not in _FUNCTIONS:
        raise UnknownNodeError(f"interval: no enclosure of the function {kind.__name__}")
    return _FUNCTIONS[kind](value)


def _normal_cdf(value: Any) -> Any:
    r"""Enclose :math:`\Phi(x) = 1/2 + \varphi(x)\sum_k x^{2k+1}/(2k+1)!!`, with its remainder."""
    if abs(value).a > 12:  # below exp(-x^2/2), or as far below 1
        tail = iv.mpf([0, iv.exp(-value * value / 2).b])
        return tail if value.b < 0 else 1 - tail
    square, total, term, k = value * value, value, value, 0
    while not (k > 4 and abs(term).b < iv.mpf("1e-32").a and (2 * square).b < 2 * k + 3):
        k += 1
        term = term * square / (2 * k + 1)
        total = total + term
    rest = abs(term) * iv.mpf([-1, 1])  # the terms at least halve from here on
    return iv.mpf(1) / 2 + iv.exp(-square / 2) / iv.sqrt(2 * iv.pi) * (total + rest)


def _chosen(expr: sp.Piecewise, at: Mapping[sp.Basic, Interval]) -> Interval:
    """Enclose the branch of a case distinction that holds."""
    for value, condition in expr.args:
        if condition == sp.true or _holds(condition, at):
            return _evaluate(value, at)
    raise DomainError(f"interval: expected a value at which one case of {expr} holds")


def _holds(condition: Any, at: Mapping[sp.Basic, Interval]) -> bool:
    """Decide a relation of scalars; at a kink it is undecided."""
    left, right = (_evaluate(side, at) for side in condition.args)
    if not left.apart(right):
        raise DomainError("interval: expected a value away from the kink of an activation")
    greater = isinstance(condition, sp.StrictGreaterThan | sp.GreaterThan)
    return left.above(right) if greater else right.above(left)


def _evaluate(expr: sp.Expr, at: Mapping[sp.Basic, Interval]) -> Interval:
    """Enclose a plain scalar."""
    expr = sp.sympify(expr)
    if expr in at:
        return at[expr]
    match expr:
        case sp.Rational():
            return Interval(expr)
        case sp.Float():
            return Interval(Fraction(str(expr)))
        case sp.pi:
            return Interval(iv.pi)
        case sp.E:
            return Interval(iv.e)
        case sp.EulerGamma:
            return Interval(iv.mpf(["0.57721566490153286060", "0.57721566490153286061"]))
        case sp.Add():
            return Interval(sum((_evaluate(a, at).iv for a in expr.args), iv.mpf(0)))
        case sp.Mul():
            out = iv.mpf(1)
            for factor in expr.args:
                out = out * _evaluate(factor, at).iv
            return Interval(out)
        case sp.Pow(exp=sp.Integer()):
            return _evaluate(expr.base, at) ** int(expr.exp)
        case sp.Pow(exp=sp.Rational(p=1, q=2)):
            return Interval(iv.sqrt(_evaluate(expr.base, at).iv))
        case sp.Pow() | sp.exp():
            base, power = expr.as_base_exp()
            if base == sp.E:
                return Interval(iv.exp(_evaluate(power, at).iv))
            root = _evaluate(base, at)
            if not root.low > 0:
                raise DomainError(f"interval: expected a positive base in {expr}")
            return Interval(iv.exp(_evaluate(power, at).iv * iv.log(root.iv)))
        case sp.Piecewise():
            return _chosen(expr, at)
        case sp.Heaviside():
            return Interval(int(_holds(expr.args[0] > 0, at)))
        case sp.Max() | sp.Min():
            parts = [_evaluate(a, at).iv for a in expr.args]
            pick = max if isinstance(expr, sp.Max) else min
            return Interval(iv.mpf([pick(p.a for p in parts), pick(p.b for p in parts)]))
        case sp.Sum() | sp.Product() | sp.harmonic():
            numbers = {s: _integer(v) for s, v in at.items()}
            done = expr.subs({s: v for s, v in numbers.items() if v is not None}).doit()
            if done.has(sp.Sum, sp.Product, sp.harmonic):
                raise UnknownNodeError(f"interval: no enclosure of {expr}")
            return _evaluate(done, at)
        case sp.Function(args=(argument,)):
            return Interval(_function(expr.func, _evaluate(argument, at).iv))
    raise UnknownNodeError(f"interval: no enclosure of {type(expr).__name__} ({expr})")


def _integer(value: Interval) -> int | None:
    return int(value.low) if value.low == value.high == int(value.low) else None


def enclose(expr: Any, at: Mapping[sp.Basic, Any] | None = None) -> Interval:
    """Return an interval that contains a scalar.

    Parameters
    ----------
    expr : expression
        A scalar of numbers, symbols and elementary functions.
    at : mapping, optional
        Rational values of its symbols.

    Raises
    ------
    UnknownNodeError
        If a symbol has no value, or a function no enclosure here.
    DomainError
        If a quotient or a root is not defined.
    """
    values = {s: Interval(Fraction(str(v))) for s, v in (at or {}).items()}
    return _evaluate(expr, values)


def sizes_at(d: int, n: int = 1, also: Mapping[sp.Basic, int] | None = None) -> dict[Any, int]:
    """Return the sizes of all dimensions at width `d` and `n` tokens."""
    found = {symbols.d: d, symbols.f: d + 1, symbols.d_h: 2, symbols.H: 2, symbols.n: n}
    return {**found, symbols.M: 2, symbols.X: 2, symbols.G: 1, symbols.L: 3, **(also or {})}


def entries(
    expr: sp.Basic, ring: IntervalRing, sizes: Mapping[Any, int], tokens: int = 1
) -> list[Interval]:
    """Return all entries of an expression, token-to-token blocks one after the other.

    Parameters
    ----------
    expr : expression
        A scalar, a vector or a matrix.
    ring : IntervalRing
        The values.
    sizes : mapping
        From `sizes_at`.
    tokens : int
        Number of tokens.
    """
    instance = Instantiation(ring, sizes, tokens)
    if is_scalar(expr):
        return [instance(expr)]
    if getattr(expr, "mixes_tokens", False):
        return list(token_blocks(instance, expr).ravel())
    return list(np.ravel(instance(expr)))
