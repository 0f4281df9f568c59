"""The steps of a derivation as chains of equalities, one chain for each quantity."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import sympy as sp

from derive.calculus.derivation import Derivation
from derive.calculus.let import Let, ScalarLet
from derive.calculus.steps import Step

__all__ = ["Chain", "chains", "defined", "output_of", "variants"]


@dataclass(frozen=True)
class Chain:
    """The differential of one quantity, rewritten line by line.

    Attributes
    ----------
    of : expression
        The quantity.
    steps : tuple of Step
        Each starts where the one before it ended.
    reads_off : Step or None
        The step that reads the Jacobian off, if it closes the chain.
    """

    of: sp.Basic
    steps: tuple[Step, ...]
    reads_off: Step | None = None


def chains(D: Derivation) -> tuple[Chain, ...]:
    """Return the steps of a derivation, grouped by the quantity they belong to."""
    found = []
    for of, group in groupby(D.steps, key=lambda step: step.of):
        steps = tuple(group)
        closing = steps[-1] if steps[-1].rule == "read off" else None
        found.append(Chain(of, steps[:-1] if closing else steps, closing))
    return tuple(found)


def output_of(D: Derivation) -> sp.Basic:
    """Return the symbol that stands for the block's output, ``y``."""
    return D.steps[-1].of


def defined(D: Derivation) -> tuple[tuple[sp.Basic, sp.Basic], ...]:
    """Return every named quantity with its definition, in order of evaluation.

    The named intermediates, and the output of each concrete map as in ``N(u)`` or ``F(z)``.
    """
    order: list[sp.Basic] = list(D.lets)
    previous: sp.Basic | None = None
    for chain in chains(D)[:-1]:
        if chain.of not in order:
            order.insert(order.index(previous) + 1 if previous in order else 0, chain.of)
        previous = chain.of
    return tuple((quantity, quantity.definition) for quantity in order)


def variants(D: Derivation) -> tuple[sp.Basic, ...]:
    """Return the named quantities under every index that the steps use for them."""
    found: dict[sp.Basic, None] = dict.fromkeys(q for q, _ in defined(D))
    seen: set[sp.Basic] = set()

    def walk(expr: sp.Basic) -> None:
        if expr in seen:
            return
        seen.add(expr)
        if isinstance(expr, Let | ScalarLet):
            found.setdefault(expr)
            return
        for arg in expr.args:
            walk(arg)

    for step in D.steps:
        walk(step.before)
        walk(step.after)
    return tuple(found)
