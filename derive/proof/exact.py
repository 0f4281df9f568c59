"""Certificates of kind ``exact``: exact arithmetic, at the sizes that the label names only."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from derive.calculus.atoms import Ones
from derive.calculus.tensor import Product, Sum
from derive.proof.check import Claimed, Formula
from derive.proof.perturb import Sides

__all__ = ["Exact"]


@dataclass(frozen=True, kw_only=True)
class Exact(Claimed):
    """Two exact numbers or matrices of numbers: ranks, determinants, products at one size.

    Attributes
    ----------
    sizes : str
        At which sizes, as in ``"d=3, n=2"``; part of the label.
    names : pair of str, optional
        What the sides are, in LaTeX: printed in place of large matrices of numbers.
    """

    sizes: str
    names: tuple[str, str] | None = None
    kind = "exact"

    @property
    def label(self) -> str:
        """``exact(d=3)``."""
        return f"exact({self.sizes})"

    def shown(self, left: sp.Basic, right: sp.Basic) -> Formula:
        """Return how the sides print: by their names where they have any."""
        if self.names is None:
            return super().shown(left, right)
        first, second = self.names
        return Formula(f"${first} = {second}$", first, self.relation_latex, second)

    def decide(self, left: sp.Basic, right: sp.Basic) -> tuple[bool, str]:
        """Compare the numbers."""
        return not _unequal((left, right)), f"exact arithmetic at {self.sizes}"

    def false(self, sides: Sides) -> bool:
        """Whether the numbers differ, in floating point."""
        return _unequal(sides, digits=30)


def _written_out(expr: sp.Basic) -> sp.Basic:
    """Carry out sums and products of matrices of numbers."""
    if isinstance(expr, Ones):
        return sp.ones(*expr.shape)
    if isinstance(expr, sp.Identity | sp.ZeroMatrix):
        return expr.as_explicit()
    if not isinstance(expr, Sum | Product):
        return expr
    first, *rest = map(_written_out, expr.args)
    for part in rest:
        first = first + part if isinstance(expr, Sum) else first * part
    return first


def _unequal(sides: Sides, digits: int = 0) -> bool:
    left, right = (_written_out(sp.sympify(side)) for side in sides)
    if getattr(left, "shape", None) != getattr(right, "shape", None):
        return True
    entries = list(left - right) if hasattr(left, "shape") else [left - right]
    if digits:
        return any(abs(sp.N(e, digits)) > 1e-20 for e in entries)
    return any(sp.simplify(e) != 0 for e in entries)
