"""Trace, diagonal, Frobenius norm and log-determinant of an operator, from its structure."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import numpy as np

from derive.errors import ShapeError, UnknownNodeError
from derive.linalg.arrays import Array
from derive.linalg.blocks import chain_of, shared_blocks
from derive.linalg.composition import Chain, Sum
from derive.linalg.contraction import Contraction, mixes
from derive.linalg.cost import forming_work
from derive.linalg.diagonal_plus_low_rank import diagonal_plus_low_rank
from derive.linalg.ensembles import token_square_norms
from derive.linalg.materialise import DEFAULT_MAX_BYTES, materialise, require_room
from derive.linalg.operator import Operator
from derive.linalg.restriction import blocks_in_parts
from derive.linalg.tensor import Labelled, contract
from derive.linalg.tokenwise import Dense, Diagonal, Identity, Scaling, Zero

__all__ = ["diagonal", "frobenius_norm", "log_abs_det", "trace"]

# Entries of the blocks that are formed at one time.
_ENTRIES_IN_WORK = 2**18


def diagonal(op: Operator, *, per_token: bool = False, max_bytes: int = DEFAULT_MAX_BYTES) -> Array:
    r"""Return the diagonal, :math:`J_{(i, r), (i, r)}`.

    Parameters
    ----------
    op : Operator
        Square.
    per_token : bool
        Whether to return one row for each token.
    max_bytes : int
        The most that a chain that mixes tokens may take when it is formed.

    Returns
    -------
    ndarray, shape (n * d,), or (n, d) per token

    Raises
    ------
    ShapeError
        If ``op`` is not square.
    DomainError
        If forming a chain that mixes tokens would take more than ``max_bytes``.
    UnknownNodeError
        If ``op`` is not an Operator.

    Examples
    --------
    >>> import numpy as np
    >>> from derive.linalg import Identity, LowRank
    >>> u = np.ones((1, 3, 1))
    >>> diagonal(Identity(1, 3) - LowRank(u, u / 3, 1)).round(3)
    array([0.667, 0.667, 0.667])
    """
    _require_square(op)
    entries = np.broadcast_to(_diagonal(op, max_bytes), (op.tokens, op.rows))
    return np.array(entries) if per_token else entries.reshape(-1).copy()


def trace(op: Operator, *, per_token: bool = False, max_bytes: int = DEFAULT_MAX_BYTES) -> Any:
    r"""Return the trace, :math:`\sum_{i, r} J_{(i, r), (i, r)}`.

    Parameters
    ----------
    op, max_bytes
        As for `diagonal`.
    per_token : bool
        Whether to return the trace of each token's own block.

    Returns
    -------
    float, or ndarray of shape (n,) per token

    Raises
    ------
    ShapeError, DomainError, UnknownNodeError
        As for `diagonal`.
    """
    found = diagonal(op, per_token=True, max_bytes=max_bytes).sum(axis=1)
    return found if per_token else float(found.sum())


def frobenius_norm(
    op: Operator, *, per_token: bool = False, max_bytes: int = DEFAULT_MAX_BYTES
) -> Any:
    r"""Return the Frobenius norm, :math:`\sqrt{\sum J_{(i, r), (j, c)}^2}`.

    Blocks of tokens that share their weights are not formed: see `token_square_norms`.

    Parameters
    ----------
    op : Operator
        Any operator; its blocks of tokens need not be square.
    per_token : bool
        Whether to return the norm of the rows of each token: of its own block, where no token
        sees another.
    max_bytes : int
        The most that an operator that mixes tokens may take when it is formed.

    Returns
    -------
    float, or ndarray of shape (n,) per token

    Raises
    ------
    DomainError
        If forming an operator that mixes tokens would take more than ``max_bytes``.
    UnknownNodeError
        If ``op`` is not an Operator.
    """
    if not isinstance(op, Operator):
        raise UnknownNodeError(f"op: expected an Operator, got {type(op).__name__}")
    if op.tokenwise:
        squares = token_square_norms(op)
    else:
        matrix = materialise(op, max_bytes=max_bytes).reshape(op.tokens, -1)
        squares = np.einsum("ik,ik->i", matrix, matrix)
    return np.sqrt(squares) if per_token else math.sqrt(squares.sum())


def log_abs_det(
    op: Operator, *, per_token: bool = False, max_bytes: int = DEFAULT_MAX_BYTES
) -> Any:
    r"""Return the sign of the determinant and the logarithm of its absolute value.

    A chain of square operators is a sum of theirs, and a diagonal plus a low rank has, by the
    matrix determinant lemma,

    .. math:: \det(\mathrm{diag}(e) + U V^\top) = \prod_k e_k \,
        \det(I_q + V^\top \mathrm{diag}(e)^{-1} U) .

    Everything else is formed and factorised.

    Parameters
    ----------
    op : Operator
        Square.
    per_token : bool
        Whether to return those of each token's block; ``op`` must then not mix tokens.
    max_bytes : int
        The most that may be taken to form a matrix.

    Returns
    -------
    tuple of float and float, or of ndarrays of shape (n,) per token
        A determinant of zero has sign 0 and logarithm -inf. One that is zero in exact arithmetic
        (LayerNorm's) comes out as rounding leaves it, far below the others.

    Raises
    ------
    ShapeError
        If ``op`` is not square, or mixes tokens and was asked for per token.
    DomainError
        If a matrix to form would take more than ``max_bytes``.
    UnknownNodeError
        If ``op`` is not an Operator.

    Notes
    -----
    Source: Harville, Matrix Algebra From a Statistician's Perspective (1997), theorem 18.1.1.
    """
    _require_square(op)
    if per_token and not op.tokenwise:
        raise ShapeError(f"op: expected an operator that is block diagonal over tokens, got {op!r}")
    sign, log = _log_det(op, max_bytes)
    if per_token:
        return (
            np.array(np.broadcast_to(sign, op.tokens)),
            np.array(np.broadcast_to(log, op.tokens)),
        )
    if op.tokenwise:
        sign, log = (np.broadcast_to(part, op.tokens) for part in (sign, log))
    return float(np.prod(sign)), float(np.sum(log))


def _require_square(op: Operator) -> None:
    if not isinstance(op, Operator):
        raise UnknownNodeError(f"op: expected an Operator, got {type(op).__name__}")
    if op.rows != op.cols:
        raise ShapeError(f"op: expected a square operator, got shape {op.shape}")


# -- the diagonal, with axes that broadcast to (n, d)


@singledispatch
def _diagonal(op: Operator, max_bytes: int) -> Array:
    if op.tokenwise:
        return np.concatenate(
            [_spread(np.diagonal(blocks, axis1=1, axis2=2), part)
             for part, blocks in blocks_in_parts(op, _ENTRIES_IN_WORK)]
        )  # fmt: skip
    return np.diagonal(materialise(op, max_bytes=max_bytes)).reshape(op.tokens, op.rows)


def _spread(rows: Array, part: slice) -> Array:
    return np.broadcast_to(rows, (part.stop - part.start, *rows.shape[1:]))


@_diagonal.register
def _(op: Identity, max_bytes: int) -> Array:
    return np.ones((1, op.rows))


@_diagonal.register
def _(op: Zero, max_bytes: int) -> Array:
    return np.zeros((1, op.rows))


@_diagonal.register
def _(op: Scaling, max_bytes: int) -> Array:
    return np.repeat(op.factors[:, None], op.rows, axis=1)


@_diagonal.register
def _(op: Diagonal, max_bytes: int) -> Array:
    return op.entries


@_diagonal.register
def _(op: Dense, max_bytes: int) -> Array:
    return np.diagonal(op.matrix, axis1=1, axis2=2)


@_diagonal.register
def _(op: Sum, max_bytes: int) -> Array:
    total = np.zeros((1, op.rows))
    for term in op.terms:
        total = total + _diagonal(term, max_bytes)
    return total


@_diagonal.register
def _(op: Contraction, max_bytes: int) -> Array:
    total = np.zeros((op.tokens, op.rows))
    for term in op.terms:
        met = {"j": "i", "c": "r"} if mixes(term) else {"c": "r"}
        total += contract([_on_the_diagonal(*factor, met) for factor in term], ("i", "r"))
    return total


def _on_the_diagonal(array: Array, labels: tuple[str, ...], met: dict[str, str]) -> Labelled:
    """Rename labels; where a factor then has one twice, take its diagonal."""
    for old, new in met.items():
        if old in labels and new in labels:
            array = np.diagonal(array, axis1=labels.index(old), axis2=labels.index(new))
            labels = (*(s for s in labels if s not in (old, new)), new)
        else:
            labels = tuple(new if s == old else s for s in labels)
    return array, labels


@_diagonal.register
def _(op: Chain, max_bytes: int) -> Array:
    form = diagonal_plus_low_rank(op)
    if form is not None:
        return form.diagonal + (form.left * form.right).sum(axis=2)
    if not op.tokenwise:
        matrix = materialise(op, max_bytes=max_bytes)
        return np.diagonal(matrix).reshape(op.tokens, op.rows)
    if len(op.factors) < 2:
        return np.ones((1, op.rows)) if not op.factors else _diagonal(op.factors[0], max_bytes)
    # (A B)_rr = sum_k A_rk B_kr, cut where A and B are least work: no product of the two is formed.
    cut = _best_cut(op.factors)
    left, right = (shared_blocks(chain_of(part)) for part in (op.factors[:cut], op.factors[cut:]))
    return np.einsum("nrk,nkr->nr", *_together(left, right))


def _best_cut(factors: tuple[Operator, ...]) -> int:
    return min(
        range(1, len(factors)),
        key=lambda k: forming_work(chain_of(factors[:k])) + forming_work(chain_of(factors[k:])),
    )


def _together(left: Array, right: Array) -> tuple[Array, Array]:
    tokens = max(len(left), len(right))
    return (
        np.broadcast_to(left, (tokens, *left.shape[1:])),
        np.broadcast_to(right, (tokens, *right.shape[1:])),
    )


# -- the determinant: for each token (or one for all) if tokenwise, else of the whole


@singledispatch
def _log_det(op: Operator, max_bytes: int) -> tuple[Array, Array]:
    return _formed_log_det(op, max_bytes)


def _formed_log_det(op: Operator, max_bytes: int) -> tuple[Array, Array]:
    form = diagonal_plus_low_rank(op)
    if form is not None and 2 * form.rank < op.rows and form.diagonal.all():
        inner = np.matmul(form.right.transpose(0, 2, 1) / form.diagonal[:, None, :], form.left)
        sign, log = np.linalg.slogdet(inner + np.eye(form.rank))
        own_sign, own_log = _of_entries(form.diagonal)
        return sign * own_sign, log + own_log
    if not op.tokenwise:
        sign, log = np.linalg.slogdet(materialise(op, max_bytes=max_bytes))
        return np.asarray(sign), np.asarray(log)
    require_room((op.rows, op.cols), max_bytes)
    signs, logs = [], []
    for part, blocks in blocks_in_parts(op, _ENTRIES_IN_WORK):
        sign, log = np.linalg.slogdet(blocks)
        signs.append(_spread(sign, part))
        logs.append(_spread(log, part))
    return np.concatenate(signs), np.concatenate(logs)


def _of_entries(entries: Array) -> tuple[Array, Array]:
    with np.errstate(divide="ignore"):
        return np.prod(np.sign(entries), axis=1), np.log(np.abs(entries)).sum(axis=1)


@_log_det.register
def _(op: Zero, max_bytes: int) -> tuple[Array, Array]:
    return np.zeros(1), np.full(1, -np.inf)


@_log_det.register
def _(op: Chain, max_bytes: int) -> tuple[Array, Array]:
    # Where the width in between is the outer one, the determinants of the pieces multiply.
    starts = [place for place, factor in enumerate(op.factors) if factor.rows == op.rows]
    pieces = [
        chain_of(op.factors[start:stop])
        for start, stop in zip(starts, [*starts[1:], len(op.factors)], strict=True)
    ]
    if len(pieces) == 1 and isinstance(pieces[0], Chain):
        return _formed_log_det(op, max_bytes)
    total: tuple[Array, Array] = (np.ones(1), np.zeros(1))
    for piece in pieces:
        sign, log = _log_det(piece, max_bytes)
        if piece.tokenwise and not op.tokenwise:
            sign = np.prod(np.broadcast_to(sign, op.tokens))
            log = np.sum(np.broadcast_to(log, op.tokens))
        total = total[0] * sign, total[1] + log
    return total
