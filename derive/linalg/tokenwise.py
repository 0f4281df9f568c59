"""Operators that act on each token alone: identity, zero, diagonal, scalar, low rank and dense."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from derive.errors import ShapeError
from derive.linalg.arrays import Array, as_array, as_count, per_token
from derive.linalg.operator import Operator

__all__ = ["Dense", "Diagonal", "Identity", "LowRank", "Scaling", "Zero"]

# Below this many columns a shared matrix multiplies all tokens at once: one product instead of n.
_FEW_COLUMNS = 16


class Identity(Operator):
    """The identity on ``tokens`` tokens of one width: ``y_i = x_i``.

    Parameters
    ----------
    tokens, width : int
        Number of tokens and their width.

    Raises
    ------
    DomainError
        If a count is not a positive integer.

    Examples
    --------
    >>> Identity(2, 3).shape
    (6, 6)
    """

    def __init__(self, tokens: int, width: int) -> None:
        width = as_count("width", width)
        super().__init__(tokens, width, width, tokenwise=True)

    def _apply(self, x: Array) -> Array:
        return x.astype(np.result_type(x, self.dtype))

    @property
    def _transposed(self) -> Identity:
        return self

    @property
    def _work(self) -> int:
        return 0


class Zero(Operator):
    """The zero map: ``y_i = 0``.

    Parameters
    ----------
    tokens, rows, cols : int
        Number of tokens, output width and input width.

    Raises
    ------
    DomainError
        If a count is not a positive integer.
    """

    def __init__(self, tokens: int, rows: int, cols: int) -> None:
        super().__init__(tokens, rows, cols, tokenwise=True)

    def _apply(self, x: Array) -> Array:
        return np.zeros((x.shape[0], self.rows, x.shape[2]), np.result_type(x, self.dtype))

    @cached_property
    def _transposed(self) -> Zero:
        return Zero(self.tokens, self.cols, self.rows)

    @property
    def _work(self) -> int:
        return 0


class Diagonal(Operator):
    """A diagonal matrix per token: ``y_i = diag(entries_i) x_i``.

    Parameters
    ----------
    entries : array_like, shape (n, d) or (1, d)
        The diagonals; a leading axis of 1 is shared by all tokens.
    tokens : int
        Number of tokens n.

    Raises
    ------
    ShapeError
        If ``entries`` has another shape.
    WeightError
        If ``entries`` is not real and finite.
    """

    entries: Array

    def __init__(self, entries: npt.ArrayLike, tokens: int) -> None:
        tokens = as_count("tokens", tokens)
        self.entries = per_token("entries", as_array("entries", entries, 2), tokens)
        width = self.entries.shape[1]
        super().__init__(tokens, width, width, tokenwise=True)

    def _apply(self, x: Array) -> Array:
        return self.entries[:, :, None] * x

    @property
    def _transposed(self) -> Diagonal:
        return self

    @property
    def _work(self) -> int:
        return self.rows


class Scaling(Operator):
    """A scalar per token: ``y_i = factors_i x_i``.

    Parameters
    ----------
    factors : array_like, shape (n,) or (1,)
        The scalars; one alone is shared by all tokens.
    tokens, width : int
        Number of tokens n and their width.

    Raises
    ------
    ShapeError
        If ``factors`` has another shape.
    WeightError
        If ``factors`` is not real and finite.
    """

    factors: Array

    def __init__(self, factors: npt.ArrayLike, tokens: int, width: int) -> None:
        tokens = as_count("tokens", tokens)
        width = as_count("width", width)
        self.factors = per_token("factors", as_array("factors", factors, 1), tokens)
        super().__init__(tokens, width, width, tokenwise=True)

    def _apply(self, x: Array) -> Array:
        return self.factors[:, None, None] * x

    @property
    def _transposed(self) -> Scaling:
        return self

    @property
    def _work(self) -> int:
        return self.rows


class LowRank(Operator):
    r"""A sum of outer products per token.

    .. math:: y_i = \sum_q l_{i, \cdot, q} \, (r_{i, \cdot, q}^\top x_i)

    Parameters
    ----------
    left : array_like, shape (n, rows, q) or (1, rows, q)
        The column factors.
    right : array_like, shape (n, cols, q) or (1, cols, q)
        The row factors.
    tokens : int
        Number of tokens n.

    Raises
    ------
    ShapeError
        If the shapes do not fit, the ranks included.
    WeightError
        If an array is not real and finite.
    """

    left: Array
    right: Array

    def __init__(self, left: npt.ArrayLike, right: npt.ArrayLike, tokens: int) -> None:
        tokens = as_count("tokens", tokens)
        self.left = per_token("left", as_array("left", left, 3), tokens)
        self.right = per_token("right", as_array("right", right, 3), tokens)
        if self.left.shape[2] != self.right.shape[2]:
            raise ShapeError(
                f"right: expected the rank of left, {self.left.shape[2]}, on the last axis, "
                f"got shape {self.right.shape}"
            )
        super().__init__(tokens, self.left.shape[1], self.right.shape[1], tokenwise=True)

    def _apply(self, x: Array) -> Array:
        return _blocks_times(self.left, _blocks_times(self.right.transpose(0, 2, 1), x))

    def _apply_transposed(self, x: Array) -> Array:
        return _blocks_times(self.right, _blocks_times(self.left.transpose(0, 2, 1), x))

    @cached_property
    def _transposed(self) -> LowRank:
        return self._altered(self.tokens, self.cols, self.rows, left=self.right, right=self.left)

    @property
    def _work(self) -> int:
        return self.left.shape[2] * (self.rows + self.cols)


class Dense(Operator):
    r"""A matrix per token, :math:`y_i = W_i x_i`; one shared matrix is :math:`I_n \otimes W`.

    Parameters
    ----------
    matrix : array_like, shape (rows, cols), (1, rows, cols) or (n, rows, cols)
        The matrix that all tokens share, or one per token.
    tokens : int
        Number of tokens n.

    Attributes
    ----------
    matrix : ndarray, shape (1, rows, cols) or (n, rows, cols)

    Raises
    ------
    ShapeError
        If ``matrix`` has another shape.
    WeightError
        If ``matrix`` is not real and finite.
    """

    matrix: Array

    def __init__(self, matrix: npt.ArrayLike, tokens: int) -> None:
        tokens = as_count("tokens", tokens)
        array = as_array("matrix", matrix, (2, 3))
        self.matrix = per_token("matrix", array[None] if array.ndim == 2 else array, tokens)
        super().__init__(tokens, self.matrix.shape[1], self.matrix.shape[2], tokenwise=True)

    def _apply(self, x: Array) -> Array:
        return _blocks_times(self.matrix, x)

    def _apply_transposed(self, x: Array) -> Array:
        return _blocks_times(self.matrix.transpose(0, 2, 1), x)

    @cached_property
    def _transposed(self) -> Dense:
        matrix = self.matrix.transpose(0, 2, 1)
        return self._altered(self.tokens, self.cols, self.rows, matrix=matrix)


def _blocks_times(blocks: Array, x: Array) -> Array:
    """Return ``blocks[i] @ x[i]``, each with a leading axis of n or 1."""
    tokens, cols, columns = x.shape
    if blocks.shape[0] > 1 or tokens == 1 or columns > _FEW_COLUMNS:
        return np.matmul(blocks, x)
    if columns == 1:
        return np.matmul(x[..., 0], blocks[0].T)[..., None]
    flat = np.matmul(blocks[0], x.transpose(1, 0, 2).reshape(cols, tokens * columns))
    return np.ascontiguousarray(flat.reshape(-1, tokens, columns).transpose(1, 0, 2))
