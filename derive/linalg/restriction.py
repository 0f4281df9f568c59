"""A tokenwise operator restricted to some of its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

from derive.linalg.arrays import Array
from derive.linalg.blocks import shared_blocks
from derive.linalg.composition import Chain, Sum
from derive.linalg.contraction import Contraction
from derive.linalg.operator import Operator
from derive.linalg.tokenwise import Dense, Diagonal, Identity, LowRank, Scaling, Zero

__all__ = ["blocks_in_parts", "largest_matrix", "restricted"]


@singledispatch
def restricted(op: Operator, part: slice) -> Operator | None:
    """Return a tokenwise operator on the tokens of ``part``; None if it is of an unknown kind."""
    return None


@restricted.register(Identity)
@restricted.register(Zero)
def _(op: Operator, part: slice) -> Operator | None:
    return _part_of(op, part)


@restricted.register
def _(op: Scaling, part: slice) -> Operator | None:
    return _part_of(op, part, factors=_of(op.factors, part))


@restricted.register
def _(op: Diagonal, part: slice) -> Operator | None:
    return _part_of(op, part, entries=_of(op.entries, part))


@restricted.register
def _(op: LowRank, part: slice) -> Operator | None:
    return _part_of(op, part, left=_of(op.left, part), right=_of(op.right, part))


@restricted.register
def _(op: Dense, part: slice) -> Operator | None:
    return _part_of(op, part, matrix=_of(op.matrix, part))


@restricted.register
def _(op: Contraction, part: slice) -> Operator | None:
    if not op.tokenwise:
        return None
    terms = tuple(
        tuple(
            (a[(slice(None),) * labels.index("i") + (part,)] if "i" in labels else a, labels)
            for a, labels in term
        )
        for term in op.terms
    )
    return _part_of(op, part, terms=terms)


@restricted.register
def _(op: Sum, part: slice) -> Operator | None:
    terms = [found for term in op.terms if (found := restricted(term, part)) is not None]
    return _part_of(op, part, terms=tuple(terms)) if len(terms) == len(op.terms) else None


@restricted.register
def _(op: Chain, part: slice) -> Operator | None:
    factors = [found for factor in op.factors if (found := restricted(factor, part)) is not None]
    return _part_of(op, part, factors=tuple(factors)) if len(factors) == len(op.factors) else None


def _part_of(op: Operator, part: slice, **attributes: Any) -> Operator:
    """Return a copy on fewer tokens."""
    tokens = len(range(*part.indices(op.tokens)))
    return op._altered(tokens, op.rows, op.cols, **attributes)


def _of(array: Array, part: slice) -> Array:
    return array if array.shape[0] == 1 else array[part]


def blocks_in_parts(op: Operator, entries: int) -> Iterator[tuple[slice, Array]]:
    """Yield the blocks of a tokenwise operator, a few tokens at a time.

    So many that the matrices in work hold about ``entries`` entries. Blocks that all tokens
    share come once.
    """
    whole = slice(0, op.tokens)
    step = max(1, entries // largest_matrix(op))
    if step >= op.tokens or restricted(op, slice(0, 1)) is None:
        yield whole, shared_blocks(op)
        return
    start = 0
    while start < op.tokens:
        part = slice(start, min(start + step, op.tokens))
        blocks = shared_blocks(restricted(op, part) or op)
        if blocks.shape[0] == 1 and part.stop - start > 1:  # shared by all
            part = whole
        yield part, blocks
        start = part.stop


def largest_matrix(op: Operator) -> int:
    """Entries of the largest matrix of one token that forming the block meets."""
    if isinstance(op, Chain | Sum):
        inner = op.factors if isinstance(op, Chain) else op.terms
        return max((op.rows * op.cols, *map(largest_matrix, inner)))
    return op.rows if isinstance(op, Identity | Scaling | Diagonal | Zero) else op.rows * op.cols
