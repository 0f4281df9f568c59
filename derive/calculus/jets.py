r"""Exact Jacobians at a small size, by dual numbers over the rationals.

Every atom gets a random rational value. A function that is not rational (a square root, an
exponential, an activation, an abstract sublayer) gets a random rational *value* and, where it is
differentiated, the value of its derivative: an identity that holds for such generic jets holds for
every function with those derivatives. So :math:`\sqrt{\cdot}` has slope one half over its value,
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

from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Reciprocal, State, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply, JacobianOf
from derive.calculus.pointwise import Pointwise
from derive.calculus.tensor import Product, Sum, Transposed, is_scalar
from derive.calculus.tokens import TOKENS, At, IndexSum, ScalarIndexSum
from derive.errors import UnknownNodeError

__all__ = ["Jet", "Jets"]

Assignment = Mapping[sp.Basic, int]


@dataclass(frozen=True)
class Jet:
    """A value and its derivative in one direction, as arrays of `Fraction`."""

    value: np.ndarray
    slope: np.ndarray


def _matrix(rows: int, cols: int, entry: Callable[[], Fraction]) -> np.ndarray:
    out = np.empty((rows, cols), dtype=object)
    for index in np.ndindex(rows, cols):
        out[index] = entry()
    return out


def _zeros(shape: tuple[int, ...]) -> np.ndarray:
    return np.full(shape, Fraction(0), dtype=object)


class Jets:
    """Evaluates expressions at random rational points, with one direction of differentiation.

    Parameters
    ----------
    sizes : mapping from symbol to int
        Sizes of the dimensions.
    tokens : int
        Number of tokens.
    seed : int
        Seed of the random values.
    """

    def __init__(self, sizes: Mapping[sp.Basic, int], tokens: int, seed: int = 0) -> None:
        self.sizes = dict(sizes)
        self.tokens = tokens
        self._random = random.Random(seed)
        self._tables: dict[Any, Any] = {}
        self._memo: dict[Any, Jet] = {}
        self._direction: tuple[int, int] | None = None

    def direction(self, token: int, feature: int) -> None:
        """Choose the direction: one feature of one token of the state."""
        self._direction = (token, feature)
        self._memo.clear()

    def __call__(self, expr: sp.Basic, at: Assignment, token: int) -> Jet:
        """Return the jet of `expr` at an assignment of indices, for quantities of one token."""
        key = (expr, token, tuple(sorted((str(k), v) for k, v in at.items())))
        jet = self._memo.get(key)
        if jet is None:
            jet = self._scalar(expr, at, token) if is_scalar(expr) else self._tensor(expr, at, token)
            self._memo[key] = jet
        return jet

    def value(self, expr: sp.Basic, at: Assignment, token: int = 0) -> np.ndarray:
        """Return the value only."""
        return self(expr, at, token).value

    def _fraction(self) -> Fraction:
        return Fraction(self._random.choice([-1, 1]) * self._random.randint(1, 19), self._random.randint(1, 7))

    def _table(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._tables:
            self._tables[key] = make()
        return self._tables[key]

    def _size(self, symbol: sp.Expr) -> int:
        return int(sp.sympify(symbol).subs(self.sizes))

    def _constant(self, value: np.ndarray) -> Jet:
        return Jet(value, _zeros(value.shape))

    def _named(self, expr: Any, position: tuple[int, ...]) -> Jet:
        rows, cols = (self._size(s) for s in expr.shape)
        key = (type(expr).__name__, expr.name, position)
        return self._constant(self._table(key, lambda: _matrix(rows, cols, self._fraction)))

    def _state(self, expr: State, token: int) -> Jet:
        rows = self._size(expr.shape[0])
        value = self._table(("state", expr.name, token), lambda: _matrix(rows, 1, self._fraction))
        slope = _zeros((rows, 1))
        if self._direction is not None and self._direction[0] == token:
            slope[self._direction[1], 0] = Fraction(1)
        return Jet(value, slope)

    def _tensor(self, expr: sp.Basic, at: Assignment, token: int) -> Jet:
        match expr:
            case State():
                return self._state(expr, token)
            case Vector() | Matrix():
                return self._named(expr, ())
            case At():
                position = at[expr.position] if expr.position in at else int(expr.position)
                if isinstance(expr.family, Vector | Matrix):
                    return self._named(expr.family, (position,))
                return self(expr.family, at, position)
            case Ones():
                size = self._size(expr.shape[0])
                return self._constant(_matrix(size, 1, lambda: Fraction(1)))
            case sp.Identity() | sp.ZeroMatrix():
                rows, cols = (self._size(s) for s in expr.shape)
                out = _zeros((rows, cols))
                if isinstance(expr, sp.Identity):
                    for k in range(rows):
                        out[k, k] = Fraction(1)
                return self._constant(out)
            case Sum():
                parts = [self(t, at, token) for t in expr.args]
                return Jet(sum(p.value for p in parts), sum(p.slope for p in parts))  # type: ignore[arg-type]
            case Product():
                return self._product(expr, at, token)
            case Transposed():
                inner = self(expr.args[0], at, token)
                return Jet(inner.value.T, inner.slope.T)
            case Diag():
                inner = self(expr.args[0], at, token)
                return Jet(_diagonal(inner.value), _diagonal(inner.slope))
            case Reciprocal():
                inner = self(expr.args[0], at, token)
                return Jet(1 / inner.value, -inner.slope / inner.value**2)
            case Pointwise():
                return self._pointwise(expr, at, token)
            case Let():
                return self(expr.definition, at, token)
            case IndexSum():
                return self._summed(expr, at, token)
            case Apply():
                return self._apply(expr, at, token)
            case JacobianOf():
                argument = self(expr.argument, at, token).value
                return self._constant(self._abstract(expr.mapping, argument)[1])
        raise UnknownNodeError(f"jets: no rule for {type(expr).__name__} ({expr})")

    def _product(self, expr: Product, at: Assignment, token: int) -> Jet:
        jets = [self(a, at, token) for a in expr.args]
        total = jets[0]
        for jet in jets[1:]:
            total = Jet(
                _times(total.value, jet.value),
                _times(total.slope, jet.value) + _times(total.value, jet.slope),
            )
        return total

    def _pointwise(self, expr: Pointwise, at: Assignment, token: int) -> Jet:
        inner = self(expr.vector, at, token)

        def derivative(order: int) -> np.ndarray:
            out = _zeros(inner.value.shape)
            for index in np.ndindex(*out.shape):
                key = ("activation", expr.activation, order, inner.value[index])
                out[index] = self._table(key, self._fraction)
            return out

        return Jet(derivative(expr.order), derivative(expr.order + 1) * inner.slope)

    def _abstract(self, mapping: Any, argument: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = argument.shape[0]
        key = ("map", mapping, tuple(argument[:, 0]))
        return self._table(
            key,
            lambda: (_matrix(size, 1, self._fraction), _matrix(size, size, self._fraction)),
        )

    def _apply(self, expr: Apply, at: Assignment, token: int) -> Jet:
        if expr.mapping.is_abstract:
            inner = self(expr.argument, at, token)
            value, slope = self._abstract(expr.mapping, inner.value)
            return Jet(value, slope.dot(inner.slope))
        body = expr.mapping.body(expr.argument)
        assert body is not None
        if expr.mapping.mixes_tokens:
            return self(body.output, {**at, TOKENS[0]: token}, token)
        return self(body.output, at, token)

    def _summed(self, expr: Any, at: Assignment, token: int) -> Jet:
        size = self.tokens if expr.index in TOKENS else self._size(expr.size)
        parts = [self(expr.summand, {**at, expr.index: k}, token) for k in range(size)]
        return Jet(sum(p.value for p in parts), sum(p.slope for p in parts))  # type: ignore[arg-type]

    # -- scalars are 1 x 1 arrays

    def _scalar(self, expr: sp.Basic, at: Assignment, token: int) -> Jet:
        if expr.is_Rational:
            return self._constant(np.array([[Fraction(int(expr.p), int(expr.q))]], dtype=object))
        if expr.is_Float:
            value = Fraction(str(expr))
            return self._constant(np.array([[value]], dtype=object))
        if isinstance(expr, ScalarLet):
            return self(expr.definition, at, token)
        if isinstance(expr, Inner):
            left, right = (self(a, at, token) for a in expr.args)
            return Jet(
                left.value.T.dot(right.value),
                left.slope.T.dot(right.value) + left.value.T.dot(right.slope),
            )
        if isinstance(expr, ScalarIndexSum):
            return self._summed(expr, at, token)
        if isinstance(expr, sp.KroneckerDelta):
            i, j = (at[a] if a in at else int(a) for a in expr.args)
            return self._constant(np.array([[Fraction(int(i == j))]], dtype=object))
        if isinstance(expr, sp.Indexed):
            key = (str(expr.base), tuple(at[i] if i in at else int(i) for i in expr.indices))
            value = self._table(key, lambda: abs(self._fraction()))
            return self._constant(np.array([[value]], dtype=object))
        if expr.is_Symbol:
            value = self._symbol(expr)
            return self._constant(np.array([[value]], dtype=object))
        if expr.is_Add:
            parts = [self(a, at, token) for a in expr.args]
            return Jet(sum(p.value for p in parts), sum(p.slope for p in parts))  # type: ignore[arg-type]
        if expr.is_Mul:
            total = self(expr.args[0], at, token)
            for factor in expr.args[1:]:
                jet = self(factor, at, token)
                total = Jet(
                    total.value * jet.value, total.slope * jet.value + total.value * jet.slope
                )
            return total
        if expr.is_Pow:
            return self._power(expr, at, token)
        if isinstance(expr, sp.exp):
            inner = self(expr.args[0], at, token)
            value = self._table(("exp", inner.value.item()), lambda: abs(self._fraction()))
            return Jet(np.array([[value]], dtype=object), value * inner.slope)
        raise UnknownNodeError(f"jets: no rule for the scalar {type(expr).__name__} ({expr})")

    def _symbol(self, symbol: sp.Symbol) -> Fraction:
        if symbol in self.sizes:
            return Fraction(self.sizes[symbol])
        return self._table(("symbol", symbol), lambda: abs(self._fraction()))

    def _power(self, expr: sp.Pow, at: Assignment, token: int) -> Jet:
        base = self(expr.base, at, token)
        exponent = expr.exp
        if not exponent.is_Rational or exponent.q not in (1, 2):
            raise UnknownNodeError(f"jets: no rule for the power {expr}")
        if exponent.q == 2:  # a generic root: its slope is one over twice its value
            root = self._table(("sqrt", base.value.item()), lambda: abs(self._fraction()))
            base = Jet(np.array([[root]], dtype=object), base.slope / (2 * root))
        power = int(exponent.p)
        return Jet(base.value**power, power * base.value ** (power - 1) * base.slope)

    # -- Jacobians

    def jacobian(self, block: sp.Basic, rows: int, cols: int) -> np.ndarray:
        """Return the exact Jacobian of a block, as blocks ``(n, n, rows, cols)``, by dual numbers."""
        out = _zeros((self.tokens, self.tokens, rows, cols))
        for j in range(self.tokens):
            for b in range(cols):
                self.direction(j, b)
                for i in range(self.tokens):
                    out[i, j, :, b] = self(block, {}, i).slope[:, 0]
        return out

    def blocks(self, expr: sp.Basic, token_block: Callable[..., sp.Basic]) -> np.ndarray:
        """Return the values of the token-to-token blocks of a Jacobian expression."""
        self._direction = None
        self._memo.clear()
        i, j = TOKENS[:2]
        general = token_block(expr, i, j)
        rows, cols = (self._size(s) for s in expr.shape)
        out = _zeros((self.tokens, self.tokens, rows, cols))
        for a in range(self.tokens):
            for b in range(self.tokens):
                out[a, b] = self.value(general, {i: a, j: b})
        return out


def _times(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Product of matrices, or with a scalar (a 1 x 1 array)."""
    if left.shape == (1, 1) or right.shape == (1, 1):
        return left * right
    return left.dot(right)


def _diagonal(column: np.ndarray) -> np.ndarray:
    size = column.shape[0]
    out = _zeros((size, size))
    for k in range(size):
        out[k, k] = column[k, 0]
    return out

