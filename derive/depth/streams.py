r"""A stack of blocks with several streams: the Jacobian of a layer is a block matrix.

.. math:: \begin{pmatrix} x' \\ r' \end{pmatrix} = B(x, r), \qquad
    J_l = \begin{pmatrix} \partial x'/\partial x & \partial x'/\partial r \\
                          \partial r'/\partial x & \partial r'/\partial r \end{pmatrix}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from derive.calculus.derivation import Derivation
from derive.depth.stack import Stack
from derive.errors import ShapeError
from derive.linalg import BlockMatrix, Operator
from derive.lower import AbstractMap, evaluate, lower

__all__ = ["StreamBlocks", "StreamStack"]

StreamBlocks = Mapping[tuple[str, str], Derivation]
"""The block matrix of a layer, by (output stream, input stream)."""


class StreamStack(Stack):
    r"""A block with S streams applied L times, each time with its own weights.

    Products, singular values and gradients are those of `Stack`, on the streams stacked one after
    the other: an array ``(S, n, d)``, or flat. An array ``(n, d)`` is the value of every stream.

    Parameters
    ----------
    blocks : mapping from (output stream, input stream) to Derivation
        As from `derive.blocks.build.streams`; a sequence of such mappings is one a layer.
    weights : sequence of mappings
        Weights of each layer by name.
    maps : mapping, optional
        Numbers for abstract sublayers.

    Raises
    ------
    ShapeError
        If a block of the matrix is missing, layers differ in their streams, or there is one mapping
        a layer and their number is not that of `weights`.
    """

    def __init__(
        self,
        blocks: StreamBlocks | Sequence[StreamBlocks],
        weights: Sequence[Mapping[str, Any]],
        maps: Mapping[str, AbstractMap] | None = None,
    ) -> None:
        each = [blocks] * max(len(weights), 1) if isinstance(blocks, Mapping) else list(blocks)
        if not isinstance(blocks, Mapping) and not len(each) == len(weights) > 0:
            raise ShapeError(
                f"blocks: expected one mapping a layer for {len(weights)} layers, got {len(each)}"
            )
        self.names = tuple(dict.fromkeys(out for out, _ in each[0]))
        pairs = {(a, b) for a in self.names for b in self.names}
        for one in each:
            if set(one) != pairs:
                raise ShapeError(
                    f"blocks: expected one for each of {sorted(pairs)}, got {sorted(one)}"
                )
        self.blocks: tuple[StreamBlocks, ...] = tuple(each)[: len(weights)]
        super().__init__([], each[0][self.names[0], self.names[0]].state, [], maps)
        self.weights = tuple(weights)

    def states(self, x: Any) -> list[np.ndarray]:
        """Return the states of all layers, each ``(S, n, d)``.

        Raises
        ------
        ShapeError
            If `x` has another number of streams, or more than three axes.
        """
        start = np.array(x, dtype=float)
        if start.ndim < 3:
            start = np.repeat(np.atleast_2d(start)[None], len(self.names), axis=0)
        if start.ndim != 3 or len(start) != len(self.names):
            raise ShapeError(
                f"x: expected an array (n, d), or ({len(self.names)}, n, d) for the streams "
                f"{', '.join(self.names)}, got shape {np.shape(x)}"
            )
        if self._trajectory and np.array_equal(self._trajectory[0], start):
            return list(self._trajectory)
        states = [start]
        for blocks, weights in zip(self.blocks, self.weights, strict=True):
            named = self._named(weights, states[-1])
            outputs = [blocks[out, out].block for out in self.names]
            states.append(
                np.stack([evaluate(out, named, states[-1][0], self.maps) for out in outputs])
            )
        self._trajectory = tuple(states)
        return states

    def _named(self, weights: Mapping[str, Any], state: np.ndarray) -> dict[str, Any]:
        """Return the weights of a layer with the streams after the first among them."""
        return {**weights, **dict(zip(self.names[1:], state[1:], strict=True))}

    def _size(self, x: Any) -> int:
        return int(self.states(x)[0].size)

    def _operators(self, x: Any, part: Any) -> list[Operator]:
        found: list[Operator] = []
        for blocks, weights, state in zip(
            self.blocks, self.weights, self.states(x)[:-1], strict=True
        ):
            named = self._named(weights, state)
            found.append(
                BlockMatrix(
                    [
                        [
                            lower(
                                part(blocks[a, b]) if a == b else blocks[a, b].jacobian,
                                named,
                                state[0],
                                self.maps,
                            )
                            for b in self.names
                        ]
                        for a in self.names
                    ]
                )
            )
        return found
