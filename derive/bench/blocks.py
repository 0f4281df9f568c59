"""The blocks that are measured, with the same weights for every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import derive
from derive.depth import Stack

__all__ = ["EPS", "Case", "case"]

EPS = 1e-5


@dataclass(frozen=True)
class Case:
    """A stack and an input, and what a peer has to know to run the same.

    Attributes
    ----------
    placement, sublayers, activation
        What each layer is; a layer of several sublayers is their blocks one after the other.
    stacks
        One stack for each sublayer; their blocks alternate.
    x
        Input, (n, d).
    """

    placement: str
    sublayers: tuple[str, ...]
    activation: str
    heads: int
    stacks: tuple[Stack, ...]
    x: np.ndarray

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.stacks[0].layers

    @property
    def width(self) -> int:
        """Features d."""
        return int(self.x.shape[1])

    def weights(self) -> list[dict[str, np.ndarray]]:
        """Return for each sublayer the arrays by name, a leading axis of L in front."""
        return [
            {k: np.stack([w[k] for w in s.weights]) for k in s.weights[0] if k != "eps"}
            for s in self.stacks
        ]


def case(
    placement: str,
    sublayers: tuple[str, ...],
    activation: str,
    *,
    width: int,
    layers: int,
    tokens: int = 1,
    heads: int = 4,
    seed: int = 0,
) -> Case:
    """Return stacks with random weights, gains and biases, and an input."""
    rng = np.random.default_rng(seed)
    x = derive.state("x")
    stacks = []
    for k, sublayer in enumerate(sublayers):
        name = sublayer if sublayer.endswith("attention") else f"{sublayer}:{activation}"
        block = derive.block(placement, "layernorm", name, x)
        drawn: dict[str, Any] = {"width": width, "tokens": tokens, "heads": heads}
        values = {
            "gain": 1 + 0.1 * rng.normal(size=width),
            "bias": 0.1 * rng.normal(size=width),
        }
        stacks.append(
            Stack.initialised(block, x, layers, seed=seed + k, values=values, eps=EPS, **drawn)
        )
    return Case(
        placement, sublayers, activation, heads, tuple(stacks), rng.normal(size=(tokens, width))
    )
