"""Contraction of arrays with named axes: the best order, found once, run by matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

import numpy as np

from derive.linalg.arrays import Array

__all__ = [
    "Labelled",
    "Labels",
    "Reduction",
    "contract",
    "contract_pair",
    "entries_held",
    "reduce_to_pair",
    "work",
]

Labels: TypeAlias = tuple[str, ...]
Labelled: TypeAlias = tuple[Array, Labels]
Tree: TypeAlias = "int | tuple[Tree, Tree]"
Kept: TypeAlias = Callable[[frozenset[int]], frozenset[str]]
Volume: TypeAlias = Callable[[Iterable[str]], int]

# The exact search visits 3^m pairs of subsets of m operands; above this many it is greedy.
_EXACT_OPERANDS = 9


def contract(operands: Sequence[Labelled], output: Labels) -> Array:
    """Sum the product of ``operands`` over every label that is not in ``output``.

    Every label of ``output`` occurs in an operand, and no operand repeats a label.
    """
    pair = reduce_to_pair(operands, output)
    return contract_pair(pair, output)


def reduce_to_pair(operands: Sequence[Labelled], output: Labels) -> list[Labelled]:
    """Run the contraction up to its last product and return the one or two operands left."""
    return Reduction(operands, output).pair()


class Reduction:
    """A contraction up to its last product, in the best order.

    Parameters
    ----------
    operands, output
        As for `contract`.
    fixed : str, optional
        What does not carry this label is contracted at once; the rest once for each part of the
        label's range that is asked for.
    small : int
        What has at most so many entries is contracted at once as well, for the whole range.
    """

    def __init__(
        self,
        operands: Sequence[Labelled],
        output: Labels,
        fixed: str | None = None,
        small: int = 0,
    ) -> None:
        names = tuple(labels for _, labels in operands)
        shapes = tuple(array.shape for array, _ in operands)
        self._fixed = fixed
        self._steps: list[tuple[int, int, int, set[str]]] = []
        self._operands: dict[int, Labelled] = dict(enumerate(operands))
        left = list(range(len(operands)))
        labels = dict(enumerate(names))
        size = {
            label: n
            for own, shape in zip(names, shapes, strict=True)
            for label, n in zip(own, shape, strict=True)
        }
        for first, second in _order(names, shapes, output)[: max(0, len(operands) - 2)]:
            a, b = left[first], left[second]
            left = [item for place, item in enumerate(left) if place not in (first, second)]
            keep = set(output).union(*(labels[item] for item in left))
            made = len(labels)
            labels[made] = tuple(s for s in dict.fromkeys(labels[a] + labels[b]) if s in keep)
            ready = a in self._operands and b in self._operands
            entries = math.prod(size[s] for s in labels[made])
            free = fixed not in labels[a] + labels[b]
            if fixed is not None and ready and (free or entries <= small):
                self._operands[made] = _pairwise(self._operands[a], self._operands[b], keep)
            else:
                self._steps.append((a, b, made, keep))
            left.append(made)
        self._left = left

    def pair(self, part: slice | None = None) -> list[Labelled]:
        """Return the one or two operands left, restricted to a part of the label's range."""
        found = {key: self._restricted(item, part) for key, item in self._operands.items()}
        for a, b, made, keep in self._steps:
            found[made] = _pairwise(found[a], found[b], keep)
        return [found[item] for item in self._left]

    def _restricted(self, operand: Labelled, part: slice | None) -> Labelled:
        array, labels = operand
        if part is None or self._fixed not in labels:
            return operand
        return array[(slice(None),) * labels.index(self._fixed) + (part,)], labels


def work(operands: Sequence[Labelled], output: Labels) -> int:
    """Return the multiply-adds of the contraction, from shapes alone."""
    return sum(done for done, _ in _steps(operands, output))


def entries_held(operands: Sequence[Labelled], output: Labels) -> int:
    """Return the entries of all that the contraction makes on its way, from shapes alone."""
    return sum(made for _, made in _steps(operands, output))


def _steps(operands: Sequence[Labelled], output: Labels) -> Iterator[tuple[int, int]]:
    """Yield the multiply-adds and the entries made by each product, in order."""
    names = tuple(labels for _, labels in operands)
    shapes = tuple(array.shape for array, _ in operands)
    size = {
        label: n
        for labels, shape in zip(names, shapes, strict=True)
        for label, n in zip(labels, shape, strict=True)
    }
    left = [frozenset(labels) for labels in names]
    for first, second in _order(names, shapes, output):
        a, b = left[first], left[second]
        left = [item for place, item in enumerate(left) if place not in (first, second)]
        kept = frozenset(output).union(*left)
        # What only one of the two has, and nobody else needs, is summed before.
        met = (a & (kept | b)) | (b & (kept | a))
        made = (a | b) & kept
        yield math.prod(size[s] for s in met), math.prod(size[s] for s in made)
        left.append(made)


def contract_pair(pair: Sequence[Labelled], output: Labels) -> Array:
    """Contract one or two operands to the axes ``output``, in that order."""
    if len(pair) == 1:
        array, labels = _sum_out(pair[0], set(output))
    else:
        array, labels = _pairwise(pair[0], pair[1], set(output))
    return array.transpose([labels.index(label) for label in output])


