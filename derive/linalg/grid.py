"""The matrix of an operator as a grid of token pairs, with what mixes tokens formed only once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derive.linalg.arrays import Array
from derive.linalg.blocks import chain_of
from derive.linalg.composition import Chain, Sum
from derive.linalg.contraction import Contraction, Term, mixes
from derive.linalg.diagonal_plus_low_rank import DiagonalPlusLowRank, diagonal_plus_low_rank
from derive.linalg.operator import Operator
from derive.linalg.restriction import blocks_in_parts
from derive.linalg.tensor import Labelled, Labels, Reduction, contract_pair
from derive.linalg.tokenwise import Dense

__all__ = ["token_grid"]

GRID: Labels = ("i", "r", "j", "c")
_BLOCK: Labels = ("i", "r", "c")
# Entries of the block rows that are in work at one time: they should stay in cache.
_ENTRIES_IN_WORK = 2**17


def token_grid(op: Operator) -> Array:
    """Return the matrix as an array (n, rows, n, cols)."""
    grid = np.zeros((op.tokens, op.rows, op.tokens, op.cols))
    _accumulate(operators_of(op), grid, fresh=True)
    return grid


def operators_of(op: Operator) -> tuple[Operator, ...]:
    return op.factors if isinstance(op, Chain) and op.factors else (op,)


def _accumulate(factors: tuple[Operator, ...], grid: Array, *, fresh: bool = False) -> None:
    """Add the product of ``factors`` to ``grid``, distributing over sums that mix tokens.

    A ``fresh`` grid is zero and may be overwritten.
    """
    mixing = [place for place, factor in enumerate(factors) if not factor.tokenwise]
    if not mixing:
        entries = min(_ENTRIES_IN_WORK, grid.size // 32)
        for part, blocks in blocks_in_parts(Chain(*factors), entries):
            for place, token in enumerate(range(part.start, part.stop)):
                grid[token, :, token, :] += blocks[place if len(blocks) > 1 else 0]
        return
    if len(mixing) > 1:
        _accumulate_mixtures(factors, mixing, grid)
        return
    left, middle, right = factors[: mixing[0]], factors[mixing[0]], factors[mixing[0] + 1 :]
    if isinstance(middle, Sum):
        left, right = _merged(left), _merged_before_simple(right)
        alone = [term for term in middle.terms if term.tokenwise]
        for term in middle.terms:
            if not term.tokenwise:
                _accumulate((*left, *operators_of(term), *right), grid, fresh=fresh)
                fresh = False
        if alone:
            _accumulate((*left, Sum(*alone), *right), grid)
    elif not isinstance(middle, Contraction):
        _accumulate_applied(left, middle, right, grid)
    elif all(map(is_simple, left)) and not all(map(is_simple, right)):
        # Block rows absorb what stands on their left; here the matrices stand on the right.
        _accumulate_contraction(
            _transposed(right), middle._transposed, _transposed(left), grid.transpose(2, 3, 0, 1)
        )
    else:
        _accumulate_contraction(left, middle, right, grid, fresh=fresh)


def _transposed(factors: tuple[Operator, ...]) -> tuple[Operator, ...]:
    return tuple(factor._transposed for factor in reversed(factors))


def _merged(factors: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Multiply tokenwise factors out, unless each is a diagonal plus a low rank."""
    if all(map(is_simple, factors)) or (len(factors) == 1 and isinstance(factors[0], Dense)):
        return factors
    op = Chain(*factors)
    return (Dense(_blocks(op), op.tokens),)


