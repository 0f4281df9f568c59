"""Lists of factors in layer order: operators or matrices whose shapes follow one another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from derive.errors import ShapeError, UnknownNodeError
from derive.linalg.arrays import Array, as_array, as_count
from derive.linalg.operator import Operator

__all__ = ["Factor", "apply_transposed", "as_branches", "as_factor", "as_factors", "width_in"]

Factor: TypeAlias = Operator | Array


def as_factor(name: str, factor: object) -> Factor:
    """Return an operator as it is, an array as a checked matrix.

    Raises
    ------
    ShapeError
        If an array does not have two axes.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If it is neither.
    """
    if isinstance(factor, Operator):
        return factor
    if not isinstance(factor, np.ndarray):
        raise UnknownNodeError(
            f"{name}: expected an Operator or an ndarray, got {type(factor).__name__}"
        )
    return as_array(name, factor, 2)


def as_factors(name: str, factors: Iterable[object]) -> tuple[Factor, ...]:
    """Check a list in layer order, the first applied first.

    Raises
    ------
    UnknownNodeError
        If it is not a list, or an item is neither an Operator nor an ndarray.
    ShapeError
        If an item does not take what the one before it gives.
    WeightError
        If an array is not real and finite.
    """
    if isinstance(factors, Operator) or not isinstance(factors, Iterable):
        raise UnknownNodeError(
            f"{name}: expected a list of factors in layer order, got {type(factors).__name__}"
        )
    checked = tuple(as_factor(f"{name}[{place}]", item) for place, item in enumerate(factors))
    for place in range(1, len(checked)):
        given, taken = checked[place - 1].shape[0], checked[place].shape[1]
        if given != taken:
            raise ShapeError(
                f"{name}[{place}]: expected {given} columns, the rows of {name}[{place - 1}], "
                f"got shape {checked[place].shape}"
            )
    return checked


def as_branches(branches: Iterable[object]) -> tuple[Factor, ...]:
    """Check a list of residual branches A_l, which must be square for I + A_l to exist.

    Raises
    ------
    UnknownNodeError, ShapeError, WeightError
        As ``as_factors``; ShapeError also if a branch is not square.
    """
    checked = as_factors("branches", branches)
    for place, branch in enumerate(checked):
        if branch.shape[0] != branch.shape[1]:
            raise ShapeError(
                f"branches[{place}]: expected a square matrix, as I + A needs, "
                f"got shape {branch.shape}"
            )
    return checked


def width_in(name: str, factors: tuple[Factor, ...], size: int | None) -> int:
    """Return the length of the vector that the first factor takes.

    Raises
    ------
    ShapeError
        If the list is empty and ``size`` is not given, or ``size`` differs from that length.
    DomainError
        If ``size`` is not a positive integer.
    """
    if size is not None:
        as_count("size", size)
    if not factors:
        if size is None:
            raise ShapeError(
                f"{name}: expected at least one factor, or size= for the identity that an empty "
                "product is, got an empty list and no size"
            )
        return size
    if size is not None and factors[0].shape[1] != size:
        raise ShapeError(
            f"size: expected {factors[0].shape[1]}, the columns of {name}[0], got {size}"
        )
    return factors[0].shape[1]


def apply_transposed(factor: Factor, x: Array) -> Array:
    """Return ``factor.T @ x`` for a vector or a matrix."""
    if isinstance(factor, np.ndarray):
        return factor.T @ x
    return factor.rmatvec(x) if x.ndim == 1 else factor.rmatmat(x)
