"""Sizes of matrices and vectors as scalars: spectral norm, largest entry, singular value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp

from derive.calculus.instantiate import Instantiation
from derive.calculus.tensor import is_scalar
from derive.errors import DomainError, ShapeError
from derive.proof.interval import IntervalRing

__all__ = ["MaxAbs", "Size", "SmallestSingular", "SpectralNorm", "measured"]


class Size(sp.Expr):
    """A non-negative scalar made of a matrix."""

    is_commutative = True
    is_real = True
    is_nonnegative = True
    left, right, latex_left, latex_right = "|", "|", r"\lVert ", r" \rVert_2"

    def __new__(cls, matrix: sp.Basic) -> Size:
        """Check the argument and build the node."""
        if is_scalar(matrix):
            raise ShapeError(f"{cls.__name__}: expected a matrix or a vector, got {matrix}")
        return sp.Basic.__new__(cls, matrix)

    def _sympystr(self, printer: Any) -> str:
        return f"{self.left}{printer._print(self.args[0])}{self.right}"

    def _latex(self, printer: Any, exp: Any = None, **_: Any) -> str:
        body = f"{self.latex_left}{printer._print(self.args[0])}{self.latex_right}"
        return body if exp is None else rf"{body}^{{{exp}}}"

    @staticmethod
    def of(array: np.ndarray) -> float:
        """Return the size of an array."""
        raise NotImplementedError


class SpectralNorm(Size):
    r"""The 2-norm :math:`\lVert A\rVert_2`; of a column, its length."""

    @staticmethod
    def of(array: np.ndarray) -> float:
        """Return the largest singular value."""
        return float(np.linalg.norm(array, 2))


class SmallestSingular(Size):
    r"""The smallest singular value :math:`\sigma_{\min}(A)` of a square matrix."""

    left, latex_left, latex_right = "sigma_min|", r"\sigma_{\min}\bigl(", r"\bigr)"

    @staticmethod
    def of(array: np.ndarray) -> float:
        """Return the smallest singular value."""
        return float(np.linalg.svd(array, compute_uv=False)[-1])


class MaxAbs(Size):
    r"""The largest absolute entry of a vector, :math:`\lVert v\rVert_\infty`."""

    left, latex_right = "max|", r" \rVert_\infty"

    @staticmethod
    def of(array: np.ndarray) -> float:
        """Return the largest absolute entry."""
        return float(np.abs(array).max())


def measured(expr: sp.Expr, ring: IntervalRing, sizes: Mapping[Any, int]) -> float:
    """Return a scalar made of sizes as a float, at the values of a ring.

    Parameters
    ----------
    expr : expression
        A scalar.
    ring : IntervalRing
        The values of its atoms.
    sizes : mapping
        Sizes of the dimensions.
    """
    instance = Instantiation(ring, sizes, 1)
    found = {}
    for node in sorted(expr.atoms(Size), key=sp.default_sort_key):
        array = np.vectorize(float)(np.atleast_2d(instance(node.args[0])))
        found[node] = sp.Float(type(node).of(array), 17)
    return float(_number(expr, found, instance))


def _number(expr: sp.Expr, found: Mapping[sp.Basic, sp.Float], instance: Instantiation) -> float:
    """Evaluate what the instantiation does not: sizes, powers and functions of scalars."""
    if expr in found:
        return float(found[expr])
    plain = not any(getattr(e, "is_Matrix", False) for e in sp.preorder_traversal(expr))
    if (plain or expr.has(Size)) and isinstance(
        expr, sp.Add | sp.Mul | sp.Pow | sp.Function | sp.Max | sp.Min
    ):
        parts = [sp.Float(_number(a, found, instance), 17) for a in expr.args]
        value = expr.func(*parts)
        if not value.is_real:
            raise DomainError(f"bound: expected real numbers, got {value} for {expr}")
        return float(value)
    if expr.is_number:
        return float(expr)
    return float(instance(expr))
