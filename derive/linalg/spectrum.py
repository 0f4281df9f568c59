"""The whole singular spectrum of an ordered product, far below machine epsilon of its largest."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dtrcon

from derive.errors import DomainError
from derive.linalg.arrays import Array
from derive.linalg.factors import Factor, as_factors, width_in
from derive.linalg.materialise import materialise
from derive.linalg.products import end_to_end
from derive.linalg.scaled import LOG_2, split_exponent

__all__ = ["log_singular_values"]

_EPS = float(np.finfo(np.float64).eps)
# Passes of QR over the factors, in turn from either end, before the triangles are multiplied.
_SWEEPS = 2
_JACOBI_SWEEPS = 60


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
    rows, exponents = _graded_product(triangles)
    values = _jacobi(*_unit_rows(rows, (exponents + exponent) * LOG_2))
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
        image = mantissa @ basis
        basis, triangle = scipy.linalg.qr(image, mode="economic")
        if not _clearly_regular(triangle, floor):
            left, values, right = np.linalg.svd(image, full_matrices=False)
            rank = int(np.count_nonzero(values > floor))
            if rank == 0:
                return [], 0
            if rank < image.shape[1]:
                basis = left[:, :rank]
                triangle = values[:rank, None] * right[:rank]
        triangles.append(triangle)
        total += exponent
    return triangles, total


def _clearly_regular(triangle: Array, floor: float) -> bool:
    """Whether a triangle has full column rank, its smallest singular value well above ``floor``."""
    rows, cols = triangle.shape
    if rows < cols or not np.diagonal(triangle).all():
        return False
    reciprocal, _ = dtrcon(triangle)
    smallest = reciprocal * np.linalg.norm(triangle, 1) / math.sqrt(cols)
    return bool(smallest > 10 * floor)


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


def _graded_product(triangles: list[Array]) -> tuple[Array, Array]:
    """Return the product, the first factor applied first, as rows and their exponents of two."""
    rows, exponents = _scaled_rows(triangles[0], np.zeros(len(triangles[0]), dtype=np.int64))
    for triangle in triangles[1:]:
        mantissas, shifts = np.frexp(triangle)
        shifts = np.where(mantissas != 0, shifts + exponents, np.iinfo(np.int32).min)
        largest = shifts.max(axis=1)
        # Weights too small for a double add nothing to the row.
        weights = np.ldexp(mantissas, np.maximum(shifts - largest[:, None], -1100))
        rows, exponents = _scaled_rows(weights @ rows, largest)
    return rows, exponents


def _scaled_rows(rows: Array, exponents: Array) -> tuple[Array, Array]:
    """Move powers of two from the rows to their exponents, which is exact."""
    shifts = np.frexp(np.abs(rows).max(axis=1))[1]
    return np.ldexp(rows, -shifts[:, None]), exponents + shifts


def _unit_rows(rows: Array, logs: Array) -> tuple[Array, Array]:
    """Move the norms of rows into their logs; a zero row has log -inf."""
    largest = np.abs(rows).max(axis=1)
    nonzero = largest > 0
    scaled = rows / np.where(nonzero, largest, 1.0)[:, None]
    norms = np.where(nonzero, np.linalg.norm(scaled, axis=1), 1.0)
    shift = np.full(norms.shape, -np.inf)
    np.log(largest, out=shift, where=nonzero)
    return scaled / norms[:, None], logs + shift + np.log(norms)


def _difference(small: Array, large: Array) -> Array:
    """Return ``small - large``, -inf where small is."""
    difference = np.full(small.shape, -np.inf)
    return np.subtract(small, large, out=difference, where=np.isfinite(small))


def _jacobi(rows: Array, logs: Array) -> Array:
    """Return the log singular values of the matrix with unit ``rows`` scaled by exp(``logs``).

    One-sided Jacobi: rotations of disjoint pairs of rows, all pairs in a sweep, until all are
    orthogonal to rounding. A rotation uses only the cosine c of two rows and the ratio rho of
    their norms, so that the logs may differ by thousands:

        t / rho = sign(c) 2 |c| / (1 - rho^2 + sqrt((1 - rho^2)^2 + 4 rho^2 c^2)).
    """
    order = np.argsort(-logs, kind="stable")
    rows, logs = rows[order], logs[order]
    count = len(logs)
    rounds = _tournament(count)
    tol = _EPS * math.sqrt(max(rows.shape[1], 1))
    for _ in range(_JACOBI_SWEEPS):
        worst = 0.0
        for first, second in rounds:
            swap = logs[first] < logs[second]
            p, q = np.where(swap, second, first), np.where(swap, first, second)
            large, small = rows[p], rows[q]
            cosine = np.einsum("kc,kc->k", large, small)
            worst = max(worst, float(np.max(np.abs(cosine), initial=0.0)))
            ratio = np.exp(_difference(logs[q], logs[p]))
            gap = 1.0 - ratio**2
            root = gap + np.sqrt(gap**2 + (2.0 * ratio * cosine) ** 2)
            active = np.abs(cosine) > tol
            slope = np.zeros_like(cosine)
            np.divide(2.0 * cosine, root, out=slope, where=active)
            shrink = 1.0 / np.sqrt(1.0 + (slope * ratio) ** 2)
            new_large = large + (slope * ratio**2)[:, None] * small
            new_small = small - slope[:, None] * large
            for place, new in ((p, new_large), (q, new_small)):
                rows[place], logs[place] = _unit_rows(new, logs[place] + np.log(shrink))
        if worst <= tol:
            return np.sort(logs)[::-1]
    raise DomainError(
        f"factors: expected rows orthogonal to {tol:.1e} after {_JACOBI_SWEEPS} Jacobi sweeps, "
        f"got {worst:.1e}"
    )


def _tournament(count: int) -> list[tuple[Array, Array]]:
    """Return rounds of disjoint pairs in which each meets each other once."""
    players = list(range(count + count % 2))
    half = len(players) // 2
    rounds = []
    for _ in range(len(players) - 1):
        pairs = [
            (a, b)
            for a, b in zip(players[:half], reversed(players[half:]), strict=True)
            if max(a, b) < count
        ]
        if pairs:
            first, second = np.array(pairs).T
            rounds.append((first, second))
        players = [players[0], players[-1], *players[1:-1]]
    return rounds
