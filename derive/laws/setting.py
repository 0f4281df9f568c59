"""What the moments of a block depend on besides its input: weights, sizes, attention scores."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import sympy as sp

from derive.calculus.maps import Map
from derive.laws.initial import Scheme
from derive.laws.moments import Moments

__all__ = ["SCORES", "Setting"]

Number = Any

SCORES = ("uniform", "gaussian")
"""Attention weights: all the same (queries 0), or the softmax of the scores of random weights."""


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
    scores : str
        One of `SCORES`: what attention weights are.
    dropout : number
        The rate p of dropout on attention weights, hidden features and outputs of sublayers, as in
        torch.nn.TransformerEncoderLayer.
    """

    scheme: Scheme
    tokens: Number
    memory: Moments
    at: dict[sp.Symbol, Number]
    scores: str = "uniform"
    dropout: Number = 0

    def gain(self, fan_in: Number, fan_out: Number, **which: Any) -> Number:
        """Return the gain of a linear map at these sizes; exact where a size is not given.

        Keywords as for `Scheme.gain`.
        """
        found = _gain(self.scheme, fan_in, fan_out, tuple(which.items()), tuple(self.at.items()))
        return float(found) if self.at else found

    def bias(self, mapping: Map, fan_in: Number, role: str) -> Number:
        """Return the variance of the biases of a map of a sublayer; 0 where it has none."""
        if not getattr(mapping, "has_bias", False):
            return 0
        found = self.scheme.bias_variance(fan_in, role).subs(self.at)
        return float(found) if self.at else found

    @property
    def keep(self) -> Number:
        """Return the share that dropout keeps."""
        return 1 - self.dropout

    def number(self, value: sp.Expr) -> Number:
        """Return a number as a float, or as it is where sizes are symbols."""
        return float(value) if self.at and value.is_number else value


@lru_cache(maxsize=256)
def _gain(
    scheme: Scheme, fan_in: Number, fan_out: Number, which: tuple[Any, ...], at: tuple[Any, ...]
) -> sp.Expr:
    return scheme.gain(fan_in, fan_out, **dict(which)).subs(dict(at))
