r"""Names for the intermediate quantities of a block: composite arguments become lets.

``N(x + F(x))`` becomes ``N(u)`` with ``u = x + F(x)``. Numbers are added only where several
quantities would share a name.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import sympy as sp
from sympy.core.symbol import Str

from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply, Body, Map
from derive.calculus.tensor import Product, Sum, Tensor, total

__all__ = ["Named", "name_intermediates"]


class Named:
    """A block with its composite arguments named, and the body of each concrete application.

    Attributes
    ----------
    output : expression
        The block, in terms of the lets.
    order : list
        Lets and applications in the order in which they are evaluated.
    """

    def __init__(self, expr: sp.Basic) -> None:
        self.order: list[sp.Basic] = []
        self._memo: dict[sp.Basic, sp.Basic] = {}
        self._taken = _names_in(expr)
        self._arguments: dict[sp.Basic, Map] = {}  # what the first pass found to need a name
        counting = _Counter(None, self._taken)
        self._namer = counting
        self._walk(expr)
        self._namer = _Counter(counting.totals, self._taken)
        self.order, self._memo = [], {}
        self.output = self._walk(expr)
        self._suffixes = self._number_bodies()

    def body(self, node: Apply) -> Body | None:
        """Return the body of a concrete application, with its names numbered where needed."""
        return node.mapping.body(node.argument, self._suffixes.get(node, ""))

    def _number_bodies(self) -> dict[sp.Basic, str]:
        concrete = [a for a in self.order if isinstance(a, Apply) and not a.mapping.is_abstract]
        families = Counter(a.mapping.family for a in concrete)
        seen: Counter[str] = Counter()
        taken = set(_names_in(self.output))
        suffixes = {}
        for node in concrete:
            family = node.mapping.family
            seen[family] += 1
            number = seen[family]
            suffix = f"_{number}" if families[family] > 1 else ""
            while taken & {v.name for v in _lets(node, suffix)}:
                number += 1
                suffix = f"_{number}"
            taken |= {v.name for v in _lets(node, suffix)}
            suffixes[node] = suffix
        return suffixes

    def _walk(self, expr: sp.Basic) -> sp.Basic:
        if expr in self._memo:
            return self._memo[expr]
        out = self._rebuild(expr)
        self._evaluate(out)
        if expr in self._arguments and not isinstance(out, Let):
            out = self._named(self._arguments[expr], out)
        self._memo[expr] = out
        return out

    def _evaluate(self, node: sp.Basic) -> None:
        if isinstance(node, Let | Apply) and node not in self.order:
            self.order.append(node)

    def _rebuild(self, expr: sp.Basic) -> sp.Basic:
        if isinstance(expr, Apply):
            argument = self._walk(expr.argument)
            composite = isinstance(argument, Sum | Product) or (
                isinstance(argument, Apply) and not expr.mapping.is_abstract
            )
            if composite:
                self._arguments.setdefault(expr.argument, expr.mapping)
                argument = self._named(expr.mapping, argument)
                self._memo[expr.argument] = argument
            return Apply(expr.mapping, argument)
        if isinstance(expr, Let):
            return Let(expr.name, self._walk(expr.definition), *expr.indices)
        if isinstance(expr, Sum):
            return total([self._walk(t) for t in self._fold(expr)])
        if isinstance(expr, Tensor) or expr.has(Apply, Let):  # also inside scalars
            args = [self._walk(a) if isinstance(a, sp.Expr) else a for a in expr.args]
            unchanged = all(a is b for a, b in zip(args, expr.args, strict=True))
            return expr if unchanged else expr.func(*args)
        return expr

    def _named(self, mapping: Map, argument: sp.Basic) -> Let:
        for known in self.order:
            if isinstance(known, Let) and known.definition == argument:
                return known
        named = Let(self._namer(mapping.input_name), argument)
        self._evaluate(named)
        return named

    def _fold(self, expr: Sum) -> list[sp.Basic]:
        """Recognise the argument of a norm inside a longer sum: ``h + F(N(h))``."""
        terms = list(expr.args)
        for term in expr.args:
            inner = term
            while isinstance(inner, Apply):
                inner = inner.argument
                if isinstance(inner, Sum) and set(inner.args) < set(terms):
                    return [inner, *(t for t in terms if t not in inner.args)]
        return terms


def _lets(node: Apply, suffix: str) -> tuple[Let | ScalarLet, ...]:
    body = node.mapping.body(node.argument, suffix)
    return () if body is None else body.lets


class _Counter:
    """Hands out names: bare where the total is one, numbered otherwise."""

    def __init__(self, totals: Counter[str] | None, taken: frozenset[str]) -> None:
        self.known = totals
        self.totals: Counter[str] = Counter()
        self.taken = taken

    def __call__(self, base: str) -> str:
        self.totals[base] += 1
        alone = self.known is not None and self.known[base] == 1
        if alone and base not in self.taken:
            return base
        number = self.totals[base]
        while f"{base}_{number}" in self.taken:
            number += 1
        return f"{base}_{number}"


def _names_in(expr: sp.Basic) -> frozenset[str]:
    return frozenset(
        str(e.name)
        for e in sp.preorder_traversal(expr)
        if hasattr(e, "name") and not isinstance(e, Str)  # the label of a norm prints nowhere alone
    )


@lru_cache(maxsize=256)
def name_intermediates(expr: sp.Basic) -> Named:
    """Return the block with its composite arguments named."""
    return Named(expr)
