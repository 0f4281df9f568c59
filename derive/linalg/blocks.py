"""The blocks of operators that act on each token alone, multiplied in the cheapest order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce, singledispatch

import numpy as np

from derive.linalg.arrays import Array
from derive.linalg.composition import Chain, Sum
from derive.linalg.contraction import Contraction
from derive.linalg.diagonal_plus_low_rank import diagonal_plus_low_rank
from derive.linalg.operator import Operator
from derive.linalg.tensor import contract
from derive.linalg.tokenwise import Dense, Diagonal, Identity, LowRank, Scaling

__all__ = ["shared_blocks"]

# The order of a product of matrices is found exactly, in cubic time, for up to this many.
_EXACT_FACTORS = 24


@singledispatch
def shared_blocks(op: Operator) -> Array:
    """Return the blocks with a leading axis of n, or of 1 if all tokens share one block."""
    return op._apply(np.eye(op.cols)[None])


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
    diagonals = [_entries(t) for t in op.terms if isinstance(t, Identity | Scaling | Diagonal)]
    rest = [shared_blocks(t) for t in op.terms if not isinstance(t, Identity | Scaling | Diagonal)]
    leading = max((part.shape[0] for part in (*diagonals, *rest)), default=1)
    total = np.zeros((leading, op.rows, op.cols))
    for part in rest:
        total += part
    along = np.arange(min(op.rows, op.cols))
    for part in diagonals:
        total[:, along, along] += part
    return total


def _entries(op: Identity | Scaling | Diagonal) -> Array:
    """Return the diagonal, with axes that broadcast to (n, width)."""
    if isinstance(op, Diagonal):
        return op.entries
    return op.factors[:, None] if isinstance(op, Scaling) else np.ones((1, 1))


@shared_blocks.register
def _(op: Chain) -> Array:
    factors = op.factors
    stop = len(factors)
    while stop and _applies(factors[stop - 1]):
        stop -= 1
    start = 0
    while start < stop and _applies(factors[start]):
        start += 1
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


def _applies(op: Operator) -> bool:
    """Whether applying the operator costs much less than a product with its blocks.

    A low-rank factor is two thin matrices instead.
    """
    return not isinstance(op, LowRank) and 2 * op._work < op.rows * op.cols


def _matrices(factors: Sequence[Operator]) -> list[Array]:
    """Turn factors, the last not cheap, into matrices with the same product.

    A low-rank factor becomes two thin matrices; a cheap one is applied to the matrix on its
    right.
    """
    matrices: list[Array] = []
    for factor in reversed(factors):
        if isinstance(factor, LowRank):
            matrices += [factor.right.transpose(0, 2, 1), factor.left]
        elif _applies(factor):
            matrices[-1] = factor._apply(matrices[-1])
        else:
            matrices.append(shared_blocks(factor))
    return matrices[::-1]


def _apply_left(factors: Sequence[Operator], matrix: Array) -> Array:
    for factor in reversed(factors):
        matrix = factor._apply(matrix)
    return matrix


def _apply_right(matrix: Array, factors: Sequence[Operator]) -> Array:
    if not factors:
        return matrix
    form = diagonal_plus_low_rank(Chain(*factors))
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
    count = len(matrices)
    widths = [matrix.shape[1] for matrix in matrices] + [matrices[-1].shape[2]]
    leading = [matrix.shape[0] for matrix in matrices]
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

    def product(a: int, b: int) -> Array:
        if a == b:
            return matrices[a]
        m = cut[a, b]
        return np.matmul(product(a, m), product(m + 1, b))

    return product(0, count - 1)
