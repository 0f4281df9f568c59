"""The blocks of operators that act on each token alone, multiplied in the cheapest order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce, singledispatch
from itertools import groupby
from typing import TypeAlias

import numpy as np

from derive.linalg.arrays import Array
from derive.linalg.composition import Chain, Sum
from derive.linalg.contraction import Contraction
from derive.linalg.diagonal_plus_low_rank import diagonal_plus_low_rank
from derive.linalg.operator import Operator
from derive.linalg.tensor import contract
from derive.linalg.tokenwise import Dense, Diagonal, Identity, LowRank, Scaling

__all__ = [
    "applies",
    "chain_of",
    "collected",
    "order_of_product",
    "owned_blocks",
    "selection",
    "shared_blocks",
    "with_diagonals_joined",
    "without_cheap_ends",
]

DiagonalOperator: TypeAlias = Identity | Scaling | Diagonal

# The order of a product of matrices is found exactly, in cubic time, for up to this many.
_EXACT_FACTORS = 24
# A diagonal with at least this share of zeros, as relu's derivative has, selects rows.
_SPARSE = 0.125
_FEW_ROWS = 32


@singledispatch
def shared_blocks(op: Operator) -> Array:
    """Return the blocks with a leading axis of n, or of 1 if all tokens share one block.

    They may be a view of an array of the operator.
    """
    return op._apply(np.eye(op.cols)[None])


def owned_blocks(op: Operator) -> Array:
    """Return the blocks as an array that may be written to."""
    blocks = shared_blocks(op)
    return blocks if _makes_an_array(op) else blocks.copy()


def _makes_an_array(op: Operator) -> bool:
    """Whether the blocks are computed, not taken from the operator."""
    return isinstance(op, LowRank | Sum) or (isinstance(op, Chain) and len(op.factors) != 1)


@shared_blocks.register
def _(op: LowRank) -> Array:
    return np.matmul(op.left, op.right.transpose(0, 2, 1))


@shared_blocks.register
def _(op: Dense) -> Array:
    return op.matrix


@shared_blocks.register
def _(op: Contraction) -> Array:
    return reduce(np.add, (contract(term, ("i", "r", "c")) for term in op.terms))


@shared_blocks.register
def _(op: Sum) -> Array:
    diagonals = [_entries(t) for t in op.terms if isinstance(t, DiagonalOperator)]
    rest = [t for t in op.terms if not isinstance(t, DiagonalOperator)]
    grouped = collected(rest)
    leading = max((part.shape[0] for part in diagonals), default=1)
    if grouped:
        total = owned_blocks(grouped[0])
        for term in grouped[1:]:
            part = shared_blocks(term)
            if part.shape[0] > total.shape[0]:
                total = total + part
            else:
                total += part
    else:
        total = np.zeros((1, op.rows, op.cols))
    if leading > total.shape[0]:
        total = np.repeat(total, leading, axis=0)
    along = np.arange(min(op.rows, op.cols))
    for part in diagonals:
        total[:, along, along] += part
    return total


def _entries(op: DiagonalOperator) -> Array:
    """Return the diagonal, with axes that broadcast to (n, width)."""
    if isinstance(op, Diagonal):
        return op.entries
    return op.factors[:, None] if isinstance(op, Scaling) else np.ones((1, 1))


def collected(terms: Sequence[Operator]) -> list[Operator]:
    """Collect the terms that begin with the same matrix: W A + W B = W (A + B)."""
    groups: dict[object, list[Chain]] = {}
    found: list[Operator] = []
    for term in terms:
        if isinstance(term, Chain) and len(term.factors) > 1 and isinstance(term.factors[0], Dense):
            matrix = term.factors[0].matrix
            where = matrix.__array_interface__["data"][0], matrix.shape, matrix.strides
            groups.setdefault(where, []).append(term)
        else:
            found.append(term)
    for group in groups.values():
        first, *others = group
        if others:
            inner = Sum(*(chain_of(term.factors[1:]) for term in group))
            found.append(Chain(first.factors[0], inner))
        else:
            found.append(first)
    return found


def chain_of(factors: Sequence[Operator]) -> Operator:
    """Return the product of factors, or the only one."""
    return factors[0] if len(factors) == 1 else Chain(*factors)


@shared_blocks.register
def _(op: Chain) -> Array:
    factors = op.factors
    start, stop = without_cheap_ends(factors)
    if start == stop:
        return _apply_left(factors, np.eye(op.cols)[None])
    matrices = _matrices(factors[start:stop])
    # What is cheap at the ends goes to the smaller of the end matrix and the finished product.
    size = matrices[0].shape[1] * matrices[-1].shape[2]
    early_right = matrices[-1][0].size < size
    early_left = matrices[0][0].size < size
    if early_right:
        matrices[-1] = _apply_right(matrices[-1], factors[stop:])
    if early_left:
        matrices[0] = _apply_left(factors[:start], matrices[0])
    product = _ordered_product(matrices)
    if not early_right:
        product = _apply_right(product, factors[stop:])
    return product if early_left else _apply_left(factors[:start], product)


def without_cheap_ends(factors: Sequence[Operator]) -> tuple[int, int]:
    """Return where the factors that are cheap to apply end on the left and begin on the right."""
    stop = len(factors)
    while stop and applies(factors[stop - 1]):
        stop -= 1
    start = 0
    while start < stop and applies(factors[start]):
        start += 1
    return start, stop


def applies(op: Operator) -> bool:
    """Whether applying the operator costs much less than a product with its blocks.

    A low-rank factor is two thin matrices instead.
    """
    return not isinstance(op, LowRank) and 2 * op._work < op.rows * op.cols


def _matrices(factors: Sequence[Operator]) -> list[Array]:
    """Turn factors, the first and last not cheap, into matrices with the same product.

    A low-rank factor becomes two thin matrices; a cheap one is applied to the matrix on its
    right. Where a diagonal has many zeros, only the rows that it keeps are multiplied.
    """
    matrices: list[Array] = []
    kept: Array | None = None
    for factor in with_diagonals_joined(factors):
        if isinstance(factor, Diagonal) and matrices:
            entries = factor.entries
            kept = selection(entries, matrices[-1].shape[1])
            if kept is not None:
                matrices[-1] = _rows(matrices[-1], kept)
                entries = np.take_along_axis(entries, kept, axis=1)
            matrices[-1] = entries[:, :, None] * matrices[-1]
            continue
        if kept is None and applies(factor):
            matrices[-1] = factor._apply(matrices[-1])
            continue
        thin = isinstance(factor, LowRank)
        inner = factor.right.transpose(0, 2, 1) if thin else shared_blocks(factor)
        matrices.append(inner if kept is None else _columns(inner, kept))
        kept = None
        if isinstance(factor, LowRank):
            matrices.append(factor.left)
    return matrices[::-1]


def with_diagonals_joined(factors: Sequence[Operator]) -> Iterator[Operator]:
    """Yield the factors from the right, neighbouring diagonals as one."""
    for diagonal, run in groupby(reversed(factors), lambda f: isinstance(f, Scaling | Diagonal)):
        found = list(run)
        if not diagonal or (len(found) == 1 and isinstance(found[0], Diagonal)):
            yield from found
            continue
        entries = reduce(np.multiply, map(_entries, found), np.ones((1, found[0].rows)))
        yield Diagonal(entries, found[0].tokens)


def selection(entries: Array, rows: int) -> Array | None:
    """Return the places (n or 1, kept) that hold all nonzeros of the diagonals, if they are few."""
    if rows < _FEW_ROWS:
        return None
    nonzero = entries != 0
    most = int(nonzero.sum(axis=1).max())
    if most > (1 - _SPARSE) * rows or not most:
        return None
    if entries.shape[0] == 1:
        return np.flatnonzero(nonzero)[None]
    # With unequal counts, the places of some zeros fill up.
    return np.sort(np.argsort(~nonzero, axis=1, kind="stable")[:, :most], axis=1)


def _rows(matrix: Array, kept: Array) -> Array:
    if kept.shape[0] == 1:
        return matrix[:, kept[0]]
    return matrix[0][kept] if matrix.shape[0] == 1 else matrix[np.arange(len(kept))[:, None], kept]


def _columns(matrix: Array, kept: Array) -> Array:
    if kept.shape[0] == 1:
        return np.take(matrix, kept[0], axis=2)
    found = np.empty((kept.shape[0], matrix.shape[1], kept.shape[1]))
    for token, places in enumerate(kept):
        np.take(
            matrix[token if matrix.shape[0] > 1 else 0],
            places,
            axis=1,
            out=found[token],
            mode="clip",
        )
    return found


def _apply_left(factors: Sequence[Operator], matrix: Array) -> Array:
    for factor in reversed(factors):
        matrix = factor._apply(matrix)
    return matrix


def _apply_right(matrix: Array, factors: Sequence[Operator]) -> Array:
    if not factors:
        return matrix
    form = diagonal_plus_low_rank(chain_of(factors))
    if form is not None:
        return form.multiplied_by(matrix)
    columns = matrix.transpose(0, 2, 1)
    return Chain(*factors)._transposed._apply(columns).transpose(0, 2, 1)


def _ordered_product(matrices: list[Array]) -> Array:
    """Multiply matrices (n or 1, rows, cols) in the order of fewest multiply-adds."""
    while len(matrices) > _EXACT_FACTORS:
        matrices = [
            _ordered_product(matrices[start : start + _EXACT_FACTORS])
            for start in range(0, len(matrices), _EXACT_FACTORS)
        ]
    _, cut = order_of_product(tuple(matrix.shape for matrix in matrices))
    return _product(matrices, cut, 0, len(matrices) - 1)


def _product(matrices: list[Array], cut: dict[tuple[int, int], int], a: int, b: int) -> Array:
    if a == b:
        return matrices[a]
    m = cut[a, b]
    return np.matmul(_product(matrices, cut, a, m), _product(matrices, cut, m + 1, b))


@lru_cache(maxsize=4096)
def order_of_product(
    shapes: tuple[tuple[int, ...], ...],
) -> tuple[int, dict[tuple[int, int], int]]:
    """Return the multiply-adds of the best order, and where it cuts each run of factors."""
    count = len(shapes)
    widths = [shape[1] for shape in shapes] + [shapes[-1][2]]
    leading = [shape[0] for shape in shapes]
    cost = {(k, k): 0 for k in range(count)}
    cut: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for a in range(count - length):
            b = a + length
            batch = max(leading[a : b + 1])
            cost[a, b], cut[a, b] = min(
                (
                    cost[a, m] + cost[m + 1, b] + batch * widths[a] * widths[m + 1] * widths[b + 1],
                    m,
                )
                for m in range(a, b)
            )
    return cost[0, count - 1], cut
