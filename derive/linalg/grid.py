"""The matrix of an operator as a grid of token pairs, with what mixes tokens formed only once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from derive.linalg.arrays import Array
from derive.linalg.blocks import is_cheap, shared_blocks
from derive.linalg.composition import Chain, Sum
from derive.linalg.contraction import Contraction, Term, mixes
from derive.linalg.operator import Operator
from derive.linalg.tensor import Labelled, contract, contract_pair, reduce_to_pair
from derive.linalg.tokenwise import Dense

__all__ = ["token_grid"]

# Entries of the block rows that are in work at one time: they should stay in cache.
_ROWS_IN_WORK = 2**18


def token_grid(op: Operator) -> Array:
    """Return the matrix as an array (n, rows, n, cols)."""
    grid = np.zeros((op.tokens, op.rows, op.tokens, op.cols))
    _accumulate(_factors(op), grid)
    return grid


def _factors(op: Operator) -> tuple[Operator, ...]:
    return op.factors if isinstance(op, Chain) and op.factors else (op,)


def _accumulate(factors: tuple[Operator, ...], grid: Array) -> None:
    """Add the product of ``factors`` to ``grid``, distributing over sums that mix tokens."""
    mixing = [place for place, factor in enumerate(factors) if not factor.tokenwise]
    if not mixing:
        tokens = np.arange(grid.shape[0])
        grid[tokens, :, tokens, :] += shared_blocks(Chain(*factors))
        return
    if len(mixing) > 1:
        _accumulate_mixtures(factors, mixing, grid)
        return
    left, middle, right = factors[: mixing[0]], factors[mixing[0]], factors[mixing[0] + 1 :]
    if isinstance(middle, Sum):
        left, right = _merged(left), _merged_before_cheap(right)
        alone = [term for term in middle.terms if term.tokenwise]
        if alone:
            _accumulate((*left, Sum(*alone), *right), grid)
        for term in middle.terms:
            if not term.tokenwise:
                _accumulate((*left, *_factors(term), *right), grid)
    elif not isinstance(middle, Contraction):
        _accumulate_applied(left, middle, right, grid)
    elif all(map(is_cheap, left)) and not all(map(is_cheap, right)):
        # Block rows absorb what stands on their left; here the matrices stand on the right.
        _accumulate_contraction(
            _transposed(right), middle._transposed, _transposed(left), grid.transpose(2, 3, 0, 1)
        )
    else:
        _accumulate_contraction(left, middle, right, grid)


def _transposed(factors: tuple[Operator, ...]) -> tuple[Operator, ...]:
    return tuple(factor._transposed for factor in reversed(factors))


def _merged(factors: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Multiply tokenwise factors out, unless each is cheap to apply."""
    if len(factors) < 2 or all(map(is_cheap, factors)):
        return factors
    return (Dense(shared_blocks(Chain(*factors)), factors[0].tokens),)


def _merged_before_cheap(factors: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Multiply out all but the cheap factors at the right end."""
    split = len(factors)
    while split and is_cheap(factors[split - 1]):
        split -= 1
    return (*_merged(factors[:split]), *factors[split:])


def _accumulate_contraction(
    left: tuple[Operator, ...],
    middle: Contraction,
    right: tuple[Operator, ...],
    grid: Array,
) -> None:
    """Add ``left @ middle @ right``, a few block rows at a time.

    The matrices beside the contraction become factors of its terms, so that they meet the
    smallest operand; the cheap factors at the right end are applied to the finished block rows.
    """
    split = len(right)
    while split and is_cheap(right[split - 1]):
        split -= 1
    beside, last = right[:split], right[split:]
    terms = [_absorb(left, term, beside) for term in middle.terms]
    tokens, rows, _, _ = grid.shape
    cols = last[0].rows if last else grid.shape[3]
    pairs = [reduce_to_pair(term, ("i", "r", "j", "c")) for term in terms if mixes(term)]
    alone = [contract(term, ("i", "r", "c")) for term in terms if not mixes(term)]
    finish = Chain(*last)._transposed if last else None
    step = max(1, _ROWS_IN_WORK // (rows * tokens * cols))
    for start in range(0, tokens, step):
        part = slice(start, min(start + step, tokens))
        count = part.stop - part.start
        here = [_rows_of(pair, part) for pair in pairs]
        block = contract_pair(here[0], ("i", "r", "j", "c"))
        for pair in here[1:]:
            block = block + contract_pair(pair, ("i", "r", "j", "c"))
        if alone:
            block = np.array(block)
            block[np.arange(count), :, np.arange(start, part.stop), :] += reduce(
                np.add, (blocks[part] for blocks in alone)
            )
        if finish is not None:
            columns = finish._apply(block.transpose(2, 3, 0, 1).reshape(tokens, cols, count * rows))
            block = columns.reshape(tokens, finish.rows, count, rows).transpose(2, 3, 0, 1)
        grid[part] += block


def _rows_of(pair: Sequence[Labelled], part: slice) -> list[Labelled]:
    """Restrict the operands to some output tokens."""
    return [
        (array[(slice(None),) * labels.index("i") + (part,)] if "i" in labels else array, labels)
        for array, labels in pair
    ]


def _absorb(left: tuple[Operator, ...], term: Term, right: tuple[Operator, ...]) -> Term:
    """Make the tokenwise factors beside a term into factors of it."""
    token = "j" if mixes(term) else "i"
    names: dict[str, str] = {}
    beside: list[Labelled] = []
    if left:
        names["r"] = "*r"
        beside.append(_labelled(shared_blocks(Chain(*left)), "i", "r", "*r"))
    if right:
        names["c"] = "*c"
        beside.append(_labelled(shared_blocks(Chain(*right)), token, "*c", "c"))
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
