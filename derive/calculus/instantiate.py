r"""Instantiation at concrete sizes: an expression becomes an array of entries of some ring.

`Instantiation` walks the nodes; the ring says what an entry of an atom is and what a root, an
exponential, an activation or an abstract sublayer does to entries: SymPy expressions
(`derive.calculus.explicit`) or dual numbers over the rationals (`derive.calculus.jets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import sympy as sp

from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Reciprocal, State, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply, JacobianOf, Map
from derive.calculus.pointwise import Activation, Pointwise
from derive.calculus.structured import _Structured
from derive.calculus.tensor import Product, Sum, Transposed, is_scalar
from derive.calculus.tokens import TOKENS, At, IndexSum, ScalarIndexSum
from derive.calculus.trace import Trace
from derive.errors import DomainError, UnknownNodeError

__all__ = ["Instantiation", "Ring", "token_blocks"]


class Ring(Protocol):
    """What the entries are."""

    def number(self, value: sp.Expr) -> Any:
        """Return a rational or floating-point constant."""

    def symbol(self, symbol: sp.Basic) -> Any:
        """Return a free scalar (``eps``, ``alpha``, an entry of a mask)."""

    def entry(self, kind: str, name: str, position: tuple[int, ...], row: int, col: int) -> Any:
        """Return an entry of a named vector, matrix or state; `position` is its token or head."""

    def root(self, value: Any) -> Any:
        """Return the square root."""

    def function(self, kind: Any, value: Any) -> Any:
        """Return a SymPy function of one variable: an exponential, a logarithm, ..."""

    def activation(self, activation: Activation, order: int, value: Any) -> Any:
        """Return a derivative of an activation."""

    def map(self, mapping: Map, argument: list[Any]) -> list[Any]:
        """Return the value of an abstract sublayer."""

    def map_jacobian(self, mapping: Map, argument: list[Any]) -> np.ndarray:
        """Return the Jacobian of an abstract sublayer."""


class Instantiation:
    """Evaluates expressions entry by entry.

    Parameters
    ----------
    ring : Ring
        What the entries are.
    sizes : mapping from symbol to int
        Sizes of the dimensions.
    tokens : int
        Number of tokens.

    Raises
    ------
    DomainError
        If a dimension has no size.
    """

    def __init__(self, ring: Ring, sizes: Mapping[sp.Basic, int], tokens: int = 1) -> None:
        self.ring = ring
        self.sizes = dict(sizes)
        self.tokens = tokens
        self._memo: dict[Any, Any] = {}

    def forget(self) -> None:
        """Drop what was computed, for a ring whose entries have changed."""
        self._memo.clear()

    def __call__(
        self, expr: sp.Basic, at: Mapping[sp.Basic, int] | None = None, token: int = 0
    ) -> Any:
        """Return the array (for a matrix) or the entry (for a scalar) of an expression.

        `at` assigns the free indices; `token` is the token that quantities without index belong to.
        """
        at = {} if at is None else at
        key = (expr, token, tuple(sorted((str(k), v) for k, v in at.items())))
        if key not in self._memo:
            walk = self._scalar if is_scalar(expr) else self._tensor
            self._memo[key] = walk(expr, at, token)
        return self._memo[key]

    def size(self, symbol: sp.Expr) -> int:
        """Return the size of a dimension."""
        value = sp.sympify(symbol).subs(self.sizes)
        if not value.is_Integer:
            raise DomainError(f"sizes: expected a size for {value}, got {self.sizes}")
        return int(value)

    def _named(self, kind: str, expr: Any, position: tuple[int, ...]) -> np.ndarray:
        out = np.empty([self.size(s) for s in expr.shape], dtype=object)
        for row, col in np.ndindex(*out.shape):
            out[row, col] = self.ring.entry(kind, expr.name, position, row, col)
        return out

    def _filled(self, shape: tuple[sp.Expr, ...], diagonal: int, elsewhere: int) -> np.ndarray:
        out = np.full([self.size(s) for s in shape], self.ring.number(sp.Integer(elsewhere)))
        for k in range(min(out.shape)):
            out[k, k] = self.ring.number(sp.Integer(diagonal))
        return out

    def _tensor(self, expr: sp.Basic, at: Mapping[sp.Basic, int], token: int) -> np.ndarray:
        match expr:
            case State():
                return self._named("state", expr, (token,))
            case _Structured():
                free = self._named("weight", expr, ())
                return expr.filled(free, lambda k: self.ring.number(sp.Integer(k)))
            case Vector() | Matrix():
                return self._named("weight", expr, ())
            case At(family=Vector() | Matrix()):
                return self._named("weight", expr.family, (_position(expr.position, at),))
            case At():
                return self(expr.family, at, _position(expr.position, at))
            case Ones():
                return self._filled(expr.shape, 1, 1)
            case sp.Identity():
                return self._filled(expr.shape, 1, 0)
            case sp.ZeroMatrix():
                return self._filled(expr.shape, 0, 0)
            case Sum():
                return _add(self(t, at, token) for t in expr.args)
            case Product():
                out = self(expr.args[0], at, token)
                for factor in expr.args[1:]:
                    out = _times(out, self(factor, at, token))
                return out
            case Transposed():
                return self(expr.args[0], at, token).T
            case Diag():
                return self._diagonal(self(expr.args[0], at, token))
            case Reciprocal():
                return self._each(lambda v: 1 / v, self(expr.args[0], at, token))
            case Pointwise():
                function = self.ring.activation
                return self._each(
                    lambda v: function(expr.activation, expr.order, v), self(expr.vector, at, token)
                )
            case Let():
                return self(expr.definition, at, token)
            case IndexSum():
                return _add(self._summands(expr, at, token))
            case Apply():
                return self._apply(expr, at, token)
            case JacobianOf():
                argument = self(expr.argument, at, token)
                return self.ring.map_jacobian(expr.mapping, list(argument[:, 0]))
        raise UnknownNodeError(f"instantiation: no rule for {type(expr).__name__} ({expr})")

    def _diagonal(self, column: np.ndarray) -> np.ndarray:
        out = np.full((len(column),) * 2, self.ring.number(sp.S.Zero))
        for k, value in enumerate(column[:, 0]):
            out[k, k] = value
        return out

    @staticmethod
    def _each(function: Any, array: np.ndarray) -> np.ndarray:
        out = np.empty(array.shape, dtype=object)
        for index in np.ndindex(*array.shape):
            out[index] = function(array[index])
        return out

    def _apply(self, expr: Apply, at: Mapping[sp.Basic, int], token: int) -> np.ndarray:
        body = expr.body
        if body is None:
            argument = self(expr.argument, at, token)
            out = np.empty((len(argument), 1), dtype=object)
            out[:, 0] = self.ring.map(expr.mapping, list(argument[:, 0]))
            return out
        if expr.mapping.mixes_tokens:
            return self(body.output, {**at, TOKENS[0]: token}, token)
        return self(body.output, at, token)

    def _summands(self, expr: Any, at: Mapping[sp.Basic, int], token: int) -> Any:
        size = self.tokens if expr.index in TOKENS else self.size(expr.size)
        return (self(expr.summand, {**at, expr.index: k}, token) for k in range(size))

    def _scalar(self, expr: sp.Basic, at: Mapping[sp.Basic, int], token: int) -> Any:
        if expr.is_number and (expr.is_Rational or expr.is_Float):
            return self.ring.number(expr)
        match expr:
            case ScalarLet():
                return self(expr.definition, at, token)
            case Inner():
                left, right = (self(a, at, token) for a in expr.args)
                return _add(a * b for a, b in zip(left[:, 0], right[:, 0], strict=True))
            case Trace():
                return _add(np.diagonal(self(expr.args[0], at, token)))
            case ScalarIndexSum():
                return _add(self._summands(expr, at, token))
            case sp.KroneckerDelta():
                i, j = (_position(a, at) for a in expr.args)
                return self.ring.number(sp.Integer(i == j))
            case sp.Indexed():
                place = [_position(i, at) for i in expr.indices]
                return self.ring.symbol(sp.Indexed(expr.base, *place))
            case sp.Symbol():
                if expr in self.sizes:
                    return self.ring.number(sp.Integer(self.sizes[expr]))
                return self.ring.symbol(expr)
            case sp.Add():
                return _add(self(a, at, token) for a in expr.args)
            case sp.Mul():
                out = self(expr.args[0], at, token)
                for factor in expr.args[1:]:
                    out = out * self(factor, at, token)
                return out
            case sp.Pow() if expr.exp.is_Rational and expr.exp.q in (1, 2):
                base = self(expr.base, at, token)
                if expr.exp.q == 2 and expr.base in self.sizes:  # SymPy merges d * sqrt(d)
                    sign = 1 if expr.exp > 0 else -1
                    rest = int(expr.exp - sp.Rational(sign, 2))
                    return self.ring.root(base) ** sign * base**rest
                return (self.ring.root(base) if expr.exp.q == 2 else base) ** int(expr.exp.p)
            case sp.Function(args=(argument,)):
                return self.ring.function(expr.func, self(argument, at, token))
        raise UnknownNodeError(
            f"instantiation: no rule for the scalar {type(expr).__name__} ({expr})"
        )


def token_blocks(instance: Instantiation, expr: sp.Basic) -> np.ndarray:
    """Return all token-to-token blocks of a Jacobian, as an array ``(n, n, rows, cols)``."""
    from derive.calculus.blockwise import token_block

    i, j = TOKENS[:2]
    general = token_block(expr, i, j)
    n = instance.tokens
    rows = [[instance(general, {i: a, j: b}) for b in range(n)] for a in range(n)]
    return np.array(rows, dtype=object)


def _position(index: sp.Basic, at: Mapping[sp.Basic, int]) -> int:
    return at[index] if index in at else int(index)


def _add(terms: Any) -> Any:
    iterator = iter(terms)
    out = next(iterator)
    for term in iterator:
        out = out + term
    return out


def _times(left: Any, right: Any) -> Any:
    """Product of matrices, or with an entry."""
    if not isinstance(left, np.ndarray) or not isinstance(right, np.ndarray):
        return right * left if isinstance(right, np.ndarray) else left * right
    return left.dot(right)
