"""Uniform attention on tokens of any correlation: its symbols and its blocks."""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.laws import Moments
from derive.laws.meanfield import BlockMoments
from derive.symbols import n
from proofs.depth._shared import composed

__all__ = ["BACK", "MEAN", "backward", "r", "rho", "tokens"]

rho, r = sp.symbols("rho r", real=True)
MEAN, BACK = (1 + (n - 1) * rho) / n, (1 + (n - 1) * r) / n
"""A and B: mean squares of the mean token and of the mean gradient, of unit tokens."""


def tokens(equation: str, mean_square: sp.Expr = sp.S.One) -> Any:
    """Return a subject: a block of attention on n tokens of a mean square, of correlation rho."""
    signal = Moments(mean_square, rho * mean_square)
    return lambda: composed(equation, "attention", n, signal)


def backward(block: BlockMoments) -> Moments:
    """Return the moments behind a block of a gradient of mean square 1 and correlation r."""
    found: Moments = block.backward({("x", "x"): Moments(sp.S.One, r)})["x", "x"]
    return found
