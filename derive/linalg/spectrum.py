"""The whole singular spectrum of an ordered product, far below machine epsilon of its largest."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.linalg

from derive.errors import DomainError
from derive.linalg.arrays import Array
from derive.linalg.factors import Factor, as_factors, width_in
from derive.linalg.graded import graded_log_values, image_frame, scaled_rows, times_rows
from derive.linalg.materialise import materialise
from derive.linalg.products import end_to_end
from derive.linalg.scaled import LOG_2, split_exponent

__all__ = ["log_singular_values"]

_EPS = float(np.finfo(np.float64).eps)
# Passes of QR over the factors, in turn from either end, before the triangles are multiplied.
_SWEEPS = 2


def log_singular_values(
    factors: Iterable[Factor], *, size: int | None = None, rank_tol: float | None = None
) -> Array:
    r"""Return the logs of all singular values of the product, largest first.

    .. math:: \log \sigma_k(J_{L-1} \cdots J_0), \qquad k = 1, \dots, \min(\text{rows}, \text{cols})

    Never from one product matrix, whose small singular values are noise. A QR factorisation at
    every layer turns the factors into triangles, :math:`J_l Q_l = Q_{l+1} R_l`, in passes from
    either end that also sort and grade them; their product is kept as :math:`D T` with
    D apart, as exponents of two; one-sided Jacobi rotations in log scale orthogonalise its rows.

    Parameters
    ----------
    factors : iterable of Operator or ndarray
        ``[J_0, ..., J_{L-1}]``, the first applied first. Operators are materialised, one at a
        time.
    size : int, optional
        The width of the identity that an empty list stands for.
    rank_tol : float, optional
        A factor's action below ``rank_tol`` times its Frobenius norm counts as zero. The default
        is machine epsilon times its larger side: what rounding leaves of an exact zero, such as
        I - 11'/d on the vector 1. With 0 only exact zeros count.

    Returns
    -------
    ndarray, shape (min(rows, cols),)
        Exact null directions give -inf.

    Raises
    ------
    ShapeError
        If shapes do not follow one another, or the list is empty without ``size``.
    DomainError
        If ``rank_tol`` is not in [0, 1), or the rotations do not converge.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If a factor is neither an Operator nor an ndarray.

    Notes
    -----
    Accuracy: the passes are backward stable in every factor: the result belongs to factors
    perturbed by a modest multiple of machine epsilon relative to their norms. So each value,
    not only the largest, has a relative error of about L * cond(factor) * 2e-16, as long as the
    product itself is well posed: growing directions of one layer are not decaying ones of the
    next. Then values of 1e-300 relative to the largest are as good as the largest. Products
    that cancel (a graded factor times its inverse) lose what the perturbation of a factor is
    worth, with any algorithm that takes the factors as rounded. A value of one factor below
    ``rank_tol`` relative to that factor is reported as exactly zero.

    Sources: Bojanczyk, Ewerbring, Luk and Van Dooren, An accurate product SVD algorithm, Signal
    Processing 25 (1991); Demmel and Veselic, Jacobi's method is more accurate than QR, SIAM J.
    Matrix Anal. Appl. 13 (1992); Drmac and Veselic, New fast and accurate Jacobi SVD algorithm,
    SIAM J. Matrix Anal. Appl. 29 (2008).

    Examples
    --------
    >>> import numpy as np
    >>> log_singular_values([np.diag([1.0, 0.1])] * 1000) / np.log(10.0)
    array([    0., -1000.])
    """
    checked = as_factors("factors", factors)
    width = width_in("factors", checked, size)
    if rank_tol is not None and not (isinstance(rank_tol, int | float) and 0 <= rank_tol < 1):
        raise DomainError(f"rank_tol: expected None or a number in [0, 1), got {rank_tol!r}")
    if not checked:
        return np.zeros(width)
    logs = np.full(min(checked[-1].shape[0], width), -np.inf)
    # Coordinates in which the first pass meets the fast directions first.
    basis = np.linalg.svd(end_to_end(checked).matrix)[2].T
    triangles, exponent = _first_pass(checked, basis, rank_tol)
    if not triangles:
        return logs
    for _ in range(_SWEEPS - 1):
        triangles = _reversed_pass(triangles)
    rows, exponents = scaled_rows(triangles[0])
    for triangle in triangles[1:]:
        rows, exponents = times_rows(triangle, rows, exponents)
    values = graded_log_values(rows, exponents)[0] + exponent * LOG_2
    logs[: len(values)] = values
    return logs


def _first_pass(
    factors: tuple[Factor, ...], basis: Array, rank_tol: float | None
) -> tuple[list[Array], int]:
    """Return factors ``F_l`` of full row rank, and e: 2**e times their product has the values.

    ``J_l Q_l = Q_{l+1} F_l``, where Q_{l+1} keeps only the directions that J_l does not
    annihilate. An empty list stands for a product that is zero.
    """
    triangles = []
    total = 0
    for factor in factors:
        matrix = materialise(factor)
        tol = _EPS * max(matrix.shape) if rank_tol is None else rank_tol
        mantissa, exponent = split_exponent(matrix)
        floor = tol * float(np.linalg.norm(mantissa))
        basis, triangle = image_frame(mantissa @ basis, floor)
        if not len(triangle):
            return [], 0
        triangles.append(triangle)
        total += exponent
    return triangles, total


def _reversed_pass(triangles: list[Array]) -> list[Array]:
    """Turn the factors of M into triangles whose product is the transpose of M, rotated.

    Square from here on: the rank of the product is the rank of its last factor.
    """
    basis = np.eye(triangles[-1].shape[0])
    turned = []
    for triangle in reversed(triangles):
        basis, upper = scipy.linalg.qr(triangle.T @ basis, mode="economic")
        turned.append(upper)
    return turned
