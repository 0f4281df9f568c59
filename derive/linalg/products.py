"""Ordered products of layer Jacobians over depth, in log scale."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg.arrays import Array, as_array, as_count
from derive.linalg.cost import condensed
from derive.linalg.factors import Factor, apply_transposed, as_factors, width_in
from derive.linalg.materialise import materialise
from derive.linalg.operator import Operator
from derive.linalg.restriction import blocks_in_parts
from derive.linalg.scaled import LOG_2, ScaledMatrix, in_range, log_norm_of, split_exponent

__all__ = ["end_to_end", "gradient_log_norms", "log_norm", "product_of_blocks"]

# Up to this size a product is formed; Krylov iteration on it is slower and less sure.
FORM_LIMIT = 2048
# Entries of the blocks that are formed at one time.
_ENTRIES_IN_WORK = 2**20

# An overflow is found by its result, and raised.
_overflow_is_checked = np.errstate(over="ignore", invalid="ignore")


@_overflow_is_checked
def end_to_end(
    factors: Iterable[Factor], from_layer: int = 0, *, size: int | None = None
) -> ScaledMatrix:
    r"""Return the product of the factors from a layer to the end.

    .. math:: J_{L-1} \cdots J_{l+1} J_l, \qquad l = \text{from\_layer}

    Rescaled by a power of two after every layer, which is exact, so that a thousand layers
    neither overflow nor underflow.

    Parameters
    ----------
    factors : iterable of Operator or ndarray
        ``[J_0, ..., J_{L-1}]``, the first applied first.
    from_layer : int
        The layer l to begin with, 0 to L; L gives the identity.
    size : int, optional
        The width of the identity that an empty list stands for.

    Returns
    -------
    ScaledMatrix
        Singular values below about machine epsilon times the largest are rounding noise.

    Raises
    ------
    ShapeError
        If shapes do not follow one another, or the list is empty without ``size``.
    DomainError
        If ``from_layer`` is outside 0..L, or one factor overflows by itself.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If a factor is neither an Operator nor an ndarray.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> round(end_to_end([2.3 * np.eye(3)] * 1000).log_norm() / math.log(2.3), 9)
    1000.0
    """
    checked = as_factors("factors", factors)
    width = width_in("factors", checked, size)
    start = as_count("from_layer", from_layer, least=0)
    if start > len(checked):
        raise DomainError(f"from_layer: expected 0 to {len(checked)}, got {from_layer}")
    if start == len(checked):
        return ScaledMatrix(np.eye(checked[-1].shape[0] if checked else width))
    chosen = checked[start:]
    operators = [factor for factor in chosen if isinstance(factor, Operator)]
    if len(operators) == len(chosen) and _all_tokenwise(operators):
        return _tokenwise_product(operators)
    matrix, exponent = split_exponent(materialise(chosen[0]))
    for factor in chosen[1:]:
        if isinstance(factor, Operator):
            factor = condensed(factor, matrix.shape[1])
        matrix, shift = in_range(factor @ matrix)
        exponent += shift
    matrix, shift = split_exponent(matrix)
    return ScaledMatrix(matrix, (exponent + shift) * LOG_2)


def _all_tokenwise(operators: list[Operator]) -> bool:
    tokens = operators[0].tokens
    return tokens > 1 and all(op.tokenwise and op.tokens == tokens for op in operators)


def _tokenwise_product(operators: list[Operator]) -> ScaledMatrix:
    """Multiply block-diagonal factors block by block."""
    tokens, cols = operators[0].tokens, operators[0].cols
    blocks: Array = np.broadcast_to(np.eye(cols), (tokens, cols, cols))
    exponent = 0
    for op in operators:
        blocks, shift = in_range(condensed(op, cols)._apply(blocks))
        exponent += shift
    grid = np.zeros((tokens, blocks.shape[1], tokens, cols))
    along = np.arange(tokens)
    grid[along, :, along, :] = blocks
    return ScaledMatrix(grid.reshape(-1, tokens * cols), exponent * LOG_2)


@_overflow_is_checked
def product_of_blocks(op: Operator) -> ScaledMatrix:
    r"""Return the product of the blocks of a tokenwise operator, that of token 0 applied first.

    .. math:: B_{n-1} \cdots B_1 B_0

    The layers of a stack of one token are such an operator, each layer a token: what its blocks
    share in structure is then found once, and many are formed at one time.

    Parameters
    ----------
    op : Operator
        Block diagonal over tokens, with square blocks.

    Returns
    -------
    ScaledMatrix

    Raises
    ------
    ShapeError
        If ``op`` mixes tokens, or its blocks are not square.
    DomainError
        If one block overflows by itself.
    UnknownNodeError
        If ``op`` is not an Operator.
    """
    if not isinstance(op, Operator):
        raise UnknownNodeError(f"op: expected an Operator, got {type(op).__name__}")
    if not op.tokenwise or op.rows != op.cols:
        raise ShapeError(f"op: expected square blocks, one for each token, got {op!r}")
    matrix: Array | None = None
    spare = np.empty((op.rows, op.cols))
    exponent = 0
    for part, blocks in blocks_in_parts(op, _ENTRIES_IN_WORK):
        for place in range(part.stop - part.start):
            block = blocks[place if len(blocks) > 1 else 0]
            if matrix is None:
                matrix = np.array(block)
                continue
            np.matmul(block, matrix, out=spare)
            matrix, spare = spare, matrix
            matrix, shift = in_range(matrix)
            exponent += shift
    matrix, shift = split_exponent(np.eye(op.rows) if matrix is None else matrix)
    return ScaledMatrix(matrix, (exponent + shift) * LOG_2)


@_overflow_is_checked
def gradient_log_norms(factors: Iterable[Factor], cotangent: npt.ArrayLike) -> Array:
    r"""Return the log norm of the gradient at every layer, by one reverse sweep.

    .. math:: \log \lVert J_l^\top J_{l+1}^\top \cdots J_{L-1}^\top g \rVert_2,
        \qquad l = 0, \dots, L

    Only transposed products with a vector; no factor is materialised.

    Parameters
    ----------
    factors : iterable of Operator or ndarray
        ``[J_0, ..., J_{L-1}]``, the first applied first.
    cotangent : array_like, shape (size of the output,)
        g, the gradient at the output.

    Returns
    -------
    ndarray, shape (L + 1,)
        Entry l belongs to the input of layer l, entry L to g; -inf where the gradient is 0.

    Raises
    ------
    ShapeError
        If shapes do not follow one another, or g has another length.
    DomainError
        If one factor overflows by itself.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If a factor is neither an Operator nor an ndarray.
    """
    checked = as_factors("factors", factors)
    vector = as_array("cotangent", cotangent, 1)
    if checked and vector.shape[0] != checked[-1].shape[0]:
        raise ShapeError(
            f"cotangent: expected length {checked[-1].shape[0]}, the rows of the last factor, "
            f"got {vector.shape[0]}"
        )
    logs = np.empty(len(checked) + 1)
    vector, exponent = split_exponent(vector)
    logs[-1] = log_norm_of(vector) + exponent * LOG_2
    for place in range(len(checked) - 1, -1, -1):
        vector, shift = split_exponent(apply_transposed(checked[place], vector))
        exponent += shift
        logs[place] = log_norm_of(vector) + exponent * LOG_2
    return logs


@_overflow_is_checked
def log_norm(
    factors: Iterable[Factor],
    *,
    size: int | None = None,
    tol: float = 1e-10,
    max_steps: int = 200,
) -> float:
    r"""Return the log of the spectral norm of the product.

    .. math:: \log \lVert J_{L-1} \cdots J_0 \rVert_2

    A product that takes and gives at most 2048 components is formed and its singular values
    taken. A larger one is not formed: Lanczos iteration on :math:`M^\top M` with full
    reorthogonalisation, every layer rescaled, until the largest Ritz pair :math:`(\theta, v)`
    satisfies :math:`\lVert M^\top M v - \theta v \rVert \le tol\, \theta`. Then
    :math:`\theta \le \sigma_{max}^2`, and some :math:`\sigma^2` lies within
    :math:`tol\, \theta` of it: the largest, unless the fixed random start is orthogonal to it.

    Parameters
    ----------
    factors : iterable of Operator or ndarray
        ``[J_0, ..., J_{L-1}]``, the first applied first.
    size : int, optional
        The width of the identity that an empty list stands for.
    tol : float
        Relative residual to reach, of a large product.
    max_steps : int
        Lanczos steps allowed, of a large product.

    Returns
    -------
    float
        -inf if the product is zero.

    Raises
    ------
    ShapeError
        If shapes do not follow one another, or the list is empty without ``size``.
    DomainError
        If ``tol`` or ``max_steps`` is not positive, one factor overflows by itself, or the
        iteration does not converge.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If a factor is neither an Operator nor an ndarray.

    Notes
    -----
    Source: Golub and Van Loan, Matrix Computations, 4th ed., sections 10.1 and 10.4.
    """
    checked = as_factors("factors", factors)
    width = width_in("factors", checked, size)
    as_count("max_steps", max_steps)
    if not (isinstance(tol, int | float) and 0 < tol < 1):
        raise DomainError(f"tol: expected a number between 0 and 1, got {tol!r}")
    if not checked:
        return 0.0
    if max(width, checked[-1].shape[0]) <= FORM_LIMIT:
        return end_to_end(checked).log_norm()
    return _lanczos_log_norm(checked, tol, max_steps)


def _lanczos_log_norm(factors: tuple[Factor, ...], tol: float, max_steps: int) -> float:
    start: Array = np.random.default_rng(0).standard_normal((factors[0].shape[1],))
    basis: list[Array] = [start / np.linalg.norm(start)]
    reference: int | None = None
    diagonal: list[float] = []
    below: list[float] = []
    residual = math.inf
    for _ in range(min(max_steps, len(start))):
        image, exponent = _gram(factors, basis[-1])
        if reference is None:
            # The Gram operator is divided by 2**reference, about its size.
            reference = exponent
            if not image.any():
                return -math.inf
        image = np.ldexp(image, exponent - reference)
        diagonal.append(float(basis[-1] @ image))
        frame = np.stack(basis)
        for _ in range(2):
            image = image - frame.T @ (frame @ image)
        beta = float(np.linalg.norm(image))
        ritz, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(below, -1) + np.diag(below, 1))
        residual = beta * abs(float(vectors[-1, -1])) / float(ritz[-1])
        if residual <= tol or len(basis) == len(start):
            return 0.5 * (math.log(ritz[-1]) + reference * LOG_2)
        below.append(beta)
        basis.append(image / beta)
    raise DomainError(
        f"max_steps: expected a relative residual of {tol:.1e} within {max_steps} Lanczos steps, "
        f"got {residual:.1e}; raise max_steps or tol"
    )


def _gram(factors: tuple[Factor, ...], x: Array) -> tuple[Array, int]:
    """Return ``M.T @ M @ x`` as a mantissa and an exponent of two."""
    exponent = 0
    for factor in factors:
        x, shift = split_exponent(factor @ x)
        exponent += shift
    for factor in reversed(factors):
        x, shift = split_exponent(apply_transposed(factor, x))
        exponent += shift
    return x, exponent
