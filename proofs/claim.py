"""A claim: a statement, the two sides of its equation, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from derive.calculus.certificates import Certificate
from derive.calculus.normal_form import equal

__all__ = ["Claim"]


@dataclass(frozen=True)
class Claim:
    """An equation that holds for every ``d`` and all values of its atoms.

    Attributes
    ----------
    id : str
        Its name.
    statement : str
        The claim in words and symbols, with its assumptions.
    sides : callable
        Returns the left and the right side; both are expressions of `derive`.
    source : str
        Where it is stated, or "own".
    """

    id: str
    statement: str
    sides: Callable[[], tuple[sp.Basic, sp.Basic]]
    source: str

    def certificate(self) -> Certificate:
        """Decide the claim; the certificate says whether it holds, for every ``d``."""
        left, right = self.sides()
        return Certificate("identity", f"{left} = {right}", equal(left, right))
