"""A matrix times an exponential: the product of a thousand layers without overflow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg

from derive.errors import DomainError, ShapeError
from derive.linalg.arrays import Array, as_array

__all__ = ["ScaledMatrix", "in_range", "log_norm_of", "split_exponent"]

LOG_2 = math.log(2.0)
_LOG_MAX = math.log(np.finfo(np.float64).max)


def split_exponent(x: Array) -> tuple[Array, int]:
    """Return ``m, e`` with ``x = m * 2**e`` exactly and the largest entry of ``m`` in [1/2, 1).

    A zero array comes back with e = 0.

    Raises
    ------
    DomainError
        If an entry is not finite.
    """
    largest = max(float(x.max()), -float(x.min()))
    if not math.isfinite(largest):
        raise DomainError(
            "factors: expected products within double precision, got an overflow within one factor"
        )
    exponent = math.frexp(largest)[1]
    if not exponent:
        return x, 0
    # Multiplying by a power of two is as exact as ldexp, and faster; 2**1023 is the largest.
    return (x * 2.0**-exponent if abs(exponent) < 1000 else np.ldexp(x, -exponent)), exponent


def in_range(x: Array) -> tuple[Array, int]:
    """Return ``x`` as it is where its squares neither overflow nor underflow, else split.

    Raises
    ------
    DomainError
        If an entry is not finite.
    """
    flat = x.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float(np.dot(flat, flat))
    return (x, 0) if 1e-150 < squares < 1e150 else split_exponent(x)


def log_norm_of(x: Array) -> float:
    """Return the log of the 2-norm of a vector, or of the Frobenius norm of a matrix.

    It is -inf for zero, and does not overflow.
    """
    mantissa, exponent = split_exponent(x)
    norm = float(np.linalg.norm(mantissa))
    return math.log(norm) + exponent * LOG_2 if norm else -math.inf


@dataclass(frozen=True, eq=False)
class ScaledMatrix:
    r"""The matrix :math:`M e^{s}`, kept as ``matrix`` M and ``log_scale`` s.

    Parameters
    ----------
    matrix : ndarray, shape (rows, cols)
        M, real and finite.
    log_scale : float
        s, finite.

    Raises
    ------
    ShapeError
        If ``matrix`` does not have two axes.
    WeightError
        If ``matrix`` is not real and finite.
    DomainError
        If ``log_scale`` is not finite.

    Notes
    -----
    M is one double-precision matrix, so singular values below about
    :math:`\epsilon_{mach} \sigma_{max}` of it are rounding noise. For a whole spectrum use
    ``log_singular_values`` on the factors.

    Examples
    --------
    >>> import numpy as np
    >>> ScaledMatrix(np.eye(2), 2000.0).log_norm()
    2000.0
    """

    matrix: Array
    log_scale: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", as_array("matrix", self.matrix, 2))
        if not math.isfinite(self.log_scale):
            raise DomainError(f"log_scale: expected a finite number, got {self.log_scale!r}")

    def log_norm(self, ord: Literal[2, "fro"] = 2) -> float:
        """Return the log of the spectral (2) or Frobenius ("fro") norm; -inf for zero.

        Raises
        ------
        DomainError
            If ``ord`` is another norm.
        """
        if ord == "fro":
            return log_norm_of(self.matrix) + self.log_scale
        if ord == 2:
            return float(self.log_singular_values()[0])
        raise DomainError(f"ord: expected 2 or 'fro', got {ord!r}")

    def log_singular_values(self) -> Array:
        """Return the logs of the singular values, largest first; exact zeros give -inf.

        What lies below the largest plus log(2.2e-16) is rounding noise.

        Returns
        -------
        ndarray, shape (min(rows, cols),)
        """
        mantissa, exponent = split_exponent(self.matrix)
        values = scipy.linalg.svdvals(mantissa)
        logs = np.full(values.shape, -np.inf)
        np.log(values, out=logs, where=values > 0)
        return logs + (exponent * LOG_2 + self.log_scale)

    def value(self) -> Array:
        r"""Return :math:`M e^{s}` as one array; entries too small for a double become 0.

        Raises
        ------
        DomainError
            If an entry would overflow.
        """
        mantissa, exponent = split_exponent(self.matrix)
        largest = float(np.max(np.abs(mantissa)))
        if not largest:
            return np.array(mantissa)
        log_largest = math.log(largest) + exponent * LOG_2 + self.log_scale
        if log_largest >= _LOG_MAX:
            raise DomainError(
                f"log_scale: expected entries below exp({_LOG_MAX:.1f}), got "
                f"exp({log_largest:.1f}); use log_norm or log_singular_values"
            )
        # A scale that is a power of two is put back exactly.
        power = round(self.log_scale / LOG_2)
        return np.ldexp(mantissa * math.exp(self.log_scale - power * LOG_2), exponent + power)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""
        return (self.matrix.shape[0], self.matrix.shape[1])

    def __matmul__(self, other: object) -> ScaledMatrix:
        """Return the product of two scaled matrices, rescaled."""
        if not isinstance(other, ScaledMatrix):
            return NotImplemented
        if self.shape[1] != other.shape[0]:
            raise ShapeError(
                f"right operand: expected {self.shape[1]} rows, got shape {other.shape}"
            )
        left, shift = split_exponent(self.matrix)
        right, other_shift = split_exponent(other.matrix)
        matrix, exponent = split_exponent(left @ right)
        log_scale = (shift + other_shift + exponent) * LOG_2
        return ScaledMatrix(matrix, self.log_scale + other.log_scale + log_scale)
