r"""Gradients of the weights of one block, from the derived differential of the block in them.

Its terms :math:`A\,dW\,v` become :math:`\sum(A^\top g)\,v^\top`, one contraction a term; the
cotangent g is carried back through the quantities of the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import product as choices
from typing import Any

import numpy as np
import sympy as sp

from derive.calculus.atoms import Diag
from derive.calculus.derivation import Derivation
from derive.calculus.differential import Term
from derive.calculus.tensor import Product, Sum, is_scalar
from derive.calculus.tokens import TOKENS, At, IndexSum
from derive.calculus.weight_gradient import (
    Local,
    WeightDifferential,
    weight_differential,
    weight_name,
)
from derive.initialise import _scalars, parameters
from derive.lower import TOKEN, AbstractMap, Environment, Lowering, Value

__all__ = ["block_weight_gradients", "trainable"]

BUFFERS = ("R", "E", "mem", "m", "w", "mask", "eps")
"""What a block holds that is not trained: rotations, the selection of groups, the memory, running
statistics, the mask, the constant of a norm; by the part of a name before its first underscore."""


def trainable(block: sp.Basic, weights: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the weights of a block that are trained, scalars included, sorted.

    Parameters
    ----------
    block : expression
        The block.
    weights : mapping
        Its numbers by name; those that the block does not hold are left out.
    """
    return tuple(sorted(_held(block) & set(weights)))


@lru_cache(maxsize=256)
def _held(block: sp.Basic) -> frozenset[str]:
    names = {*parameters(block), *(s.name for s in _scalars(block))}
    return frozenset(k for k in names if k.split("_")[0] not in BUFFERS)


