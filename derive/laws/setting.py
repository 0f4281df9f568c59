"""What the moments of a block depend on besides its input: weights, sizes, attention scores."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import sympy as sp

from derive.laws.initial import Scheme
from derive.laws.moments import Moments

__all__ = ["Setting"]

Number = Any


class Setting(NamedTuple):
    """What the moments depend on besides the signal.

    Attributes
    ----------
    scheme : Scheme
        The initialisation.
    tokens : int or expression
        n.
    memory : Moments
        The memory of a cross-attention.
    at : mapping
        Sizes of the symbols d, f, L; where a size is missing, numbers stay exact.
    """

    scheme: Scheme
    tokens: Number
    memory: Moments
    at: dict[sp.Symbol, Number]

    def gain(self, fan_in: Number, fan_out: Number, **which: bool) -> Number:
        """Return the gain of a linear map at these sizes; exact where a size is not given."""
        found = _gain(self.scheme, fan_in, fan_out, tuple(which.items()), tuple(self.at.items()))
        return float(found) if self.at else found

    def number(self, value: sp.Expr) -> Number:
        """Return a number as a float, or as it is where sizes are symbols."""
        return float(value) if self.at and value.is_number else value


@lru_cache(maxsize=256)
def _gain(
    scheme: Scheme, fan_in: Number, fan_out: Number, which: tuple[Any, ...], at: tuple[Any, ...]
) -> sp.Expr:
    return scheme.gain(fan_in, fan_out, **dict(which)).subs(dict(at))
