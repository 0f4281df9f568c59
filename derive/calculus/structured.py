r"""Constant matrices with a structure that the decision procedure knows.

An `Orthogonal` matrix R has :math:`R^\top R = RR^\top = I`; a `RowStochastic` one has entries that
are not negative and :math:`P\mathbf 1 = \mathbf 1`; a `DoublyStochastic` one has
:math:`\mathbf 1^\top H = \mathbf 1^\top` as well. What is shown for such an atom holds for every
matrix of the kind. At a size the matrix is made of free entries, which the ring provides under its
name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from derive.calculus.atoms import Matrix, Ones
from derive.errors import ShapeError

__all__ = ["DoublyStochastic", "Orthogonal", "RowStochastic", "without_structure"]

Letter = tuple[str, Any]


class _Structured(Matrix):
    """A square constant matrix of a kind."""

    def __new__(cls, name: Any, rows: Any, cols: Any = None) -> _Structured:
        """Check the arguments and build the node."""
        cols = rows if cols is None else cols
        if rows != cols:
            raise ShapeError(f"{name}: expected a square matrix, got {rows} x {cols}")
        return super().__new__(cls, name, rows, cols)

    @staticmethod
    def filled(free: np.ndarray, number: Callable[[int], Any]) -> np.ndarray:
        """Return a matrix of the kind from an array of free entries.

        Parameters
        ----------
        free : array (m, m)
            Entries of a ring, none of them 0.
        number : callable
            From an integer to the ring's constant.
        """
        raise NotImplementedError


class Orthogonal(_Structured):
    r"""A matrix with :math:`R^\top R = RR^\top = I`: a rotation, a reflection."""

    @staticmethod
    def filled(free: np.ndarray, number: Callable[[int], Any]) -> np.ndarray:
        """Return the product of the reflections along the first two columns."""
        size = len(free)
        one = np.empty((size, size), dtype=object)
        for i, j in np.ndindex(size, size):
            one[i, j] = number(int(i == j))
        out = one
        for v in free.T[:2] if size > 1 else ():
            scale = number(-2) * _total(v * v) ** -1
            out = out.dot(one + np.multiply.outer(v, v) * scale)
        return out


class RowStochastic(_Structured):
    r"""A matrix of weights: entries not negative, :math:`P\mathbf 1 = \mathbf 1`."""

    @staticmethod
    def filled(free: np.ndarray, number: Callable[[int], Any]) -> np.ndarray:
        """Return the squares of the entries, each row over its sum."""
        squares = free * free
        return np.array([row * _total(row) ** -1 for row in squares], dtype=object)


class DoublyStochastic(RowStochastic):
    r"""A matrix of weights whose rows and columns add up to 1."""

    @staticmethod
    def filled(free: np.ndarray, number: Callable[[int], Any]) -> np.ndarray:
        """Return a mean of the cyclic shifts and one swap, weighted by squares of entries."""
        size = len(free)
        places = [[(i + k) % size for i in range(size)] for k in range(size)]
        places.append([1, 0, *range(2, size)][:size] if size > 1 else [0])
        squares = [v * v for v in [*free[0], free[-1, -1]]]
        share = _total(squares) ** -1
        out = np.full((size, size), number(0), dtype=object)
        for weight, place in zip(squares, places, strict=True):
            for i, j in enumerate(place):
                out[i, j] = out[i, j] + weight * share
        return out


def _total(entries: Any) -> Any:
    out = entries[0]
    for entry in entries[1:]:
        out = out + entry
    return out


def without_structure(word: tuple[Letter, ...]) -> tuple[Letter, ...]:
    r"""Return a word in which :math:`R^\top R`, :math:`P\mathbf 1` and the like are carried out.

    Parameters
    ----------
    word : tuple of (str, expression)
        Letters of the normal form: ``mat`` and ``mat'`` for a matrix and its transpose, ``col``
        and ``row`` for a column and a row.
    """
    out: list[Letter] = []
    for letter in word:
        out.append(letter)
        while len(out) > 1 and (met := _met(*out[-2:])) is not None:
            out[-2:] = met
    return tuple(out)


def _met(left: Letter, right: Letter) -> list[Letter] | None:
    """Return what two neighbours reduce to; None where they stay."""
    (first, a), (second, b) = left, right
    if isinstance(a, Orthogonal) and a == b and {first, second} == {"mat", "mat'"}:
        return []
    if (second, type(b)) == ("col", Ones) and _keeps(a, first, "mat"):
        return [right]
    if (first, type(a)) == ("row", Ones) and _keeps(b, second, "mat'"):
        return [left]
    return None


def _keeps(matrix: Any, kind: str, plain: str) -> bool:
    """Whether a factor next to a vector of ones disappears."""
    if isinstance(matrix, DoublyStochastic):
        return kind in ("mat", "mat'")
    return isinstance(matrix, RowStochastic) and kind == plain