def _sum_out(operand: Labelled, keep: set[str]) -> Labelled:
    array, labels = operand
    axes = tuple(axis for axis, label in enumerate(labels) if label not in keep)
    if not axes:
        return operand
    return array.sum(axis=axes), tuple(label for label in labels if label in keep)


def _pairwise(a: Labelled, b: Labelled, keep: set[str]) -> Labelled:
    """Contract two operands, keeping the labels in ``keep``: one batched matrix product."""
    x, x_labels = _sum_out(a, keep.union(b[1]))
    y, y_labels = _sum_out(b, keep.union(a[1]))
    batch = tuple(s for s in x_labels if s in y_labels and s in keep)
    summed = tuple(s for s in x_labels if s in y_labels and s not in keep)
    x_free = tuple(s for s in x_labels if s not in y_labels)
    y_free = tuple(s for s in y_labels if s not in x_labels)
    size = dict(zip(x_labels, x.shape, strict=True)) | dict(zip(y_labels, y.shape, strict=True))
    out_labels = batch + x_free + y_free
    x = x.transpose([x_labels.index(s) for s in batch + x_free + summed])
    y = y.transpose([y_labels.index(s) for s in batch + summed + y_free])
    x_shape = tuple(size[s] for s in batch + x_free)
    y_shape = tuple(size[s] for s in y_free)
    batch_shape = x_shape[: len(batch)]
    if not summed:
        # Nothing to sum: the product is element by element over broadcast axes.
        product = x.reshape(x_shape + (1,) * len(y_free)) * y.reshape(
            batch_shape + (1,) * len(x_free) + y_shape
        )
    else:
        inner = math.prod(size[s] for s in summed)
        product = np.matmul(
            x.reshape((*batch_shape, -1, inner)), y.reshape((*batch_shape, inner, -1))
        )
    return product.reshape(tuple(size[s] for s in out_labels)), out_labels


@lru_cache(maxsize=4096)
def _order(
    names: tuple[Labels, ...], shapes: tuple[tuple[int, ...], ...], output: Labels
) -> tuple[tuple[int, int], ...]:
    """Find the pairs to contract, as places in the list that shrinks and grows at its end.

    Minimises the multiply-adds plus the entries of the intermediates: exactly, by dynamic
    programming over subsets of the operands, or greedily when there are many.
    """
    size = {
        s: n
        for labels, shape in zip(names, shapes, strict=True)
        for s, n in zip(labels, shape, strict=True)
    }
    count = len(names)
    sets = [frozenset(labels) for labels in names]

    def kept(members: frozenset[int]) -> frozenset[str]:
        inside = frozenset[str]().union(*(sets[m] for m in members))
        outside = frozenset(output).union(*(sets[m] for m in range(count) if m not in members))
        return inside & outside

    def volume(labels: Iterable[str]) -> int:
        return math.prod(size[s] for s in labels)

    if count <= _EXACT_OPERANDS:
        tree = _best_tree(count, kept, volume)
    else:
        tree = _greedy_tree(count, kept, volume)
    return _as_places(tree, count)


def _best_tree(count: int, kept: Kept, volume: Volume) -> Tree:
    best: dict[int, tuple[int, Tree]] = {1 << m: (0, m) for m in range(count)}
    open_labels = {
        subset: kept(frozenset(m for m in range(count) if subset >> m & 1))
        for subset in range(1, 1 << count)
    }
    for subset in range(1, 1 << count):
        if subset in best:
            continue
        candidates = []
        part = (subset - 1) & subset
        while part:
            rest = subset ^ part
            if part > rest:
                work = volume(open_labels[part] | open_labels[rest])
                total = best[part][0] + best[rest][0] + work
                candidates.append((total, part))
            part = (part - 1) & subset
        total, part = min(candidates)
        tree = (best[part][1], best[subset ^ part][1])
        best[subset] = (total + volume(open_labels[subset]), tree)
    return best[(1 << count) - 1][1]


def _greedy_tree(count: int, kept: Kept, volume: Volume) -> Tree:
    groups: list[tuple[frozenset[int], Tree]] = [(frozenset({m}), m) for m in range(count)]

    def growth(a: frozenset[int], b: frozenset[int]) -> int:
        return volume(kept(a) | kept(b)) + volume(kept(a | b))

    while len(groups) > 1:
        first, second = min(
            combinations(range(len(groups)), 2),
            key=lambda pair: growth(groups[pair[0]][0], groups[pair[1]][0]),
        )
        (a, a_tree), (b, b_tree) = groups[first], groups[second]
        groups = [g for place, g in enumerate(groups) if place not in (first, second)]
        groups.append((a | b, (a_tree, b_tree)))
    return groups[0][1]


def _as_places(tree: Tree, count: int) -> tuple[tuple[int, int], ...]:
    present: list[Tree] = list(range(count))
    pairs: list[tuple[int, int]] = []

    def visit(node: Tree) -> None:
        if not isinstance(node, tuple):
            return
        for child in node:
            visit(child)
        first, second = sorted(present.index(child) for child in node)
        pairs.append((first, second))
        del present[second], present[first]
        present.append(node)

    visit(tree)
    return tuple(pairs)
