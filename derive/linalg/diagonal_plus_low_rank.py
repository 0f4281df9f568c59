"""The form diag(e) + U V' per token, closed under sums and products, as norms' Jacobians are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce, singledispatch

import numpy as np

from derive.linalg.arrays import Array
from derive.linalg.composition import Chain, Sum
from derive.linalg.operator import Operator
from derive.linalg.tokenwise import Diagonal, Identity, LowRank, Scaling, Zero

__all__ = ["DiagonalPlusLowRank", "diagonal_plus_low_rank"]

# Entries of the rows that are multiplied at one time: they should stay in cache.
_ENTRIES_IN_WORK = 2**16


@dataclass(frozen=True, eq=False)
class DiagonalPlusLowRank:
    r"""The matrices :math:`\mathrm{diag}(e_i) + U_i V_i^\top` of the tokens i.

    Parameters
    ----------
    diagonal : ndarray, shape (n or 1, d)
    left, right : ndarray, shape (n or 1, d, q)
    """

    diagonal: Array
    left: Array
    right: Array

    @property
    def rank(self) -> int:
        """The number q of outer products."""
        return self.left.shape[2]

    def __add__(self, other: DiagonalPlusLowRank) -> DiagonalPlusLowRank:
        return DiagonalPlusLowRank(
            self.diagonal + other.diagonal,
            _beside(self.left, other.left),
            _beside(self.right, other.right),
        )

    def __matmul__(self, other: DiagonalPlusLowRank) -> DiagonalPlusLowRank:
        if not self.rank:
            left = self.diagonal[:, :, None] * other.left if other.rank else other.left
            return DiagonalPlusLowRank(self.diagonal * other.diagonal, left, other.right)
        if not other.rank:
            right = other.diagonal[:, :, None] * self.right
            return DiagonalPlusLowRank(self.diagonal * other.diagonal, self.left, right)
        # (D1 + U1 V1')(D2 + U2 V2') = D1 D2 + (D1 U2) V2' + U1 (D2 V1 + V2 U2' V1)'
        across = np.matmul(other.left.transpose(0, 2, 1), self.right)
        passed = other.diagonal[:, :, None] * self.right + np.matmul(other.right, across)
        return DiagonalPlusLowRank(
            self.diagonal * other.diagonal,
            _beside(self.diagonal[:, :, None] * other.left, self.left),
            _beside(other.right, passed),
        )

    def multiplied_by(self, matrix: Array) -> Array:
        """Return ``matrix`` (n or 1, rows, d) times this, token by token."""
        product = matrix * self.diagonal[:, None, :]
        if not self.rank:
            return product
        outer = np.matmul(np.matmul(matrix, self.left), self.right.transpose(0, 2, 1))
        if outer.shape != product.shape:
            return product + outer
        product += outer
        return product

    def multiply_rows(self, rows: Array) -> None:
        """Replace ``rows`` (k, n, d), each a row vector of every token, by its product."""
        step = max(1, _ENTRIES_IN_WORK // (rows.shape[1] * rows.shape[2]))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            by_token = some.transpose(1, 0, 2)
            inner = np.matmul(by_token, self.left) if self.rank else None
            some *= self.diagonal
            if inner is not None:
                by_token += np.matmul(inner, self.right.transpose(0, 2, 1))


def _beside(a: Array, b: Array) -> Array:
    if not a.shape[2] or not b.shape[2]:
        return a if a.shape[2] else b
    if a.shape[0] == b.shape[0]:
        return np.concatenate([a, b], axis=2)
    tokens = max(a.shape[0], b.shape[0])
    return np.concatenate(
        [np.broadcast_to(part, (tokens, *part.shape[1:])) for part in (a, b)], axis=2
    )


@singledispatch
def diagonal_plus_low_rank(op: Operator) -> DiagonalPlusLowRank | None:
    """Return the form of an operator that is built to have it, None for any other."""
    return None


@diagonal_plus_low_rank.register
def _(op: Identity) -> DiagonalPlusLowRank | None:
    return _diagonal(np.ones((1, op.rows)))


@diagonal_plus_low_rank.register
def _(op: Zero) -> DiagonalPlusLowRank | None:
    return _diagonal(np.zeros((1, op.rows))) if op.rows == op.cols else None


@diagonal_plus_low_rank.register
def _(op: Scaling) -> DiagonalPlusLowRank | None:
    return _diagonal(np.repeat(op.factors[:, None], op.rows, axis=1))


@diagonal_plus_low_rank.register
def _(op: Diagonal) -> DiagonalPlusLowRank | None:
    return _diagonal(op.entries)


@diagonal_plus_low_rank.register
def _(op: LowRank) -> DiagonalPlusLowRank | None:
    if op.rows != op.cols:
        return None
    return DiagonalPlusLowRank(np.zeros((1, op.rows)), op.left, op.right)


@diagonal_plus_low_rank.register
def _(op: Sum) -> DiagonalPlusLowRank | None:
    forms = [form for form in map(diagonal_plus_low_rank, op.terms) if form is not None]
    if not forms or len(forms) < len(op.terms):
        return None
    return reduce(lambda a, b: a + b, forms)


@diagonal_plus_low_rank.register
def _(op: Chain) -> DiagonalPlusLowRank | None:
    forms = [form for form in map(diagonal_plus_low_rank, op.factors) if form is not None]
    if not forms or len(forms) < len(op.factors):
        return None
    return reduce(lambda a, b: a @ b, forms)


def _diagonal(entries: Array) -> DiagonalPlusLowRank:
    empty = np.zeros((1, entries.shape[1], 0))
    return DiagonalPlusLowRank(entries, empty, empty)
