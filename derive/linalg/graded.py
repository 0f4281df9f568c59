r"""Graded matrices: rows that differ by thousands of powers of two, and their singular values.

A product of triangles over depth is kept as :math:`D T`, the rows of T about as long as one
another and D apart, as exponents of two. One-sided Jacobi rotations in log scale find its singular
values, each to a relative error of about machine epsilon times the condition of T.

Sources: Demmel and Veselic, Jacobi's method is more accurate than QR, SIAM J. Matrix Anal. Appl. 13
(1992); Drmac and Veselic, New fast and accurate Jacobi SVD algorithm, SIAM J. Matrix Anal. Appl. 29
(2008).
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dgejsv, dtrcon

from derive.errors import DomainError
from derive.linalg.arrays import Array
from derive.linalg.scaled import LOG_2

__all__ = [
    "graded_log_values",
    "image_frame",
    "jacobi_log_values",
    "scaled_rows",
    "times_rows",
]

_EPS = float(np.finfo(np.float64).eps)
_JACOBI_SWEEPS = 60
_DOUBLE_RANGE = 1000  # powers of two between rows that still fit into doubles together
_APART = 1e-9  # cosine of rows that do not meet: its square is below rounding


def image_frame(image: Array, floor: float) -> tuple[Array, Array]:
    """Return ``Q, F`` with ``image = Q F``, Q orthonormal columns and F of full row rank.

    F is triangular unless the image has singular values up to ``floor``, which count as zero; it
    has no rows if all do.
    """
    frame, triangle = scipy.linalg.qr(image, mode="economic")
    if _clearly_regular(triangle, floor):
        return frame, triangle
    left, values, right = np.linalg.svd(image, full_matrices=False)
    rank = int(np.count_nonzero(values > floor))
    if rank == image.shape[1]:
        return frame, triangle
    return left[:, :rank], values[:rank, None] * right[:rank]


def _clearly_regular(triangle: Array, floor: float) -> bool:
    """Whether a triangle has full column rank, its smallest singular value well above ``floor``."""
    rows, cols = triangle.shape
    if rows < cols or not np.diagonal(triangle).all():
        return False
    reciprocal, _ = dtrcon(triangle)
    smallest = reciprocal * np.linalg.norm(triangle, 1) / math.sqrt(cols)
    return bool(smallest > 10 * floor)


def times_rows(matrix: Array, rows: Array, exponents: Array) -> tuple[Array, Array]:
    """Return ``matrix`` times the graded matrix with these rows and exponents of two, graded."""
    mantissas, shifts = np.frexp(matrix)
    shifts = np.where(mantissas != 0, shifts + exponents, np.iinfo(np.int32).min)
    largest = shifts.max(axis=1)
    # Weights too small for a double add nothing to the row.
    weights = np.ldexp(mantissas, np.maximum(shifts - largest[:, None], -1100))
    return scaled_rows(weights @ rows, largest)


def scaled_rows(rows: Array, exponents: Array | int = 0) -> tuple[Array, Array]:
    """Move powers of two from the rows to their exponents, which is exact."""
    shifts = np.frexp(np.abs(rows).max(axis=1))[1].astype(np.int64)
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


def graded_log_values(rows: Array, exponents: Array) -> tuple[Array, float]:
    r"""Return the log singular values of the graded matrix, and the scaled condition behind them.

    Rows that differ by much hardly meet. With :math:`T^\top = QR` the matrix :math:`DT` is
    :math:`DR^\top Q^\top`, so that it has the values of :math:`R D = D X` with
    :math:`X_{ij} = R_{ij} d_j/d_i`, nearly the identity where D falls fast. After two such steps,
    groups of rows whose cosines with all others are below 1e-9 are taken apart, which moves a
    value by its square; each group is left to LAPACK's preconditioned Jacobi, or, where its rows
    do not fit into doubles, to Jacobi rotations in log scale.

    Returns
    -------
    tuple of array and float
        The values, largest first, and the largest condition of the rows of a group: each value has
        a relative error of about machine epsilon times it.
    """
    order = np.argsort(-exponents, kind="stable")
    rows, exponents = rows[order], exponents[order]
    condition = 1.0
    if exponents[0] - exponents[-1] > _DOUBLE_RANGE:
        condition = float(np.linalg.cond(rows))
        for _ in range(2):
            rows, exponents = _reduced(rows, exponents)
    found = []
    for start, stop in _groups(rows, exponents):
        values, scaled = _group_log_values(rows[start:stop], exponents[start:stop])
        condition = max(condition, scaled)
        found.append(values)
    return np.sort(np.concatenate(found))[::-1], condition


def _reduced(rows: Array, exponents: Array) -> tuple[Array, Array]:
    """Return a graded matrix with the same singular values and rows closer to orthogonal."""
    triangle = scipy.linalg.qr(rows.T, mode="r")[0][: len(rows)]
    shifts = np.maximum(exponents - exponents[:, None], -1100)
    rows, exponents = scaled_rows(np.ldexp(triangle, np.minimum(shifts, 0)), exponents)
    order = np.argsort(-exponents, kind="stable")
    return rows[order], exponents[order]


def _groups(rows: Array, exponents: Array) -> list[tuple[int, int]]:
    """Return ranges of rows that are orthogonal to all rows outside to 1e-9."""
    count = len(rows)
    if exponents[0] - exponents[-1] <= _DOUBLE_RANGE:
        return [(0, count)]
    units = rows / np.linalg.norm(rows, axis=1)[:, None]
    meet = np.abs(units @ units.T) > _APART
    reach = np.maximum.accumulate(count - 1 - np.argmax(meet[:, ::-1], axis=1))
    cuts = [0, *(np.flatnonzero(reach == np.arange(count)) + 1)]
    return list(pairwise(map(int, cuts)))


def _group_log_values(rows: Array, exponents: Array) -> tuple[Array, float]:
    top = int(exponents.max())
    if top - int(exponents.min()) <= _DOUBLE_RANGE:
        graded = np.ldexp(rows, (exponents - top)[:, None])
        values, _, _, work, _, failed = dgejsv(
            np.asfortranarray(graded.T), joba=1, jobu=3, jobv=3, jobr=0, jobt=0, jobp=0
        )
        if not failed and values.all():
            logs = np.log(values) + math.log(work[0]) - math.log(work[1])
            return logs + top * LOG_2, float(work[2])
    units = rows / np.linalg.norm(rows, axis=1)[:, None]
    logs = jacobi_log_values(rows, exponents * LOG_2)
    return logs, float(np.linalg.cond(units))


def jacobi_log_values(rows: Array, logs: Array) -> Array:
    """Return the log singular values of the matrix with ``rows`` scaled by exp(``logs``).

    One-sided Jacobi: rotations of disjoint pairs of rows, all pairs in a sweep, until all are
    orthogonal to rounding. A rotation uses only the cosine c of two rows and the ratio rho of
    their norms, so that the logs may differ by thousands:

        t / rho = sign(c) 2 |c| / (1 - rho^2 + sqrt((1 - rho^2)^2 + 4 rho^2 c^2)).
    """
    rows, logs = _unit_rows(rows, logs)
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
