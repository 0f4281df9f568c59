r"""The largest and the smallest singular triplets of an ordered product, with their residuals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dgecon, dgetrf

from derive.errors import DomainError, ShapeError
from derive.linalg.arrays import Array, as_count
from derive.linalg.factors import Factor, as_factors, width_in
from derive.linalg.krylov import applied, applied_transposed, block_krylov
from derive.linalg.materialise import materialise, token_blocks
from derive.linalg.operator import Operator
from derive.linalg.products import FORM_LIMIT
from derive.linalg.scaled import LOG_2, split_exponent

__all__ = ["Triplets", "bottom_triplets", "top_triplets"]

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Triplets:
    r"""Singular triplets :math:`Mv=\sigma u`, :math:`M^\top u=\sigma v` of a product.

    Attributes
    ----------
    log_values : array (k,)
        :math:`\log\sigma`, the extreme one first.
    left, right : array (rows, k), (cols, k)
        u and v, orthonormal columns.
    residuals : array (k, 2)
        :math:`\lVert Mv-\sigma u\rVert/\lVert M\rVert` and
        :math:`\lVert M^\top u-\sigma v\rVert/\lVert M\rVert`, with M applied factor by factor.
    method : str
        ``formed``, ``block Krylov`` or ``inverse``.
    inverse_residuals : array (k, 2), optional
        For the smallest ones :math:`\lVert M^{-1}u-v/\sigma\rVert/\lVert M^{-1}\rVert` and its
        transposed twin, by solving with factor after factor: a residual relative to the norm of M
        says nothing of values far below it.
    """

    log_values: Array
    left: Array
    right: Array
    residuals: Array
    method: str
    inverse_residuals: Array | None = None


def top_triplets(
    factors: Iterable[Factor] | Factor,
    k: int,
    *,
    tol: float = 1e-10,
    size: int | None = None,
    form_limit: int = FORM_LIMIT,
    max_steps: int = 100,
) -> Triplets:
    r"""Return the k largest singular triplets of the product, each checked by its residuals.

    A product whose blocks (one a token, where no factor mixes tokens) have no side above
    ``form_limit`` is formed and its singular values taken. A larger one is never formed: block
    Krylov iteration on :math:`M^\top M` with k + 2 columns and full reorthogonalisation.

    Parameters
    ----------
    factors : iterable of Operator or ndarray, or one of them
        ``[J_0, ..., J_{L-1}]``, the first applied first.
    k : int
        How many.
    tol : float
        The largest residual to accept, relative to the norm of the product.
    size : int, optional
        The width of the identity that an empty list stands for.
    form_limit : int
        The largest side of a block to form.
    max_steps : int
        Krylov steps allowed.

    Returns
    -------
    Triplets
        Largest first. A product that is zero has values of -inf.

    Raises
    ------
    DomainError
        If k is not in 1..min(rows, cols), a residual stays above ``tol``, one factor overflows, or
        a value lies so far from the extreme one that double precision does not determine its
        vectors.
    ShapeError, WeightError, UnknownNodeError
        As for `derive.linalg.end_to_end`.

    Notes
    -----
    A residual shows that a triplet is one, not that no larger one was missed: the Krylov start is
    random (and fixed), so one is missed with probability zero, or where a value is repeated more
    than k + 2 times.

    Sources: Golub and Van Loan, Matrix Computations, 4th ed., section 10.4; Musco and Musco,
    Randomized block Krylov methods, NeurIPS 2015, algorithm 2; the residual bound on a singular
    value is Parlett, The Symmetric Eigenvalue Problem, theorem 4.5.1 for [0 M'; M 0].

    Examples
    --------
    >>> import numpy as np
    >>> found = top_triplets([np.diag([3.0, 2.0, 1.0])] * 5, 2)
    >>> np.exp(found.log_values).round(9)
    array([243.,  32.])
    >>> bool(found.residuals.max() < 1e-14)
    True
    """
    checked, count = _checked(factors, k, tol, size)
    as_count("max_steps", max_steps)
    if _block_side(checked) <= form_limit:
        blocks, exponent = _product_blocks(checked)
        logs, left, right = _leading(blocks, count)
        logs, method = logs + exponent * LOG_2, "formed"
    else:
        logs, left, right = block_krylov(checked, count, tol, max_steps)
        method = "block Krylov"
    _require_above_rounding(checked, logs, "largest")
    residuals = _residuals(checked, logs, left, right, logs[0])
    _require("tol", residuals, tol, "of the product")
    return Triplets(logs, left, right, residuals, method)


def bottom_triplets(
    factors: Iterable[Factor] | Factor,
    k: int,
    *,
    tol: float = 1e-10,
    size: int | None = None,
    form_limit: int = FORM_LIMIT,
) -> Triplets:
    r"""Return the k smallest singular triplets of the product, from its inverse.

    .. math:: M^{-1} = J_0^{-1}\cdots J_{L-1}^{-1}

    is formed by solving with one factor after the other; its largest triplets are those of M,
    turned. So values far below rounding of the largest keep their digits.

    Parameters
    ----------
    factors, k, tol, size, form_limit
        As for `top_triplets`; ``tol`` also bounds the residuals of the inverse.

    Returns
    -------
    Triplets
        Smallest first, with ``inverse_residuals``.

    Raises
    ------
    DomainError
        If a factor is singular to rounding (its product's smallest triplets are null directions;
        `log_singular_values` reports those as -inf), a block is larger than ``form_limit`` (there
        is no inverse to iterate with), a residual stays above ``tol``, or k is out of range.
    ShapeError
        If a factor is not square, or as for `top_triplets`.
    WeightError, UnknownNodeError
        As for `top_triplets`.

    Notes
    -----
    Source: Golub and Van Loan, Matrix Computations, 4th ed., sections 3.4 and 8.6.

    Examples
    --------
    >>> import numpy as np
    >>> found = bottom_triplets([np.diag([1.0, 1e-3, 1e-5])] * 100, 1)
    >>> bool(np.isclose(found.log_values[0] / np.log(10.0), -500.0, rtol=1e-14))
    True
    """
    checked, count = _checked(factors, k, tol, size)
    for place, factor in enumerate(checked):
        if factor.shape[0] != factor.shape[1]:
            raise ShapeError(
                f"factors[{place}]: expected a square matrix, whose inverse gives the smallest "
                f"triplets, got shape {factor.shape}"
            )
    side = _block_side(checked)
    if side > form_limit:
        raise DomainError(
            f"factors: expected blocks of at most {form_limit} rows to invert, got {side}; the "
            "smallest triplets of a larger product are not found by iteration"
        )
    inverse, exponent = _inverse_blocks(checked)
    logs, right, left = _leading(inverse, count)
    inverse_logs = logs + exponent * LOG_2
    _require_above_rounding(checked, inverse_logs, "inverse of the smallest")
    inverse_residuals = _residuals(
        checked, inverse_logs, right, left, inverse_logs[0], inverted=True
    )
    _require("tol", inverse_residuals, tol, "of the inverse")
    blocks, exponent = _product_blocks(checked)
    norm = _leading(blocks, 1)[0][0] + exponent * LOG_2
    residuals = _residuals(checked, -inverse_logs, left, right, norm)
    _require("tol", residuals, tol, "of the product")
    logs = 0.0 - inverse_logs  # not -0
    return Triplets(logs, left, right, residuals, "inverse", inverse_residuals)


def _checked(
    factors: Iterable[Factor] | Factor, k: int, tol: float, size: int | None
) -> tuple[tuple[Factor, ...], int]:
    single = isinstance(factors, Operator) or (
        isinstance(factors, np.ndarray) and factors.ndim == 2
    )
    checked = as_factors("factors", [factors] if single else factors)
    width = width_in("factors", checked, size)
    count = as_count("k", k)
    most = min(width, checked[-1].shape[0]) if checked else width
    if count > most:
        raise DomainError(f"k: expected 1 to {most} singular values, got {k}")
    if not (isinstance(tol, int | float) and 0 < tol < 1):
        raise DomainError(f"tol: expected a number between 0 and 1, got {tol!r}")
    return checked or (np.eye(width),), count


def _block_shape(factors: tuple[Factor, ...]) -> tuple[int, int]:
    """Return the rows and columns of one block of the product."""
    tokens = _tokens(factors)
    return factors[-1].shape[0] // tokens, factors[0].shape[1] // tokens


def _tokens(factors: tuple[Factor, ...]) -> int:
    """Return how many blocks the product has: the tokens, where no factor mixes them."""
    found = {f.tokens if isinstance(f, Operator) and f.tokenwise else 1 for f in factors}
    return found.pop() if len(found) == 1 else 1


def _block_side(factors: tuple[Factor, ...]) -> int:
    return max(max(f.shape) for f in factors) // _tokens(factors)


def _blocks(factor: Factor, tokens: int) -> Array:
    if isinstance(factor, Operator) and tokens > 1:
        return token_blocks(factor)
    return materialise(factor)[None]


def _product_blocks(factors: tuple[Factor, ...]) -> tuple[Array, int]:
    tokens = _tokens(factors)
    blocks, exponent = split_exponent(_blocks(factors[0], tokens))
    for factor in factors[1:]:
        blocks, shift = split_exponent(_blocks(factor, tokens) @ blocks)
        exponent += shift
    return blocks, exponent


def _inverse_blocks(factors: tuple[Factor, ...]) -> tuple[Array, int]:
    tokens = _tokens(factors)
    side = factors[0].shape[1] // tokens
    blocks: Array = np.broadcast_to(np.eye(side), (tokens, side, side))
    exponent = 0
    for place in range(len(factors) - 1, -1, -1):
        blocks, shift = split_exponent(_solved(factors[place], place, tokens, blocks, trans=0))
        exponent += shift
    return blocks, exponent


def _solved(factor: Factor, place: int, tokens: int, right: Array, trans: int) -> Array:
    """Return the inverse of a factor (or of its transpose) times blocks (tokens, side, k)."""
    solved = []
    for block, columns in zip(_blocks(factor, tokens), right, strict=True):
        lu, pivots, info = dgetrf(block)
        reciprocal = 0.0 if info else dgecon(lu, np.linalg.norm(block, 1))[0]
        if reciprocal < _EPS:
            raise DomainError(
                f"factors[{place}]: expected a matrix that can be inverted, got one that is "
                f"singular to rounding (reciprocal condition {reciprocal:.1e}); "
                "log_singular_values gives its null directions as -inf"
            )
        solved.append(scipy.linalg.lu_solve((lu, pivots), columns, trans=trans))
    return np.stack(solved)


def _leading(blocks: Array, count: int) -> tuple[Array, Array, Array]:
    """Return the largest values of a block-diagonal matrix, and their vectors as columns."""
    tokens, rows, cols = blocks.shape
    left, values, right = np.linalg.svd(blocks, full_matrices=False)
    order = np.argsort(-values.ravel(), kind="stable")[:count]
    token, place = np.unravel_index(order, values.shape)
    u = np.zeros((tokens, rows, count))
    v = np.zeros((tokens, cols, count))
    along = np.arange(count)
    u[token, :, along] = left[token, :, place]
    v[token, :, along] = right[token, place]
    logs = np.full(count, -np.inf)
    chosen = values[token, place]
    np.log(chosen, out=logs, where=chosen > 0)
    return logs, u.reshape(-1, count), v.reshape(-1, count)


def _applied_inverse(factors: tuple[Factor, ...], x: Array, trans: int) -> tuple[Array, int]:
    tokens = _tokens(factors)
    blocks = x.reshape(tokens, -1, x.shape[1])
    places = range(len(factors)) if trans else range(len(factors) - 1, -1, -1)
    exponent = 0
    for place in places:
        blocks, shift = split_exponent(_solved(factors[place], place, tokens, blocks, trans))
        exponent += shift
    return blocks.reshape(x.shape), exponent


def _residuals(
    factors: tuple[Factor, ...],
    logs: Array,
    left: Array,
    right: Array,
    log_norm: float,
    *,
    inverted: bool = False,
) -> Array:
    """Return the residuals of both sides over the norm."""
    if not math.isfinite(log_norm):
        return np.zeros((len(logs), 2))
    if inverted:
        images = [_applied_inverse(factors, right, 0), _applied_inverse(factors, left, 1)]
    else:
        images = [applied(factors, right), applied_transposed(factors, left)]
    with np.errstate(under="ignore"):
        values = np.exp(logs - log_norm)
        sides = [
            np.linalg.norm(image * math.exp(exponent * LOG_2 - log_norm) - target * values, axis=0)
            for (image, exponent), target in zip(images, (left, right), strict=True)
        ]
    return np.stack(sides, axis=1)


def _require_above_rounding(factors: tuple[Factor, ...], logs: Array, first: str) -> None:
    """Refuse values that are rounding of the product: any vector passes their residual check."""
    floor = math.log(_EPS * max(_block_shape(factors)) * (len(factors) + 1))
    if math.isfinite(logs[0]) and logs[-1] - logs[0] < floor:
        sure = int(np.count_nonzero(logs - logs[0] >= floor))
        raise DomainError(
            f"k: expected at most {sure}, the values above rounding of the {first}, got "
            f"k = {len(logs)}; log_singular_values gives the others, without vectors"
        )


def _require(name: str, residuals: Array, tol: float, what: str) -> None:
    worst = float(residuals.max())
    if not worst <= tol:
        raise DomainError(
            f"{name}: expected residuals up to {tol:.1e} relative to the norm {what}, got "
            f"{worst:.1e}: the triplets are not converged"
        )