def _blocks(op: Operator) -> Array:
    """Return the blocks (n or 1, rows, cols), with little beside them in memory."""
    if isinstance(op, Dense):
        return op.matrix
    found: Array | None = None
    entries = min(_ENTRIES_IN_WORK, op.shape[0] * op.shape[1] // 32)
    for part, blocks in blocks_in_parts(op, entries):
        if part.stop - part.start == op.tokens:
            return blocks
        if found is None:
            found = np.empty((op.tokens, op.rows, op.cols))
        found[part] = blocks
    return np.empty((0, op.rows, op.cols)) if found is None else found


def _merged_before_simple(factors: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Multiply out all but the right end that is a diagonal plus a low rank."""
    before, _ = split_simple(factors)
    return (*_merged(before), *factors[len(before) :])


def split_simple(
    factors: tuple[Operator, ...],
) -> tuple[tuple[Operator, ...], DiagonalPlusLowRank | None]:
    """Split off the longest right end that is a diagonal plus a low rank."""
    form: DiagonalPlusLowRank | None = None
    for split in range(len(factors), 0, -1):
        part = diagonal_plus_low_rank(factors[split - 1])
        joined = part if part is None or form is None else part @ form
        if joined is None or not _thin(joined):
            return factors[:split], form
        form = joined
    return (), form


def is_simple(factor: Operator) -> bool:
    form = diagonal_plus_low_rank(factor)
    return form is not None and _thin(form)


def _thin(form: DiagonalPlusLowRank) -> bool:
    return 4 * form.rank <= form.diagonal.shape[1]


def _accumulate_contraction(
    left: tuple[Operator, ...],
    middle: Contraction,
    right: tuple[Operator, ...],
    grid: Array,
    *,
    fresh: bool = False,
) -> None:
    """Add ``left @ middle @ right``, a few block rows at a time.

    The matrices beside the contraction become factors of its terms, so that they meet the
    smallest operand. What is a diagonal plus a low rank at the right end is applied to the
    finished block rows.
    """
    beside, last = split_simple(right)
    outside = _blocks(chain_of(left)) if left else None
    inside = _blocks(chain_of(beside)) if beside else None
    terms = [(absorb(outside, term, inside), mixes(term)) for term in middle.terms]
    small = grid.size // 128
    pairs = [Reduction(term, GRID, "i", small) for term, mixing in terms if mixing]
    alone = [Reduction(term, _BLOCK, "i", small) for term, mixing in terms if not mixing]
    tokens, rows, _, cols = grid.shape
    entries = min(_ENTRIES_IN_WORK, grid.size // 64)
    step = min(tokens, max(1, entries // (rows * tokens * cols)))
    direct = fresh and grid.flags.c_contiguous
    work = None if direct else np.empty((step, rows, tokens, cols))
    for start in range(0, tokens, step):
        count = min(step, tokens - start)
        part = slice(start, start + count)
        block = grid[part] if work is None else work[:count]
        _fill(block, [reduction.pair(part) for reduction in pairs])
        for reduction in alone:
            blocks = contract_pair(reduction.pair(part), _BLOCK)
            for place in range(count):
                block[place, :, start + place, :] += blocks[place]
        if last is not None:
            last.multiply_rows(block.reshape(count * rows, tokens, cols))
        if work is not None:
            grid[part] += block


def _fill(block: Array, pairs: Sequence[Sequence[Labelled]]) -> None:
    """Write the sum of the terms to ``block``, with axes i, r, j, c.

    Where one operand of each term carries j and the other c, all terms are one matrix product
    per output component: sum over s of X[i, r, j, s] Y[i, r, s, c], s running over the summed
    labels of every term.
    """
    outer = [sides for pair in pairs if (sides := _outer_sides(pair)) is not None]
    rest = [pair for pair in pairs if _outer_sides(pair) is None]
    count, rows = block.shape[:2]
    if outer:
        xs = [_matrix(x, summed, "j", (count, rows)) for x, _, summed in outer]
        ys = [_matrix(y, summed, "c", (count, rows)) for _, y, summed in outer]
        entries = min(_ENTRIES_IN_WORK, max(2**13, block.size // 2))
        step = max(1, entries // (count * block.shape[3] * sum(y.shape[3] for y in ys)))
        for start in range(0, rows, step):
            part = slice(start, start + step)
            x, y = _side_by_side(xs, part), _side_by_side(ys, part)
            np.matmul(x, y.transpose(0, 1, 3, 2), out=block[:, part])
    else:
        block[...] = 0.0
    for pair in rest:
        block += contract_pair(pair, GRID)


def _side_by_side(matrices: Sequence[Array], rows: slice) -> Array:
    some = [matrix[:, rows] for matrix in matrices]
    return np.concatenate(some, axis=3) if len(some) > 1 else some[0]


def _outer_sides(pair: Sequence[Labelled]) -> tuple[Labelled, Labelled, Labels] | None:
    """Return the operand with j, the operand with c and the labels they sum, if they are two."""
    if len(pair) != 2:
        return None
    x, y = pair if "j" in pair[0][1] else pair[::-1]
    if "c" in x[1] or "j" in y[1]:
        return None
    summed = tuple(label for label in x[1] if label not in GRID)
    return (x, y, summed) if set(summed) == set(y[1]).difference(GRID) else None


def _matrix(operand: Labelled, summed: Labels, free: str, batch: tuple[int, int]) -> Array:
    """Return the operand with axes i, r, free, summed, repeated along i and r if it has none."""
    array, labels = operand
    axes = tuple(s for s in ("i", "r", free, *summed) if s in labels)
    array = array.transpose([labels.index(s) for s in axes])
    width = array.shape[axes.index(free)]
    leading = tuple(
        size if label in labels else 1 for label, size in zip(("i", "r"), batch, strict=True)
    )
    matrix = array.reshape((*leading, width, -1))
    return np.broadcast_to(matrix, (*batch, *matrix.shape[2:]))


def absorb(left: Array | None, term: Term, right: Array | None) -> Term:
    """Make the blocks beside a term into factors of it."""
    names: dict[str, str] = {}
    beside: list[Labelled] = []
    if left is not None:
        names["r"] = "*r"
        beside.append(_labelled(left, "i", "r", "*r"))
    if right is not None:
        names["c"] = "*c"
        beside.append(_labelled(right, "j" if mixes(term) else "i", "*c", "c"))
    inside = [(array, tuple(names.get(s, s) for s in labels)) for array, labels in term]
    return (*beside, *inside)


def _labelled(blocks: Array, token: str, row: str, col: str) -> Labelled:
    return (blocks[0], (row, col)) if blocks.shape[0] == 1 else (blocks, (token, row, col))


def _accumulate_mixtures(factors: tuple[Operator, ...], mixing: list[int], grid: Array) -> None:
    """Add a product with several mixing factors: form the last one, apply the others to it."""
    outer, inner = factors[: mixing[-2] + 1], factors[mixing[-2] + 1 :]
    tokens, _, _, cols = grid.shape
    formed = np.zeros((tokens, inner[0].rows, tokens, cols))
    _accumulate(inner, formed)
    state = formed.reshape(tokens, -1, tokens * cols)
    run: tuple[Operator, ...] = ()
    for factor in (*reversed(outer), None):
        if factor is not None and factor.tokenwise:
            run = (factor, *run)
            continue
        for op in reversed(_merged(run)):
            state = op._apply(state)
        run = ()
        if factor is not None:
            state = factor._apply(state)
    grid += state.reshape(grid.shape)


def _accumulate_applied(
    left: tuple[Operator, ...], middle: Operator, right: tuple[Operator, ...], grid: Array
) -> None:
    """Add ``left @ middle @ right`` for a mixing operator known only by what it does."""
    tokens, rows, cols = middle.tokens, middle.rows, middle.cols
    state = middle._apply(np.eye(tokens * cols).reshape(tokens, cols, tokens * cols))
    if right:
        flipped = state.reshape(tokens * rows, tokens * cols).T
        image = Chain(*right)._transposed._apply(flipped.reshape(tokens, cols, tokens * rows))
        state = image.reshape(-1, tokens * rows).T.reshape(tokens, rows, -1)
    if left:
        state = Chain(*left)._apply(state)
    grid += state.reshape(grid.shape)
