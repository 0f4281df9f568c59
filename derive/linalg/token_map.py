r"""How much each output token depends on each input token: norms of the blocks of a product."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from derive.errors import ShapeError
from derive.linalg.arrays import Array
from derive.linalg.factors import Factor, as_factors
from derive.linalg.operator import Operator
from derive.linalg.scaled import LOG_2, split_exponent

__all__ = ["token_pair_log_norms"]


def token_pair_log_norms(factors: Iterable[Factor], tokens: int) -> Array:
    r"""Return the log Frobenius norms of the token-to-token blocks of a product.

    .. math:: \log\Bigl\lVert\frac{\partial x_L[i]}{\partial x_0[j]}\Bigr\rVert_F,
              \qquad i, j = 1, \dots, n

    The operators are applied to the columns of one input token after the other, so that neither a
    factor nor the product is formed: memory is that of one block column. A row that no mask lets
    see token j stays exactly zero.

    Parameters
    ----------
    factors : iterable of Operator or ndarray
        ``[J_0, ..., J_{L-1}]``, the first applied first.
    tokens : int
        n; it divides the length of what the first factor takes and the last one gives.

    Returns
    -------
    ndarray, shape (n, n)
        Output token by input token; -inf where the block is zero.

    Raises
    ------
    ShapeError
        If the list is empty, shapes do not follow one another, or ``tokens`` does not divide them.
    DomainError
        If one factor overflows by itself.
    WeightError, UnknownNodeError
        As for `derive.linalg.end_to_end`.

    Examples
    --------
    >>> import numpy as np
    >>> matrix = np.array([[3.0, 0.0], [1.0, 2.0]])
    >>> with np.errstate(divide="ignore"):
    ...     bool(np.allclose(token_pair_log_norms([matrix], 2), np.log(matrix)))
    True
    """
    checked = as_factors("factors", factors)
    if not checked:
        raise ShapeError("factors: expected at least one factor, got an empty list")
    rows, cols = checked[-1].shape[0], checked[0].shape[1]
    if tokens < 1 or rows % tokens or cols % tokens:
        raise ShapeError(
            f"tokens: expected a divisor of the shape {(rows, cols)} of the product, got {tokens}"
        )
    if all(_alone(factor, tokens) for factor in checked):
        return _diagonal(checked, tokens, cols // tokens)
    width = cols // tokens
    logs = np.empty((tokens, tokens))
    for token in range(tokens):
        columns = np.zeros((cols, width))
        columns[token * width : (token + 1) * width] = np.eye(width)
        exponent = 0
        for factor in checked:
            columns, shift = split_exponent(factor @ columns)
            exponent += shift
        logs[:, token] = _block_log_norms(columns.reshape(tokens, -1)) + exponent * LOG_2
    return logs


def _alone(factor: Factor, tokens: int) -> bool:
    return isinstance(factor, Operator) and factor.tokenwise and factor.tokens == tokens


def _diagonal(factors: tuple[Factor, ...], tokens: int, width: int) -> Array:
    """No token sees another: all columns in one pass."""
    columns = np.tile(np.eye(width), (tokens, 1))
    exponent = 0
    for factor in factors:
        columns, shift = split_exponent(factor @ columns)
        exponent += shift
    logs = np.full((tokens, tokens), -np.inf)
    np.fill_diagonal(logs, _block_log_norms(columns.reshape(tokens, -1)) + exponent * LOG_2)
    return logs


def _block_log_norms(blocks: Array) -> Array:
    """Return the log norm of every row; squares do not underflow."""
    largest = np.abs(blocks).max(axis=1)
    safe = np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(blocks / safe[:, None], axis=1)
    logs = np.full(largest.shape, -np.inf)
    np.log(norms, out=logs, where=largest > 0)
    return logs + np.where(largest > 0, np.log(safe), 0.0)
