r"""Rigorous enclosures: matrices of balls, and what they prove about a float64 answer.

A ball (python-flint's ``arb``) is a midpoint with a radius; every operation on balls returns one
that contains the result for all numbers in its operands. What is proved here is proved up to the
correctness of that library and of the processor's arithmetic.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from derive.errors import DomainError, MissingExtraError, ShapeError
from derive.linalg.arrays import Array, as_array

__all__ = [
    "Interval",
    "balls",
    "enclosure",
    "entry_error",
    "flint",
    "frobenius_error",
    "singular_value_enclosures",
]


def flint() -> Any:
    """Return python-flint.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    try:
        return importlib.import_module("flint")
    except ImportError as error:
        raise MissingExtraError(
            f"flint is needed here and cannot be imported ({error}); install normderive[certified]"
        ) from error


@dataclass(frozen=True)
class Interval:
    """All numbers from `lower` to `upper`, both float64 and rounded outwards.

    Attributes
    ----------
    lower, upper : float
        The ends.
    """

    lower: float
    upper: float

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper

    def error_of(self, answer: float) -> float:
        """Return an upper bound on the distance of `answer` from every number in the interval."""
        farthest = max(answer - self.lower, self.upper - answer)
        return float(np.nextafter(farthest, np.inf)) if farthest > 0 else 0.0


def enclosure(ball: Any) -> Interval:
    """Return a ball as an interval of float64 numbers.

    Raises
    ------
    DomainError
        If it is not finite, or beyond double precision.
    """
    if not ball.is_finite():
        raise DomainError("ball: expected a finite enclosure, got one that is not")
    lower, upper = (float(end) for end in (ball.lower(), ball.upper()))
    # float() rounds to nearest: one step outwards where it went inwards
    arb = flint().arb
    if arb(lower) > ball.lower():
        lower = float(np.nextafter(lower, -np.inf))
    if arb(upper) < ball.upper():
        upper = float(np.nextafter(upper, np.inf))
    if not (np.isfinite(lower) and np.isfinite(upper)):
        raise DomainError("ball: expected an enclosure within double precision, got an overflow")
    return Interval(lower, upper)


def balls(values: npt.ArrayLike) -> Array:
    """Return an array of exact balls, one for each float64 number.

    Raises
    ------
    WeightError
        If the numbers are not real and finite.
    """
    array = as_array("values", values, range(6))
    out = np.empty(array.shape, dtype=object)
    for index in np.ndindex(*array.shape):
        out[index] = flint().arb(float(array[index]))
    return out


def _matrix(matrix: Array) -> Any:
    return flint().arb_mat([list(row) for row in matrix])


def entry_error(matrix: Array, answer: npt.ArrayLike) -> Interval:
    r"""Enclose the largest error of an entry, :math:`\max_{ij}|\hat M_{ij}-M_{ij}|`.

    Parameters
    ----------
    matrix : array of balls, shape (rows, cols)
        Contains M.
    answer : array_like, shape (rows, cols)
        :math:`\hat M`.

    Returns
    -------
    Interval
        An answer whose lower end is above a tolerance is proved wrong, one whose upper end is below
        it is proved right.

    Raises
    ------
    ShapeError
        If the shapes differ.
    WeightError
        If the answer is not real and finite.
    """
    errors = [abs(e) for e in _difference(matrix, answer).ravel()]
    lower = max(e.lower() for e in errors)
    upper = max(e.upper() for e in errors)
    ends = enclosure(lower), enclosure(upper)
    return Interval(max(ends[0].lower, 0.0), ends[1].upper)


def frobenius_error(matrix: Array, answer: npt.ArrayLike) -> Interval:
    r"""Enclose :math:`\lVert\hat M-M\rVert_F`; parameters as for `entry_error`."""
    found = enclosure(_frobenius(_difference(matrix, answer)))
    return Interval(max(found.lower, 0.0), found.upper)


def _difference(matrix: Array, answer: npt.ArrayLike) -> Array:
    given = as_array("answer", answer, 2)
    if given.shape != matrix.shape:
        raise ShapeError(f"answer: expected shape {matrix.shape}, got {given.shape}")
    return balls(given) - matrix


def _frobenius(matrix: Array) -> Any:
    arb = flint().arb
    # the lower end of a square may dip below 0
    return sum((e * e for e in matrix.ravel()), arb(0)).nonnegative_part().sqrt()


def singular_value_enclosures(matrix: Array) -> list[Interval]:
    r"""Enclose every singular value of a matrix of balls, the largest first.

    With float64 factors of the midpoint, :math:`E = U^\top MV-\Sigma`,
    :math:`u = \lVert U^\top U-I\rVert_F`, :math:`v = \lVert V^\top V-I\rVert_F`, all in balls,

    .. math:: \frac{\Sigma_i-\lVert E\rVert_F}{\sqrt{(1+u)(1+v)}}\le\sigma_i(M)
        \le\frac{\Sigma_i+\lVert E\rVert_F}{\sqrt{(1-u)(1-v)}}

    however inexact the factors are.

    Parameters
    ----------
    matrix : array of balls, shape (n, n)
        Contains M.

    Returns
    -------
    list of Interval
        About machine epsilon times the largest singular value wide, so that one below that is only
        known to be small.

    Raises
    ------
    ShapeError
        If the matrix is not square.
    DomainError
        If the enclosure is not finite, or not within double precision.

    Notes
    -----
    Source: Weyl's inequality for :math:`U^\top MV`, and that multiplication by U changes a singular
    value by at most a factor between the least and the largest singular value of U; Rump, Verified
    bounds for singular values, in particular for the spectral norm of a matrix and its inverse, BIT
    Numerical Mathematics 51 (2011).
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(f"matrix: expected a square matrix, got shape {matrix.shape}")
    arb = flint().arb
    middle = np.array([[float(e.mid()) for e in row] for row in matrix])
    if not np.isfinite(middle).all():
        raise DomainError("matrix: expected entries within double precision, got an overflow")
    left, values, right = np.linalg.svd(middle)
    u, v = balls(left), balls(right.T)
    rotated = np.array((_matrix(u.T) * _matrix(matrix) * _matrix(v)).tolist(), dtype=object)
    off = _frobenius(rotated - np.diag(balls(values)))
    shrink, grow = arb(1), arb(1)
    for factor in (u, v):
        gram = np.array((_matrix(factor.T) * _matrix(factor)).tolist(), dtype=object)
        defect = _frobenius(gram - balls(np.eye(len(gram))))
        if not defect < 1:
            raise DomainError("matrix: expected float64 singular vectors, got a defect above 1")
        shrink *= (1 + defect).sqrt()
        grow *= (1 - defect).sqrt()
    found = []
    for value in values:
        low = enclosure((arb(float(value)) - off) / shrink).lower
        high = enclosure((arb(float(value)) + off) / grow).upper
        found.append(Interval(max(low, 0.0), high))
    return found