def block_weight_gradients(
    found: Derivation,
    weights: Mapping[str, Any],
    state: np.ndarray,
    cotangent: np.ndarray,
    names: Iterable[str],
    maps: Mapping[str, AbstractMap] | None = None,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    r"""Return the gradient of :math:`\langle g, B(x; \theta)\rangle` in weights and in the state.

    Parameters
    ----------
    found : Derivation
        The block.
    weights, state, maps
        As for `derive.lower.lower`.
    cotangent : array (n, d)
        g.
    names : iterable of str
        The weights.

    Returns
    -------
    tuple of dict from str to array, and array (n, d)

    Raises
    ------
    UnknownNameError
        If the block has no weight of one of the names.
    ShapeError, WeightError, DomainError, UnknownNodeError
        As for `derive.lower.lower`.
    """
    differential = weight_differential(found.block, found.state, names)
    sweep = _BlockSweep(differential, Environment(weights, state, maps))
    return sweep(np.atleast_2d(cotangent))


class _BlockSweep:
    """Carries a cotangent back through the quantities of one block."""

    def __init__(self, differential: WeightDifferential, env: Environment) -> None:
        self.differential = differential
        self.env = env
        self.lowering = Lowering(env)

    def __call__(self, cotangent: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        state = self.differential.state
        self.env.prepare(self.differential.block)
        found: dict[str, np.ndarray] = {}
        waiting: dict[sp.Basic, np.ndarray] = {self.differential.locals[-1].quantity: cotangent}
        for part in reversed(self.differential.locals):
            gradient = waiting.pop(part.quantity, None)
            if gradient is None:
                continue
            for term in part.terms:
                name = weight_name(term.atom)
                _accumulate(found, name, self._term(term, part, gradient))
            for node, jacobian in part.jacobians:
                self.env.prepare(jacobian)
                back = self.lowering(jacobian).rmatvec(gradient.ravel())
                _accumulate(waiting, node, back.reshape(self.env.tokens, -1))
        for name in set(self.differential.names) - set(found):
            found[name] = np.zeros(np.shape(self.env.weights[name]))
        zero = np.zeros_like(self.env.state)
        return found, waiting.get(state, zero)

    def _term(self, term: Term, part: Local, gradient: np.ndarray) -> np.ndarray:
        """Contract one term with the cotangent: sum of (A'g) v' over all but the weight's axes."""
        self.env.prepare(term.coefficient)
        token = str(TOKENS[0]) if part.mixes_tokens else TOKEN
        shape = np.shape(self.env.weights[weight_name(term.atom)])
        parts = []
        for word in _words(term):
            factors = _Factors(self.env)
            factors.add(gradient, (token, "row"))
            last = factors.word(word, "row")
            kept = [*_axes(term.atom), *([] if is_scalar(term.atom) else [last])]
            if term.right is not None:
                self.env.prepare(term.right)
                value = self.env(term.right)
                factors.add(value.data[..., 0], (*value.axes, "right"))
                kept.append("right")
            parts.append(factors.contract(kept, shape))
        return sum(parts[1:], start=parts[0])


def _accumulate(found: dict[Any, np.ndarray], key: Any, gradient: np.ndarray) -> None:
    found[key] = found[key] + gradient if key in found else gradient


def _axes(atom: sp.Basic) -> list[str]:
    """Return the axes in front of a weight: its head, expert or token indices."""
    if isinstance(atom, At):
        return [str(atom.position)]
    return [str(i) for i in atom.indices] if isinstance(atom, sp.Indexed) else []


class _Factors:
    """Factors of an einsum over named axes."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.numbers: dict[str, int] = {}
        self.operands: list[Any] = []

    def add(self, data: np.ndarray, names: Iterable[str]) -> None:
        self.operands += [data, [self.numbers.setdefault(k, len(self.numbers)) for k in names]]

    def word(self, word: tuple[sp.Basic, ...], first: str) -> str:
        """Add the factors of a word whose rows carry the axis `first`; return its last axis."""
        last = first
        for place, factor in enumerate(word):
            if getattr(factor, "is_Identity", False):
                continue
            value: Value = self.env(factor.args[0] if isinstance(factor, Diag) else factor)
            if is_scalar(factor):
                self.add(value.data[..., 0, 0], value.axes)
            elif isinstance(factor, Diag) or factor.shape[1] == 1:
                self.add(value.data[..., 0], (*value.axes, last))
            else:
                column = last
                last = f"column {place}"
                row = factor.shape[0] == 1
                data = value.data[..., 0, :] if row else value.data
                self.add(data, (*value.axes, *([] if row else [column]), last))
        return last

    def contract(self, kept: list[str], shape: tuple[int, ...]) -> np.ndarray:
        for axis, size in zip(kept, shape, strict=True):
            if axis not in self.numbers:  # the weight stands where nothing carries its index
                self.add(np.ones(size), (axis,))
        out = np.einsum(*self.operands, [self.numbers[k] for k in kept], optimize="greedy")
        return out.reshape(shape)


@lru_cache(maxsize=1024)
def _words(term: Term) -> tuple[tuple[sp.Basic, ...], ...]:
    """Return the coefficient of a term as a sum of words; sums of matrices are multiplied out."""
    taken = {TOKENS[0], *(bound for bound, _ in term.over)}
    for part in (term.atom, term.right):
        taken |= set() if part is None else part.atoms(sp.Symbol)
    return tuple(_expanded(term.coefficient, frozenset(taken)))


def _expanded(expr: sp.Basic, taken: frozenset[sp.Basic]) -> list[tuple[sp.Basic, ...]]:
    """Return a sum of words.

    A sum over an index that nothing else carries (`taken`) becomes a word with that index free,
    for the contraction to sum over.
    """
    if isinstance(expr, Sum) and 1 not in expr.shape:
        return [word for part in expr.args for word in _expanded(part, taken)]
    if isinstance(expr, IndexSum) and expr.index not in taken:
        return _expanded(expr.summand, taken | {expr.index})
    if isinstance(expr, Product):
        parts = []
        for place, factor in enumerate(expr.args):
            others = [a for k, a in enumerate(expr.args) if k != place]
            symbols = taken.union(*(a.atoms(sp.Symbol) for a in others))
            parts.append(_expanded(factor, symbols))
        return [sum(choice, ()) for choice in choices(*parts)]
    return [(expr,)]
