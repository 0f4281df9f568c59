r"""Orthonormal frames carried through factors: :math:`J_{l+k-1}\cdots J_lQ_l = Q_{l+k}R`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.lapack import dgeqrf, dorgqr, dtrcon

from derive.errors import ShapeError
from derive.linalg.arrays import Array
from derive.linalg.deflation import Complement, DeflatedFactor, factor_blocks, without
from derive.linalg.scaled import LOG_2, split_exponent

__all__ = ["FrameSweep"]

_EPS = float(np.finfo(np.float64).eps)
# The matrices of a block are kept until the condition number of their product is known.
_LONGEST_BLOCK = 64
_BLOCK_BYTES = 2**28
# The next block is to reach this share of the digits that it may lose.
_AIM = 0.8


@dataclass(frozen=True, eq=False)
class _Layer:
    """A factor ready to use: a matrix for each group of tokens, and its left directions."""

    matrices: Any
    null: Array
    weak: Array
    rows: list[Array]


@dataclass(frozen=True, eq=False)
class _Step:
    """A frame after a block of factors, not yet taken over."""

    frame: Array
    diagonal: Array
    exponent: int
    condition: float
    kept: Array


class FrameSweep:
    """The frames on their way, and the sums of log|R_ii| since the last `take`.

    There is one frame, or one for each token where the factors act on each token alone.

    Parameters
    ----------
    first : DeflatedFactor
        The first factor, not yet applied: it gives the sizes.
    count, every, max_condition, rank_tol
        As for `derive.linalg.lyapunov_spectrum`.
    """

    def __init__(
        self,
        first: DeflatedFactor,
        count: int | None,
        every: int | None,
        max_condition: float,
        rank_tol: float | None,
    ) -> None:
        self.size = int(first.factor.shape[0])
        self.groups = first.tokens if first.tokenwise else 1
        self.every, self.max_condition = every, max_condition
        rows = self.size // self.groups
        left = rows - first.nullity * first.tokens // self.groups
        self.asked = self.size if count is None else min(count, self.size)
        self.partial = self.asked < self.groups * left
        columns = min(self.asked, rows) if self.partial else left
        self.rank_tol = _EPS * rows if rank_tol is None else rank_tol
        rng = np.random.default_rng(0)
        starts = [rng.normal(size=(rows, columns)) for _ in range(self.groups)]
        self.frames = [np.linalg.qr(start)[0] for start in starts]
        self.places = list(np.arange(self.groups * columns).reshape(self.groups, columns))
        self.logs = np.zeros(self.groups * columns)
        # Few columns are applied to, and nothing is formed that could be kept.
        self.few = self.partial and self.groups == 1 and 8 * columns <= rows
        most = 1 if self.few else min(_LONGEST_BLOCK, _BLOCK_BYTES // (8 * rows * self.size))
        self.longest = max(1, most)
        self.length = every or 1
        self.pending: list[_Layer] = []
        self.factorisations = 0

    def append(self, factor: DeflatedFactor, name: str) -> None:
        """Take a factor, and the frames through the block if it is complete.

        Raises
        ------
        ShapeError
            If the factor has another size than the first, or mixes tokens where the first did not.
        """
        if factor.factor.shape[0] != self.size:
            raise ShapeError(
                f"{name}: expected the size {self.size} of factors[0], got shape "
                f"{factor.factor.shape}"
            )
        if self.groups > 1 and not (factor.tokenwise and factor.tokens == self.groups):
            raise ShapeError(
                f"{name}: expected a factor that acts on each of {self.groups} tokens alone, as "
                f"factors[0] does, got {factor.factor!r}; materialise factors[0] if others mix them"
            )
        if not any(frame.shape[1] for frame in self.frames):
            return
        matrices = [factor.factor] if self.few else factor_blocks(factor.factor, self.groups)
        rows = [] if self.partial else [factor_blocks(r, self.groups) for r in factor.weak_rows]
        self.pending.append(_Layer(matrices, factor.null, factor.weak, rows))
        if len(self.pending) >= self.length:
            self._flush()

    def take(self) -> Array:
        """Return the sums since the last call, for all columns there ever were."""
        self._flush()
        logs, self.logs = self.logs, np.where(np.isneginf(self.logs), -np.inf, 0.0)
        return logs

    def _flush(self) -> None:
        if self.pending:
            block, self.pending = self.pending, []
            self._advance(block)

    def _advance(self, block: list[_Layer]) -> None:
        """Take the frames through a block, with one factorisation if that is safe."""
        steps = [self._step(group, block) for group in range(self.groups)]
        self.factorisations += 1
        if self.every is None:
            condition = max(step.condition for step in steps)
            if len(block) > 1 and condition > self.max_condition:
                half = self.length = len(block) // 2
                self._advance(block[:half])
                self._advance(block[half:])
                return
            self._adapt(condition, len(block))
        for group, step in enumerate(steps):
            places = self.places[group]
            if step.kept.size < places.size:
                self.logs[np.delete(places, step.kept)] = -np.inf
                self.places[group] = places = places[step.kept]
            self.frames[group] = step.frame
            with np.errstate(divide="ignore"):
                self.logs[places] += np.log(step.diagonal) + step.exponent * LOG_2

    def _adapt(self, condition: float, count: int) -> None:
        """Choose the length of the next block by the growth of the condition number."""
        per_factor = max(math.log(condition) / count, 1e-9)
        wanted = int(min(_AIM * math.log(self.max_condition) / per_factor, self.longest))
        self.length = max(1, min(wanted, 2 * self.length))

    def _step(self, group: int, block: list[_Layer]) -> _Step:
        """Carry one frame through the factors and factor it."""
        image = before = self.frames[group]
        if not image.shape[1]:
            return _Step(image, np.zeros(0), 0, 1.0, np.arange(0))
        exponent = shift = 0
        for layer in block:
            before = image
            image, shift = split_exponent(_times(layer.matrices[group], image))
            exponent += shift
        last, coordinates, small = block[-1], None, 0
        mine = slice(None) if self.groups == 1 else slice(group, group + 1)
        if last.rows:
            coordinates = Complement.of(last.null[mine], last.weak[mine])
            weak = np.stack([np.ldexp(row[group] @ before, -shift) for row in last.rows], axis=1)
            image = coordinates.compress(image, weak.reshape(-1, image.shape[1]))
            small = len(weak) * len(last.rows)
        elif last.null.shape[2] and not self.partial:
            image = without(last.null[mine], image)
        factored, tau = _householder(image)
        kept = np.arange(image.shape[1])
        condition = 1.0 if self.every is not None else self._condition(factored, len(block))
        if len(block) == 1:
            # As many small entries as there are weak directions are those, and no rounding errors.
            floor = self.rank_tol * _norm(last.matrices[group], -shift)
            while (null := np.flatnonzero(_diagonal(factored) <= floor)).size > small:
                kept = np.delete(kept, null[small])
                image = np.delete(image, null[small], axis=1)
                factored, tau = _householder(image)
        diagonal = _diagonal(factored)
        frame = _basis(factored, tau)
        frame = frame if coordinates is None else coordinates.expand(frame)
        return _Step(frame, diagonal, exponent, condition, kept)

    def _condition(self, factored: Array, count: int) -> float:
        """Return an estimate of the condition number of R, in the 1-norm.

        Or only a lower bound, if that already forbids to double the block.
        """
        diagonal = _diagonal(factored)
        if not diagonal.all():
            return math.inf
        bound = float(diagonal.max() / diagonal.min())
        if count == 1 and bound > self.max_condition ** (_AIM / 2):
            return bound
        reciprocal = float(dtrcon(factored[: diagonal.size])[0])
        return max(bound, 1.0 / reciprocal) if reciprocal > 0 else math.inf


def _times(matrix: Any, image: Array) -> Array:
    """Return the product, of an array in Fortran's order, which LAPACK takes as it is."""
    return (image.T @ matrix.T).T if isinstance(matrix, np.ndarray) else matrix @ image


def _householder(image: Array) -> tuple[Array, Array]:
    """Return R with the reflectors below its diagonal, and their factors."""
    if not image.shape[1]:
        return image, np.zeros(0)
    factored, tau, *_ = dgeqrf(image, lwork=64 * image.shape[1])
    return factored, tau


def _diagonal(factored: Array) -> Array:
    return np.abs(factored.diagonal())


def _basis(factored: Array, tau: Array) -> Array:
    """Return Q; `factored` is overwritten."""
    if not tau.size:
        return factored
    basis: Array = dorgqr(factored, tau, lwork=64 * tau.size, overwrite_a=1)[0]
    return basis


def _norm(matrix: Any, exponent: int) -> float:
    """Return the Frobenius norm times a power of two; 0 for an operator, which is not formed."""
    if not isinstance(matrix, np.ndarray):
        return 0.0
    mantissa, shift = split_exponent(matrix)
    return math.ldexp(float(np.linalg.norm(mantissa)), shift + exponent)
