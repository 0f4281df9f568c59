r"""Exact Jacobians at a small size, by dual numbers over the rationals.

Every atom gets a random rational value. A function that is not rational (a square root, an
exponential, an activation, an abstract sublayer) gets a random rational *value* and, where it is
differentiated, the value of its derivative: an identity that holds for such generic jets holds for
every function with those derivatives. So :math:`\sqrt{\cdot}` has slope one over twice its value,
the exponential is its own slope, and an activation's derivatives are independent.

The derivative is carried by dual arithmetic; none of the rules of `derive.calculus.differential`
is used, which makes this an oracle for them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from derive.calculus.instantiate import Instantiation, token_blocks
from derive.calculus.maps import Map
from derive.calculus.pointwise import Activation

__all__ = ["Dual", "JetRing", "exact_blocks", "exact_jacobian"]


@dataclass(frozen=True, slots=True)
class Dual:
    """A value and its derivative in one direction."""

    value: Fraction
    slope: Fraction = Fraction(0)

    def __add__(self, other: Any) -> Dual:
        if isinstance(other, np.ndarray):
            return NotImplemented
        other = _dual(other)
        return Dual(self.value + other.value, self.slope + other.slope)

    def __mul__(self, other: Any) -> Dual:
        if isinstance(other, np.ndarray):
            return NotImplemented
        other = _dual(other)
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rtruediv__(self, other: Any) -> Dual:
        return _dual(other) * self**-1

    def __pow__(self, power: int) -> Dual:
        return Dual(self.value**power, power * self.value ** (power - 1) * self.slope)


def _dual(value: Any) -> Dual:
    return value if isinstance(value, Dual) else Dual(Fraction(value))


class JetRing:
    """Dual numbers with generic jets of every function; one table of values for all directions."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._table: dict[Any, Any] = {}
        self.direction: tuple[int, int] | None = None
        self.variable: str | None = None

    def _fraction(self) -> Fraction:
        sign = self._random.choice((-1, 1))
        return Fraction(sign * self._random.randint(1, 19), self._random.randint(1, 7))

    def _positive(self) -> Fraction:
        return abs(self._fraction())

    def _value(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._table:
            self._table[key] = make()
        return self._table[key]

    def number(self, value: sp.Expr) -> Dual:
        """Return a constant."""
        return Dual(Fraction(str(value)))

    def symbol(self, symbol: sp.Basic) -> Dual:
        """Return a random positive constant."""
        return Dual(self._value(("symbol", symbol), self._positive))

    def entry(self, kind: str, name: str, position: tuple[int, ...], row: int, col: int) -> Dual:
        """Return a random value; the chosen feature of the variable has slope one."""
        value = self._value((kind, name, position, row, col), self._fraction)
        varies = kind == "state" and self.variable in (None, name)
        varies = varies and self.direction == (position[0], row)
        return Dual(value, Fraction(int(varies)))

    def root(self, value: Dual) -> Dual:
        """Return a generic root."""
        root = self._value(("root", value.value), self._positive)
        return Dual(root, value.slope / (2 * root))

    def function(self, kind: Any, value: Dual) -> Dual:
        """Return a generic value, with the slope that the function's derivative makes of it."""
        result = self._value((kind, value.value), self._positive)
        return Dual(result, _slope(kind, value.value, result) * value.slope)

    def activation(self, activation: Activation, order: int, value: Dual) -> Dual:
        """Return a generic derivative."""
        here, above = (
            self._value(("activation", activation, k, value.value), self._fraction)
            for k in (activation.least_order(order), activation.least_order(order + 1))
        )
        return Dual(here, above * value.slope)

    def _jet(
        self, mapping: Map, argument: list[Dual]
    ) -> tuple[list[Fraction], list[list[Fraction]]]:
        size = range(len(argument))
        return self._value(
            ("map", mapping, tuple(a.value for a in argument)),
            lambda: (
                [self._fraction() for _ in size],
                [[self._fraction() for _ in size] for _ in size],
            ),
        )

    def map(self, mapping: Map, argument: list[Dual]) -> list[Dual]:
        """Return a generic value, with slope Jacobian times slope."""
        values, slopes = self._jet(mapping, argument)
        return [
            Dual(v, sum((s * a.slope for s, a in zip(row, argument, strict=True)), Fraction(0)))
            for v, row in zip(values, slopes, strict=True)
        ]

    def map_jacobian(self, mapping: Map, argument: list[Dual]) -> np.ndarray:
        """Return the generic Jacobian."""
        _, slopes = self._jet(mapping, argument)
        return np.array([[Dual(s) for s in row] for row in slopes], dtype=object)


def _slope(kind: Any, argument: Fraction, result: Fraction) -> Fraction:
    """Return the derivative of a function in terms of its argument and its value."""
    t, value = sp.Dummy("t"), sp.Dummy("value")
    derivative = kind(t).diff(t).xreplace({kind(t): value})
    return Fraction(str(derivative.subs({t: sp.Rational(argument), value: sp.Rational(result)})))


def exact_jacobian(
    block: sp.Basic,
    ring: JetRing,
    sizes: Mapping[sp.Basic, int],
    tokens: int,
    width: int,
    variable: str | None = None,
) -> np.ndarray:
    r"""Return the exact Jacobian of a block by dual numbers.

    Parameters
    ----------
    block : expression
        A column vector.
    ring : JetRing
        The values.
    sizes : mapping from symbol to int
        Sizes of the dimensions.
    tokens, width : int
        Number of tokens, features of the state.
    variable : str, optional
        Name of the state that varies, where there are several; all of them by default.

    Returns
    -------
    array of Fraction, (n, n, rows, width)
        Block ``[i, j]`` is :math:`\partial y_i/\partial x_j`.
    """
    instance = Instantiation(ring, sizes, tokens)
    ring.variable = variable
    rows = instance.size(block.shape[0])
    out = np.full((tokens, tokens, rows, width), Fraction(0))
    for j in range(tokens):
        for feature in range(width):
            ring.direction = (j, feature)
            instance.forget()
            for i in range(tokens):
                out[i, j, :, feature] = [v.slope for v in instance(block, {}, i)[:, 0]]
    ring.direction = None
    return out


def exact_blocks(
    jacobian: sp.Basic, ring: JetRing, sizes: Mapping[sp.Basic, int], tokens: int
) -> np.ndarray:
    """Return the token-to-token blocks of a Jacobian expression at the same values.

    Returns
    -------
    array of Fraction, (n, n, rows, cols)
    """
    ring.direction = None
    duals = token_blocks(Instantiation(ring, sizes, tokens), jacobian)
    out = np.full(duals.shape, Fraction(0))
    for index in np.ndindex(*duals.shape):
        out[index] = duals[index].value  # type: ignore[attr-defined]
    return out
