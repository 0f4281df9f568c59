"""What an operator will cost before anything runs: operations and bytes, from its structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import groupby

import numpy as np

from derive.errors import UnknownNodeError
from derive.linalg.arrays import Array
from derive.linalg.blocks import (
    applies,
    chain_of,
    collected,
    order_of_product,
    owned_blocks,
    selection,
    with_diagonals_joined,
    without_cheap_ends,
)
from derive.linalg.composition import Chain, Sum
from derive.linalg.contraction import Contraction, mixes
from derive.linalg.diagonal_plus_low_rank import diagonal_plus_low_rank
from derive.linalg.grid import GRID, absorb, is_simple, operators_of, split_simple
from derive.linalg.operator import Operator
from derive.linalg.restriction import largest_matrix, restricted
from derive.linalg.tensor import entries_held, work
from derive.linalg.tokenwise import Dense, Diagonal, Identity, LowRank, Scaling, Zero

# As in `grid`: entries in work at one time.
_ENTRIES_IN_WORK = 2**17
# Bytes of vectors and of Python's own objects.
_SMALL = 2**17

__all__ = ["Cost", "condensed", "cost", "forming_work", "peak_bytes"]


@dataclass(frozen=True)
class Cost:
    """Operations and bytes of one use of an operator.

    Attributes
    ----------
    apply_flops : int
        Of one product with a vector; the transpose costs the same.
    apply_bytes : int
        Read and written by it: the operator's arrays once, and every intermediate vector twice.
    materialise_flops : int
        Of ``materialise``.
    result_bytes : int
        Of the matrix.
    peak_bytes : int
        The most that ``materialise`` holds at one time, the matrix included.
    """

    apply_flops: int
    apply_bytes: int
    materialise_flops: int
    result_bytes: int
    peak_bytes: int

    def __str__(self) -> str:
        return (
            f"apply {_si(self.apply_flops)}FLOP, {_si(self.apply_bytes)}B; "
            f"materialise {_si(self.materialise_flops)}FLOP, {_si(self.result_bytes)}B, "
            f"at most {_si(self.peak_bytes)}B at one time"
        )


def cost(op: Operator) -> Cost:
    r"""Return what applying and materialising an operator will cost, without doing either.

    A multiply-add is two operations. Products of matrices are counted in the order in which
    they will run; element-wise work is counted where an operator does nothing else.

    Parameters
    ----------
    op : Operator

    Returns
    -------
    Cost

    Raises
    ------
    UnknownNodeError
        If ``op`` is not an Operator.

    Examples
    --------
    >>> import numpy as np
    >>> from derive.linalg import Dense
    >>> thin = Dense(np.ones((8, 2)), 1) @ Dense(np.ones((2, 8)), 1)
    >>> c = cost(thin)
    >>> c.apply_flops, c.materialise_flops, c.result_bytes
    (64, 256, 512)
    """
    if not isinstance(op, Operator):
        raise UnknownNodeError(f"op: expected an Operator, got {type(op).__name__}")
    return Cost(
        apply_flops=2 * op.tokens * op._work,
        apply_bytes=_array_bytes(op) + 2 * _vector_bytes(op),
        materialise_flops=2 * _grid_work(operators_of(op)),
        result_bytes=8 * op.shape[0] * op.shape[1],
        peak_bytes=peak_bytes(op),
    )


def peak_bytes(op: Operator) -> int:
    """Return a bound on what ``materialise`` holds at one time, the matrix included.

    The operator's own arrays are not counted: they are there before.
    """
    return 8 * (op.shape[0] * op.shape[1] + _entries_beside(operators_of(op))) + _SMALL


def _si(count: int) -> str:
    value, prefix = float(count), ""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 1000 or prefix == "T":
            break
        value /= 1000
    return f"{value:.3g} {prefix}"


def _array_bytes(op: Operator) -> int:
    """Bytes of the arrays of an operator, each array once."""
    found: dict[object, int] = {}
    waiting: list[object] = [op]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Operator):
            waiting += [v for k, v in vars(value).items() if k != "_transposed"]
        elif isinstance(value, tuple | list):
            waiting += value
        elif isinstance(value, np.ndarray):
            stored = [n for n, step in zip(value.shape, value.strides, strict=True) if step]
            where = value.__array_interface__["data"][0], value.shape
            found[where] = 8 * int(np.prod(stored, dtype=np.int64))
    return sum(found.values())


def _vector_bytes(op: Operator) -> int:
    if isinstance(op, Chain):
        return sum(map(_vector_bytes, op.factors))
    if isinstance(op, Sum):
        return sum(map(_vector_bytes, op.terms))
    return 8 * op.shape[0]


def condensed(op: Operator, columns: int) -> Operator:
    """Return the operator in the form that is cheapest to apply to so many columns.

    What acts on each token alone is multiplied out where that takes fewer multiply-adds than it
    saves: autodiff pays 4 d^2 f for a feed-forward layer and d columns, forming 2 d^2 f + 2 d^3.
    """
    if isinstance(op, Dense):
        return op
    if op.tokenwise:
        formed = forming_work(op)
        dense = op.tokens * op.rows * op.cols * columns
        if formed + dense < op.tokens * op._work * columns:
            return Dense(owned_blocks(op), op.tokens)
        return op
    if isinstance(op, Chain):
        factors: list[Operator] = []
        for tokenwise, run in groupby(op.factors, lambda factor: factor.tokenwise):
            found = list(run)
            factors += (
                [condensed(chain_of(found), columns)]
                if tokenwise
                else [condensed(factor, columns) for factor in found]
            )
        return Chain(*factors)
    if isinstance(op, Sum):
        alone = [term for term in op.terms if term.tokenwise]
        mixed = [condensed(term, columns) for term in op.terms if not term.tokenwise]
        return Sum(*mixed, condensed(Sum(*alone), columns)) if alone else Sum(*mixed)
    return op


# -- blocks of tokens, as `blocks` forms them


def forming_work(op: Operator) -> int:
    """Return the multiply-adds of forming the blocks of a tokenwise operator."""
    return _forming(op)[0]


@singledispatch
def _forming(op: Operator) -> tuple[int, int]:
    """Return the multiply-adds and the length of the leading axis, n or 1."""
    return op._work * op.cols, 1


@_forming.register(Identity)
@_forming.register(Zero)
@_forming.register(Scaling)
@_forming.register(Diagonal)
@_forming.register(Dense)
def _(op: Operator) -> tuple[int, int]:
    return 0, _leading(op)


@_forming.register
def _(op: LowRank) -> tuple[int, int]:
    leading = _leading(op)
    return leading * op.rows * op.cols * op.left.shape[2], leading


@_forming.register
def _(op: Contraction) -> tuple[int, int]:
    return sum(work(term, ("i", "r", "c")) for term in op.terms), op.tokens


@_forming.register
def _(op: Sum) -> tuple[int, int]:
    parts = [_forming(term) for term in collected(op.terms)]
    leading = max((lead for _, lead in parts), default=1)
    return sum(done for done, _ in parts), leading


@_forming.register
def _(op: Chain) -> tuple[int, int]:
    factors = op.factors
    start, stop = without_cheap_ends(factors)
    if start == stop:
        return op._work * op.cols, max(map(_leading, factors), default=1)
    total = 0
    shapes: list[tuple[int, ...]] = []
    kept: Array | None = None
    for factor in with_diagonals_joined(factors[start:stop]):
        if isinstance(factor, Diagonal) and shapes:
            kept = selection(factor.entries, shapes[-1][1])
            lead, rows, cols = shapes[-1]
            rows = rows if kept is None else kept.shape[1]
            shapes[-1] = (max(lead, factor.entries.shape[0]), rows, cols)
        elif shapes and kept is None and applies(factor):
            lead, _, cols = shapes[-1]
            shapes[-1] = (max(lead, _leading(factor)), factor.rows, cols)
            total += shapes[-1][0] * factor._work * cols
        else:
            done, lead = (0, _leading(factor)) if isinstance(factor, LowRank) else _forming(factor)
            total += done
            cols = factor.cols if kept is None else kept.shape[1]
            lead = lead if kept is None else max(lead, kept.shape[0])
            kept = None
            if isinstance(factor, LowRank):
                rank = factor.left.shape[2]
                shapes += [(lead, rank, cols), (lead, factor.rows, rank)]
            else:
                shapes.append((lead, factor.rows, cols))
    total += order_of_product(tuple(reversed(shapes)))[0]
    leading = max(lead for lead, _, _ in shapes)
    ends = (*factors[:start], *factors[stop:])
    leading = max((leading, *map(_leading, ends)))
    rows, cols = shapes[-1][1], shapes[0][2]
    if stop < len(factors):
        form = diagonal_plus_low_rank(chain_of(factors[stop:]))
        rank = 0 if form is None else form.rank
        if rank:
            total += 2 * leading * rows * cols * rank
    return total, leading


def _leading(op: Operator) -> int:
    if isinstance(op, Dense):
        return op.matrix.shape[0]
    if isinstance(op, Diagonal):
        return op.entries.shape[0]
    if isinstance(op, Scaling):
        return op.factors.shape[0]
    if isinstance(op, LowRank):
        return max(op.left.shape[0], op.right.shape[0])
    if isinstance(op, Chain | Sum):
        parts = op.factors if isinstance(op, Chain) else op.terms
        return max(map(_leading, parts), default=1)
    return op.tokens if isinstance(op, Contraction) else 1


# -- what is held beside the matrix


def _entries_beside(factors: tuple[Operator, ...]) -> int:
    """Return a bound on the entries held beside the matrix at one time."""
    mixing = [place for place, factor in enumerate(factors) if not factor.tokenwise]
    tokens = factors[0].tokens
    rows, cols = factors[0].rows, factors[-1].cols
    size = tokens * rows * tokens * cols
    if not mixing:
        return _blocks_beside(factors, size // 32)
    if len(mixing) > 1:
        inner = factors[mixing[-2] + 1 :]
        width = max(f.rows for f in factors[: mixing[-2] + 2])
        columns = np.broadcast_to(0.0, (tokens, width, tokens * cols))
        applied = max(_applied_beside(f, columns) for f in factors[: mixing[-2] + 1])
        merged = sum(_merged_entries((f,)) for f in factors if f.tokenwise)
        formed = tokens * inner[0].rows * tokens * cols
        return max(_entries_beside(inner) + formed, formed + 2 * columns.size + applied) + merged
    left, middle, right = factors[: mixing[0]], factors[mixing[0]], factors[mixing[0] + 1 :]
    before, _ = split_simple(right)
    sides = _merged_entries(left) + _merged_entries(before)
    if isinstance(middle, Sum):
        left, right = _stand_in(left), (*_stand_in(before), *right[len(before) :])
        terms = [operators_of(t) for t in middle.terms if not t.tokenwise]
        alone = [t for t in middle.terms if t.tokenwise]
        terms += [(Sum(*alone),)] if alone else []
        return sides + max(_entries_beside((*left, *term, *right)) for term in terms)
    if not isinstance(middle, Contraction):
        return 4 * size + 4 * tokens**2 * middle.rows * middle.cols
    if all(map(is_simple, left)) and not all(map(is_simple, right)):
        flipped = tuple(f._transposed for f in reversed(right))
        left, middle, right = flipped, middle._transposed, tuple(f._transposed for f in left[::-1])
        before, _ = split_simple(right)
    outside, inside = _blocks_like(left), _blocks_like(before)
    if left and all(map(is_simple, left)):  # then it is formed all the same
        sides += max(map(_leading, left)) * left[0].rows * left[-1].cols + _blocks_beside(
            left, size // 32
        )
    row = rows * tokens * cols
    at_once = max(1, min(_ENTRIES_IN_WORK, size // 64) // row)
    held = 0
    sides += len(middle.terms) * size // 128
    for term in middle.terms:
        operands = [_at_one_token(*factor) for factor in absorb(outside, term, inside)]
        if mixes(term):
            held += 2 * (entries_held(operands, GRID) - row)
        else:
            held += 2 * entries_held(operands, ("i", "r", "c"))
    return sides + at_once * held + _ENTRIES_IN_WORK


def _at_one_token(array: Array, labels: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    if "i" in labels:
        array = array[(slice(None),) * labels.index("i") + (slice(1),)]
    return array, labels


def _applied_beside(factor: Operator, columns: Array) -> int:
    if isinstance(factor, Contraction):
        label = ("j", "c", "*")
        width = np.broadcast_to(0.0, (factor.tokens, factor.cols, columns.shape[2]))
        return max(
            2 * entries_held((*t, (width, label if mixes(t) else ("i", "c", "*"))), ("i", "r", "*"))
            for t in factor.terms
        )
    if isinstance(factor, Sum | Chain):
        parts = factor.terms if isinstance(factor, Sum) else factor.factors
        return 2 * columns.size + max((_applied_beside(f, columns) for f in parts), default=0)
    return 2 * max(columns.size, columns.size // columns.shape[1] * factor.rows)


def _merged_entries(factors: tuple[Operator, ...]) -> int:
    if not factors or all(map(is_simple, factors)) or isinstance(factors[0], Dense):
        return 0
    rows, cols, tokens = factors[0].rows, factors[-1].cols, factors[0].tokens
    most = tokens * rows * tokens * cols // 32
    return max(map(_leading, factors)) * rows * cols + _blocks_beside(factors, most)


def _blocks_beside(factors: tuple[Operator, ...], most: int) -> int:
    op = chain_of(factors)
    largest = largest_matrix(op)
    known = restricted(op, slice(0, 1)) is not None
    at_once = max(1, min(_ENTRIES_IN_WORK, most) // largest) if known else op.tokens
    return 4 * min(at_once, op.tokens) * largest


# -- pairs of tokens, as `grid` forms them


def _grid_work(factors: tuple[Operator, ...]) -> int:
    mixing = [place for place, factor in enumerate(factors) if not factor.tokenwise]
    if not mixing:
        return forming_work(chain_of(factors)) if factors else 0
    tokens, columns = factors[0].tokens, factors[-1].cols * factors[0].tokens
    if len(mixing) > 1:
        inner = factors[mixing[-2] + 1 :]
        total = _grid_work(inner)
        run: tuple[Operator, ...] = ()
        for factor in (*reversed(factors[: mixing[-2] + 1]), None):
            if factor is not None and factor.tokenwise:
                run = (factor, *run)
                continue
            if run:
                total += _merged_work(run) + tokens * run[0].rows * run[-1].cols * columns
            run = ()
            total += 0 if factor is None else tokens * factor._work * columns
        return total
    left, middle, right = factors[: mixing[0]], factors[mixing[0]], factors[mixing[0] + 1 :]
    if isinstance(middle, Sum):
        before, _ = split_simple(right)
        total = _merged_work(left) + _merged_work(before)
        left, right = _stand_in(left), (*_stand_in(before), *right[len(before) :])
        alone = [term for term in middle.terms if term.tokenwise]
        if alone:
            total += _grid_work((*left, Sum(*alone), *right))
        mixed = [term for term in middle.terms if not term.tokenwise]
        return total + sum(_grid_work((*left, *operators_of(t), *right)) for t in mixed)
    if not isinstance(middle, Contraction):
        return tokens * sum(f._work for f in factors) * columns
    if all(map(is_simple, left)) and not all(map(is_simple, right)):
        flipped = tuple(f._transposed for f in reversed(right))
        return _contraction_work(
            flipped, middle._transposed, tuple(f._transposed for f in reversed(left))
        )
    return _contraction_work(left, middle, right)


def _merged_work(factors: tuple[Operator, ...]) -> int:
    if not factors or all(map(is_simple, factors)):
        return 0
    return forming_work(chain_of(factors))


def _stand_in(factors: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Return a dense operator that takes no memory, for factors that will be multiplied out."""
    if not factors or all(map(is_simple, factors)):
        return factors
    leading = max(map(_leading, factors))
    return (_like(leading, factors[0].rows, factors[-1].cols, factors[0].tokens),)


def _like(leading: int, rows: int, cols: int, tokens: int) -> Dense:
    return Dense(np.broadcast_to(1.0, (leading, rows, cols)), tokens)


def _contraction_work(
    left: tuple[Operator, ...], middle: Contraction, right: tuple[Operator, ...]
) -> int:
    beside, last = split_simple(right)
    total = _merged_work(left) + _merged_work(beside)
    outside = _blocks_like(left)
    inside = _blocks_like(beside)
    for term in middle.terms:
        output = GRID if mixes(term) else ("i", "r", "c")
        total += work(absorb(outside, term, inside), output)
    rows = left[0].rows if left else middle.rows
    cols = right[-1].cols if right else middle.cols
    if last is not None:
        total += middle.tokens**2 * rows * cols * 2 * last.rank
    return total


def _blocks_like(factors: Sequence[Operator]) -> Array | None:
    if not factors:
        return None
    leading = max(map(_leading, factors))
    return np.broadcast_to(0.0, (leading, factors[0].rows, factors[-1].cols))
