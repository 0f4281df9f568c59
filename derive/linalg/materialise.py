"""The matrices of structured operators, formed block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg.arrays import Array
from derive.linalg.cost import peak_bytes
from derive.linalg.grid import token_grid
from derive.linalg.operator import Operator
from derive.linalg.restriction import blocks_in_parts

__all__ = ["DEFAULT_MAX_BYTES", "materialise", "require_room", "token_blocks", "token_pair_blocks"]

DEFAULT_MAX_BYTES = 4 * 2**30
# Entries of the blocks that are formed at one time.
_ENTRIES_IN_WORK = 2**18
_IN_CACHE = 2**22


@singledispatch
def materialise(op: Any, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Array:
    r"""Return the matrix of an operator.

    .. math:: J_{(i, r), (j, c)} \text{ at row } i \cdot \text{rows} + r,
        \text{ column } j \cdot \text{cols} + c

    Structured factors are never densified before a product: diagonal, scalar and low-rank
    factors are applied to their neighbours, products of matrices run in the order of fewest
    multiply-adds, and what acts on each token alone is multiplied block by block.

    Parameters
    ----------
    op : Operator or ndarray
        The operator; an array is returned as it is.
    max_bytes : int
        The most to hold at one time, temporaries included; 4 GiB unless said. `cost` says how
        much that will be.

    Returns
    -------
    ndarray, shape (n * rows, n * cols)

    Raises
    ------
    DomainError
        If the matrix would take more than ``max_bytes``.
    UnknownNodeError
        If ``op`` is neither an Operator nor an array; ``materialise.register`` adds a type.

    Examples
    --------
    >>> import numpy as np
    >>> from derive.linalg import Dense
    >>> materialise(Dense(np.array([[1.0, 2.0]]), tokens=2))
    array([[1., 2., 0., 0.],
           [0., 0., 1., 2.]])
    """
    raise UnknownNodeError(f"op: expected an Operator or an ndarray, got {type(op).__name__}")


@materialise.register
def _(op: Operator, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Array:
    require_room(op.shape, max_bytes, peak_bytes(op))
    return token_grid(op).reshape(op.shape)


@materialise.register
def _(op: np.ndarray, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Array:
    return op


def token_blocks(op: Operator, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Array:
    r"""Return the diagonal blocks :math:`\partial y_i / \partial x_i` of a tokenwise operator.

    Parameters
    ----------
    op : Operator
        Block diagonal over tokens.
    max_bytes : int
        The largest result to form; 4 GiB unless said.

    Returns
    -------
    ndarray, shape (n, rows, cols)

    Raises
    ------
    ShapeError
        If ``op`` mixes tokens.
    DomainError
        If the blocks would take more than ``max_bytes``.
    UnknownNodeError
        If ``op`` is not an Operator.
    """
    _require_operator(op)
    if not op.tokenwise:
        raise ShapeError(f"op: expected an operator that is block diagonal over tokens, got {op!r}")
    shape = (op.tokens, op.rows, op.cols)
    require_room(shape, max_bytes)
    found = np.empty(shape)
    for part, blocks in blocks_in_parts(op, _ENTRIES_IN_WORK):
        found[part] = blocks
    return found


def token_pair_blocks(op: Operator, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Array:
    r"""Return the blocks :math:`\partial y_i / \partial x_j` of an operator.

    Parameters
    ----------
    op : Operator
        Any operator.
    max_bytes : int
        The largest result to form; 4 GiB unless said.

    Returns
    -------
    ndarray, shape (n, n, rows, cols)
        Indexed by output token, input token, row and column; a strided view of a fresh array.

    Raises
    ------
    DomainError
        If the blocks would take more than ``max_bytes``.
    UnknownNodeError
        If ``op`` is not an Operator.
    """
    _require_operator(op)
    require_room(op.shape, max_bytes, peak_bytes(op))
    return token_grid(op).transpose(0, 2, 1, 3)


def _require_operator(op: object) -> None:
    if not isinstance(op, Operator):
        raise UnknownNodeError(f"op: expected an Operator, got {type(op).__name__}")


def require_room(shape: Sequence[int], max_bytes: int, peak: int = 0) -> None:
    """Refuse to form an array that would take more than is allowed, temporaries included.

    Temporaries of a few megabytes, which fit in cache, are not counted.

    Raises
    ------
    DomainError
        If the array, or ``peak`` bytes, would exceed ``max_bytes``.
    """
    size = 8 * math.prod(shape)
    beside = max(0, peak - size - _IN_CACHE)
    if size + beside > max_bytes:
        more = f" and {beside} bytes beside it" if beside else ""
        raise DomainError(
            f"max_bytes: expected room for an array of shape {tuple(shape)}, {size} bytes{more}, "
            f"got max_bytes={max_bytes}; apply the operator instead, or raise max_bytes"
        )
