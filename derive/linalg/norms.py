"""The spectral norm of one operator, never underestimated."""

from __future__ import annotations

import math

import numpy as np

from derive.linalg.arrays import Array
from derive.linalg.factors import Factor, as_factor
from derive.linalg.materialise import materialise, token_blocks

__all__ = ["spectral_norm"]

# Largest side whose singular values are computed; above it the norm is bounded.
EXACT_LIMIT = 2048


def spectral_norm(op: Factor) -> float:
    r"""Return the spectral norm of an operator, or an upper bound of it if it is large.

    Exact, to rounding, where the matrix (for a block-diagonal operator, the block of a token)
    has no side above 2048: its largest singular value. Otherwise the upper bound

    .. math:: \lVert A \rVert_2 \le
        \min\left(\sqrt{\lVert A \rVert_1 \lVert A \rVert_\infty}, \lVert A \rVert_F\right),

    so that a remainder bound made from it stays a bound.

    Parameters
    ----------
    op : Operator or ndarray
        It is materialised, a block-diagonal one block by block.

    Returns
    -------
    float

    Raises
    ------
    DomainError
        If it is too large to materialise.
    UnknownNodeError
        If it is neither an Operator nor an ndarray.
    WeightError
        If an array is not real and finite.

    Notes
    -----
    Source: Golub and Van Loan, Matrix Computations, 4th ed., section 2.3, Corollary 2.3.2.

    Examples
    --------
    >>> import numpy as np
    >>> spectral_norm(np.diag([3.0, -4.0]))
    4.0
    """
    factor = as_factor("op", op)
    if isinstance(factor, np.ndarray):
        blocks = factor[None]
    elif factor.tokenwise:
        blocks = token_blocks(factor)
    else:
        blocks = materialise(factor)[None]
    return max(map(_norm_of_matrix, blocks))


def _norm_of_matrix(matrix: Array) -> float:
    largest = float(np.max(np.abs(matrix)))
    if not largest:
        return 0.0
    matrix = matrix / largest
    if max(matrix.shape) <= EXACT_LIMIT:
        return largest * float(np.linalg.norm(matrix, 2))
    holder = math.sqrt(float(np.linalg.norm(matrix, 1)) * float(np.linalg.norm(matrix, np.inf)))
    return largest * min(holder, float(np.linalg.norm(matrix)))
