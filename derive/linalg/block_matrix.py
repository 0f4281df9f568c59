"""A block matrix of operators: the Jacobian of a block with several streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derive.errors import ShapeError, UnknownNodeError
from derive.linalg.arrays import Array
from derive.linalg.operator import Operator

__all__ = ["BlockMatrix"]


class BlockMatrix(Operator):
    r"""Operators in a square grid, acting on S streams of n tokens of width d.

    .. math:: J = \begin{pmatrix} J_{11} & \cdots & J_{1S} \\ \vdots & & \vdots \\
        J_{S1} & \cdots & J_{SS} \end{pmatrix}, \qquad
        J_{ab} = \partial y^{(a)} / \partial x^{(b)}

    The state is stacked stream by stream, each stream token-major, as S n tokens.

    Parameters
    ----------
    blocks : sequence of sequences of Operator
        S rows of S operators, all of the same tokens and width.

    Raises
    ------
    UnknownNodeError
        If a block is not an Operator.
    ShapeError
        If the grid is empty or not square, or the blocks differ in tokens or width.
    """

    def __init__(self, blocks: Sequence[Sequence[Operator]]) -> None:
        grid = tuple(tuple(row) for row in blocks)
        if not grid or any(len(row) != len(grid) for row in grid):
            raise ShapeError(
                f"blocks: expected a square grid, got rows of {[len(row) for row in grid]} blocks"
            )
        for op in (op for row in grid for op in row):
            if not isinstance(op, Operator):
                raise UnknownNodeError(f"blocks: expected Operators, got {type(op).__name__}")
        first = grid[0][0]
        sizes = (first.tokens, first.rows, first.cols)
        for op in (op for row in grid for op in row):
            if (op.tokens, op.rows, op.cols) != sizes or op.rows != op.cols:
                raise ShapeError(
                    f"blocks: expected square blocks of one size, got {first!r} and {op!r}"
                )
        self.blocks = grid
        streams = len(grid)
        super().__init__(
            streams * first.tokens,
            first.rows,
            first.cols,
            tokenwise=streams == 1 and first.tokenwise,
        )

    @property
    def streams(self) -> int:
        """Number of streams S."""
        return len(self.blocks)

    def _apply(self, x: Array) -> Array:
        parts = np.split(x, self.streams)
        return np.concatenate(
            [
                sum((op._apply(p) for op, p in zip(row, parts, strict=True)), start=np.zeros(()))
                for row in self.blocks
            ]
        )

    @property
    def _transposed(self) -> Operator:
        columns = zip(*self.blocks, strict=True)
        return BlockMatrix([[op._transposed for op in column] for column in columns])

    @property
    def _work(self) -> int:
        works = sum(op._work for row in self.blocks for op in row)
        return max(1, works // self.streams)
