r"""Atoms and the small nodes built on them: vectors, matrices, diagonals, inner products."""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.core.symbol import Str
from sympy.printing.precedence import PRECEDENCE

from derive.calculus.tensor import Product, Sum, Tensor, is_scalar, product, split_coefficient
from derive.errors import ShapeError
from derive.symbols import latex_name

__all__ = ["Diag", "Inner", "Matrix", "Ones", "Reciprocal", "State", "Vector", "eye"]


class _Named(Tensor):
    """A tensor that is known by its name and its shape."""

    def __new__(cls, name: str | Str, rows: Any, cols: Any = 1) -> _Named:
        """Check the arguments and build the node."""
        if not isinstance(name, str | Str) or not str(name):
            raise ShapeError(f"name: expected a non-empty string, got {name!r}")
        return sp.Basic.__new__(cls, Str(str(name)), sp.sympify(rows), sp.sympify(cols))

    @property
    def name(self) -> str:
        """The identifier."""
        return self.args[0].name

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Rows and columns."""
        return (self.args[1], self.args[2])

    @property
    def free_symbols(self) -> set[sp.Basic]:
        """The node itself and the symbols of its shape."""
        return {self}.union(*(s.free_symbols for s in self.shape))

    def _sympystr(self, printer: Any) -> str:
        return self.name

    def _latex(self, printer: Any, **_: Any) -> str:
        return latex_name(self.name)


class Vector(_Named):
    """A constant column vector: a gain, a bias; the same for every token."""


class Matrix(_Named):
    """A constant matrix: a weight; the same for every token."""


class State(_Named):
    """A variable column vector, one for every token: what Jacobians are taken with respect to."""


class Ones(Tensor):
    r"""The column vector :math:`\mathbf 1` of ones."""

    def __new__(cls, rows: Any) -> Ones:
        """Check the arguments and build the node."""
        return sp.Basic.__new__(cls, sp.sympify(rows))

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """``(rows, 1)``."""
        return (self.args[0], sp.S.One)

    def _sympystr(self, printer: Any) -> str:
        return "1"

    def _latex(self, printer: Any, **_: Any) -> str:
        return r"\mathbf{1}"


def eye(size: Any) -> sp.Identity:
    r"""Return the identity of `size` (SymPy's own node)."""
    return sp.Identity(size)


class Diag(Tensor):
    r"""Diagonal matrix :math:`\operatorname{diag}(v)` of a column vector."""

    def __new__(cls, vector: sp.Basic) -> sp.Basic:
        """Check the arguments and build the node."""
        if is_scalar(vector) or vector.shape[1] != 1:
            raise ShapeError(f"diag: expected a column vector, got {vector}")
        if isinstance(vector, Ones):
            return sp.Identity(vector.shape[0])
        coefficient, rest = split_coefficient(vector)
        if coefficient != 1:
            return product([coefficient, Diag(rest)])
        return sp.Basic.__new__(cls, vector)

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Square, of the length of the vector."""
        return (self.args[0].shape[0],) * 2

    def _sympystr(self, printer: Any) -> str:
        return f"diag({printer._print(self.args[0])})"

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import call_latex

        return call_latex(r"\operatorname{diag}", printer._print(self.args[0]))


class Reciprocal(Tensor):
    r"""The vector of reciprocals: ``Diag(Reciprocal(v))`` inverts ``Diag(v)``."""

    def __new__(cls, vector: sp.Basic) -> sp.Basic:
        """Check the arguments and build the node."""
        if is_scalar(vector) or vector.shape[1] != 1:
            raise ShapeError(f"reciprocal: expected a column vector, got {vector}")
        if isinstance(vector, Reciprocal):
            return vector.args[0]
        return vector if isinstance(vector, Ones) else sp.Basic.__new__(cls, vector)

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of the vector."""
        return self.args[0].shape

    def _sympystr(self, printer: Any) -> str:
        printed = printer._print(self.args[0])
        return f"1/({printed})" if isinstance(self.args[0], Sum) else f"1/{printed}"

    def _latex(self, printer: Any, **_: Any) -> str:
        printed = printer._print(self.args[0])
        return f"1/({printed})" if isinstance(self.args[0], Sum) else f"1/{printed}"


class Inner(sp.Expr):
    r"""Scalar product :math:`u^\top v` of two column vectors: a scalar, symmetric in its arguments.

    Scalar factors are pulled out and :math:`\mathbf 1^\top\mathbf 1` is the length.
    """

    is_commutative = True
    is_real = True

    def __new__(cls, left: sp.Basic, right: sp.Basic) -> sp.Expr:
        """Check the arguments and build the node."""
        for side in (left, right):
            if is_scalar(side) or side.shape[1] != 1:
                raise ShapeError(f"inner product: expected column vectors, got {side}")
        if left.shape != right.shape:
            raise ShapeError(
                f"inner product: {left} of length {left.shape[0]} and {right} of length "
                f"{right.shape[0]} do not fit"
            )
        if getattr(left, "is_ZeroMatrix", False) or getattr(right, "is_ZeroMatrix", False):
            return sp.S.Zero
        c_left, left = split_coefficient(left)
        c_right, right = split_coefficient(right)
        if isinstance(left, Ones) and isinstance(right, Ones):
            return c_left * c_right * left.shape[0]
        left, right = sorted((left, right), key=_inner_order)
        return c_left * c_right * sp.Basic.__new__(cls, left, right)

    @property
    def precedence(self) -> int:
        """Grouped inside a product of scalars; a squared norm is grouped under a power only."""
        return PRECEDENCE["Pow" if self.args[0] == self.args[1] else "Add"]

    def _sympystr(self, printer: Any) -> str:
        from derive.calculus.printing import inner_text

        left, right = self.args
        return inner_text(left, right, printer)

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import inner_latex

        left, right = self.args
        return inner_latex(left, right, printer)


def _inner_order(vector: sp.Basic) -> tuple[Any, ...]:
    """Ones stand first, differentials last."""
    rank = 0 if isinstance(vector, Ones) else 2 if _is_differential(vector) else 1
    return (rank, sp.default_sort_key(vector))


def _is_differential(vector: sp.Basic) -> bool:
    last = vector.args[-1] if isinstance(vector, Product) else vector
    return type(last).__name__ == "Differential"
