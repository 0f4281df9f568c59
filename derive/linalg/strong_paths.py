r"""The strongest single paths of a residual product, found best-first by bounds on their norms."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from derive.linalg.arrays import Array, as_count
from derive.linalg.factors import Factor, apply_transposed
from derive.linalg.materialise import materialise
from derive.linalg.norms import spectral_norm
from derive.linalg.paths import Label, Layer, as_layers, layer_width
from derive.linalg.scaled import LOG_2, ScaledMatrix, split_exponent
from derive.linalg.tokenwise import Identity

__all__ = ["StrongPath", "StrongPaths", "strongest_paths"]

# Up to this width one dense product is quicker than a structured skip part, factor by factor.
_DENSE_WIDTH = 64


@dataclass(frozen=True)
class StrongPath:
    """One path.

    Attributes
    ----------
    branches : tuple of (layer, branch name)
        What it goes through, the first applied first; elsewhere it takes the skip part.
    log_norm : float
        Log of the spectral norm of its product.
    log_bound : float
        Log of the product of the norms of its factors.
    """

    branches: tuple[tuple[int, str], ...]
    log_norm: float
    log_bound: float


@dataclass(frozen=True)
class StrongPaths:
    """The strongest paths, and how sure it is that there are no stronger ones.

    Attributes
    ----------
    paths : tuple of StrongPath
        The largest norm first.
    certified : bool
        Whether no other path of the lengths asked for can have a larger norm than the last one.
    log_rest : float
        Log of a bound on the norm of every path that was not looked at; -inf if all were.
    examined : int
        Number of paths whose product was formed.
    """

    paths: tuple[StrongPath, ...]
    certified: bool
    log_rest: float
    examined: int


def strongest_paths(
    layers: Iterable[Layer],
    count: int = 10,
    max_length: int = 2,
    *,
    max_candidates: int = 1000,
    size: int | None = None,
) -> StrongPaths:
    r"""Return the paths of largest spectral norm among those of at most `max_length` branches.

    Candidates come in the order of the bound

    .. math:: \lVert\text{path}\rVert_2\le\prod_l\lVert b_l\rVert_2

    over the terms :math:`b_l` that the path takes, from a heap; the search stops where the next
    bound is below the norm of the weakest path kept, so the answer is that of an enumeration of all
    of them, or says that it is not.

    Parameters
    ----------
    layers : iterable of mappings from Label to Operator or ndarray
        As for `graded_path_sums`.
    count : int
        Paths to return, at least 1.
    max_length : int
        Longest path, at least 0.
    max_candidates : int
        Products to form at most; where they do not suffice the result says so.
    size : int, optional
        The width that an empty list stands for.

    Returns
    -------
    StrongPaths

    Raises
    ------
    DomainError
        If a count is out of range, or one term overflows.
    ShapeError, WeightError, UnknownNodeError
        As for `graded_path_sums`.
    """
    wanted = as_count("count", count)
    longest = as_count("max_length", max_length, least=0)
    budget = as_count("max_candidates", max_candidates)
    checked = as_layers(layers)
    width = layer_width(checked, size)
    terms = [[(k, f, _log(spectral_norm(f))) for k, f in layer.items()] for layer in checked]
    product = _Products(checked, width)
    kept: list[tuple[float, int, StrongPath]] = []
    examined = 0
    for log_bound, choice in _by_bound(terms, longest):
        full = len(kept) == wanted
        if log_bound == -math.inf or (full and log_bound <= kept[0][0]):
            return _result(kept, True, log_bound, examined)
        if examined == budget:
            return _result(kept, False, log_bound, examined)
        examined += 1
        log_norm = product.log_norm(choice, kept[0][0] if full else -math.inf)
        names = tuple((place, name) for place, label in sorted(choice.items()) for name in label)
        entry = (log_norm, -examined, StrongPath(names, log_norm, log_bound))
        if not full:
            heapq.heappush(kept, entry)
        elif log_norm > kept[0][0]:
            heapq.heapreplace(kept, entry)
    return _result(kept, True, -math.inf, examined)


def _result(
    kept: list[tuple[float, int, StrongPath]], certified: bool, log_rest: float, examined: int
) -> StrongPaths:
    ranked = tuple(path for _, _, path in sorted(kept, reverse=True))
    return StrongPaths(ranked, certified, log_rest, examined)


def _log(value: float) -> float:
    return math.log(value) if value else -math.inf


def _by_bound(
    terms: list[list[tuple[Label, Factor, float]]], longest: int
) -> Iterator[tuple[float, dict[int, Label]]]:
    """Yield every choice of branches with its bound, the largest bound first.

    Layers without a skip part have to take a branch; the others may. Subsets of the options, sorted
    by how much taking one raises the bound, are ordered by a heap: a subset's successors move one
    of its members to the next option.
    """
    base, forced, options = 0.0, set(), []
    for place, layer in enumerate(terms):
        skip = next((norm for label, _, norm in layer if not label), -math.inf)
        if skip == -math.inf:
            forced.add(place)
        reference = 0.0 if place in forced else skip
        base += reference
        options += [(norm - reference, place, label) for label, _, norm in layer if label]
    options.sort(key=lambda option: -option[0])
    ticket = itertools.count()
    heap: list[tuple[float, int, tuple[int, ...]]] = []
    seen: set[tuple[int, ...]] = set()

    def push(chosen: tuple[int, ...]) -> None:
        if chosen in seen:
            return
        seen.add(chosen)
        gain = sum(options[k][0] for k in chosen)
        heapq.heappush(heap, (-(base + gain), next(ticket), chosen))

    for length in range(min(longest, len(options)) + 1):
        push(tuple(range(length)))
    while heap:
        minus_bound, _, chosen = heapq.heappop(heap)
        for at, option in enumerate(chosen):
            after = option + 1
            if after < len(options) and after not in chosen:
                push((*chosen[:at], after, *chosen[at + 1 :]))
        taken = {options[k][1]: options[k][2] for k in chosen}
        length = sum(map(len, taken.values()))
        if len(taken) == len(chosen) and length <= longest and forced <= taken.keys():
            yield -minus_bound, taken


Scaled: TypeAlias = tuple[Array, int]


class _Products:
    """Products along single paths: skip parts in front and behind are multiplied once for all."""

    def __init__(self, layers: list[dict[Label, Factor]], width: int) -> None:
        self.layers = layers
        self.width = width
        self._formed: dict[tuple[int, Label], Factor] = {}
        self._before: list[Scaled] = [(np.eye(width), 0)]
        self._behind: list[Scaled] = [(np.eye(width), 0)]

    def log_norm(self, choice: dict[int, Label], threshold: float) -> float:
        """Return the log spectral norm, or a bound of it where that is not above `threshold`."""
        events = sorted(choice)
        first = events[0] if events else len(self.layers)
        while len(self._before) <= first:
            place = len(self._before) - 1
            self._before.append(self._step(place, (), self._before[-1]))
        at, product = first, self._before[first]
        for event in events:
            for place in range(at, event):
                product = self._step(place, (), product)
            product = self._step(event, choice[event], product)
            at = event + 1
        if events:
            matrix, shift = split_exponent(self._suffix(at)[0] @ product[0])
            product = matrix, product[1] + shift + self._suffix(at)[1]
        scaled = ScaledMatrix(product[0], product[1] * LOG_2)
        frobenius = scaled.log_norm("fro")
        return frobenius if frobenius <= threshold else scaled.log_norm()

    def _suffix(self, start: int) -> Scaled:
        """Return the product of the skip parts from a layer to the end."""
        while len(self._behind) <= len(self.layers) - start:
            place = len(self.layers) - len(self._behind)
            matrix, exponent = self._behind[-1]
            moved, shift = split_exponent(apply_transposed(self.layers[place][()], matrix.T).T)
            self._behind.append((moved, exponent + shift))
        return self._behind[len(self.layers) - start]

    def _step(self, place: int, label: Label, product: Scaled) -> Scaled:
        factor = self.layers[place][label]
        if isinstance(factor, Identity):
            return product
        if label or self.width <= _DENSE_WIDTH:
            key = (place, label)
            if key not in self._formed:
                self._formed[key] = materialise(factor)
            factor = self._formed[key]
        with np.errstate(over="ignore", invalid="ignore"):
            matrix, shift = split_exponent(factor @ product[0])
        return matrix, product[1] + shift
