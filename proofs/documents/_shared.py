"""What the entries on the documents share: laws as subjects, LayerNorm written out, the demo."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

import derive
from derive.calculus.atoms import Diag, Inner, Matrix, Vector
from derive.laws import DepthLaw
from derive.symbols import d, eps
from proofs.setting import bias, gain, one

__all__ = [
    "BARE",
    "CROSS",
    "DOUBLING",
    "Demo",
    "W",
    "centred",
    "demo",
    "law",
    "layer_norm",
    "root",
    "stretched",
    "w",
]

W, w = Matrix("W", d, d), Vector("w", d)
BARE = derive.LayerNorm(gain=False, bias=False, eps=0)
DOUBLING = {
    "W": [
        ["1/2", 0, "-1/2", 0],
        [0, "1/2", 0, "-1/2"],
        ["-1/2", 0, "1/2", 0],
        [0, "-1/2", 0, "1/2"],
    ],
    "x": (1, -1, 1, -1),
    "w": (1, 0, -1, 0),
}
"""A projection W that keeps w, at a fixed point x of ``x + W N(x)``: the block doubles w."""

CROSS = "N(x + C(x))"
"""A post-norm block around attention to one memory: what a decoder's cross-attention can be."""


def stretched(J: sp.Basic, blocks: int = 24) -> sp.Expr:
    """Return how much blocks with one symmetric Jacobian stretch w, an eigenvector of it."""
    return (Inner(w, J * w) / Inner(w, w)) ** blocks


@lru_cache(maxsize=32)
def _law(placement: str, sublayer: str, norm: str) -> DepthLaw:
    return DepthLaw(placement, norm, (sublayer,))


def law(
    placement: str, sublayer: str = "ffn:relu", norm: str = "layernorm"
) -> Callable[[], DepthLaw]:
    """Return a subject: the depth law of a placement, composed from its equation."""
    return lambda: _law(placement, sublayer, norm)


def centred(u: sp.Basic) -> sp.Basic:
    """Return u minus its mean."""
    return u - Inner(one, u) / d * one


def root(u: sp.Basic) -> sp.Expr:
    """Return the root of variance plus eps, the variance divided by d."""
    return sp.sqrt(Inner(centred(u), centred(u)) / d + eps)


def layer_norm(u: sp.Basic) -> sp.Basic:
    """Return the first function of the handbook, written out: gain (u - mean)/root + bias."""
    return 1 / root(u) * Diag(gain) * centred(u) + bias


class Demo:
    """The handbook's demonstration: a post-norm block around a tanh sublayer, four tokens of eight.

    Parameters
    ----------
    seed : int
        The document has 42.
    ddof : int
        What is subtracted from d where the variance is formed; the document has 0.
    """

    def __init__(self, seed: int = 42, ddof: int = 0) -> None:
        drawn = np.random.RandomState(seed)
        self.x = drawn.randn(4, 8)
        self.added = self.x + np.tanh(self.x @ (0.1 * drawn.randn(8, 8)))
        variance = self.added.var(axis=-1, ddof=ddof, keepdims=True)
        self.y = (self.added - self.added.mean(axis=-1, keepdims=True)) / np.sqrt(variance + 1e-5)


def demo(**changed: Any) -> Callable[[], Demo]:
    """Return a subject: the demonstration, or one that is another."""
    return lambda: Demo(**changed)
