r"""Lyapunov exponents of a product of many factors, streamed: no factor is kept."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.lapack import dgeqrf, dorgqr, dtrcon

from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg.arrays import Array, as_count
from derive.linalg.deflation import (
    Complement,
    Deflatable,
    DeflatedFactor,
    as_deflated,
    factor_blocks,
    without,
)
from derive.linalg.exponents import LyapunovSpectrum
from derive.linalg.factors import Factor
from derive.linalg.operator import Operator
from derive.linalg.scaled import LOG_2, split_exponent

__all__ = ["lyapunov_spectrum"]

_EPS = float(np.finfo(np.float64).eps)
# A block of factors between two factorisations is kept until its condition is known.
_LONGEST_BLOCK = 64
_BLOCK_BYTES = 2**28
# The next block is to reach this share of the digits that it may lose.
_AIM = 0.8


def lyapunov_spectrum(
    factors: Iterable[Deflatable],
    *,
    transient: int = 0,
    batch: int = 100,
    count: int | None = None,
    every: int | None = None,
    max_condition: float = 1e8,
    rank_tol: float | None = None,
) -> LyapunovSpectrum:
    r"""Return the Lyapunov exponents of the product of the factors.

    .. math:: \lambda_i = \lim_{L\to\infty}\frac1L\log\sigma_i(J_{L-1}\cdots J_0)

    A frame of orthonormal columns is carried through the factors and factored again,
    :math:`J_{l+k-1}\cdots J_lQ_l = Q_{l+k}R`, and :math:`\log|R_{ii}|` is averaged. k adapts so
    that the condition number of R, estimated after every factorisation, stays below
    `max_condition`: what :math:`R_{ii}` loses in relative precision is about that times 1e-16. A
    block that exceeds it is done again in halves; a single factor cannot be halved.

    Null directions do not come out as the logarithms of rounding errors. Where a factor is a
    `DeflatedFactor`, the frame has only as many columns as its nullity leaves, and lives in the
    complement of its left null directions, with the nearly null ones apart. Besides, a column that
    a single factor takes to less than `rank_tol` relative to itself is dropped. Both give -inf.

    Parameters
    ----------
    factors : iterable of Operator, ndarray or DeflatedFactor
        J_0, J_1, ..., the first applied first; square, all of one size. Read once.
    transient : int
        The first factors turn the frame and are not averaged over.
    batch : int
        Factors in a batch, for the standard errors. A factorisation ends every batch.
    count : int, optional
        Only the leading exponents: fewer columns, and no use of null directions.
    every : int, optional
        Factor after this many factors, whatever the condition number.
    max_condition : float
        The bar, above 1.
    rank_tol : float, optional
        Machine epsilon times the width of a factor by default, as for `log_singular_values`.

    Returns
    -------
    LyapunovSpectrum

    Raises
    ------
    DomainError
        If there are no factors after the transient, an option is out of range, or a product
        overflows within one factor.
    ShapeError
        If a factor is not square, or not of the size of the first.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If a factor is none of the three kinds.

    Notes
    -----
    The first frame is a fixed random one, so that no column is exceptional; what that costs is
    O(1/L) and gone after a transient. Factors that act on each token alone keep a frame for each
    token. Sources: Benettin, Galgani, Giorgilli and Strelcyn, Lyapunov characteristic exponents for
    smooth dynamical systems, Meccanica 15 (1980); Dieci, Russell and Van Vleck, On the computation
    of Lyapunov exponents for continuous dynamical systems, SIAM J. Numer. Anal. 34 (1997), section
    3 (the discrete QR method); Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
    section 19.4 (rows of different size in Householder's QR, sorted).

    Examples
    --------
    >>> import numpy as np
    >>> found = lyapunov_spectrum([np.diag([2.0, 0.5])] * 200, transient=100, batch=10)
    >>> (found.exponents / np.log(2.0)).round(12)
    array([ 1., -1.])
    """
    if isinstance(factors, Operator | np.ndarray) or not isinstance(factors, Iterable):
        raise UnknownNodeError(
            f"factors: expected an iterable of factors in layer order, got {type(factors).__name__}"
        )
    as_count("transient", transient, least=0)
    as_count("batch", batch)
    for name, value in (("count", count), ("every", every)):
        if value is not None:
            as_count(name, value)
    if not (isinstance(max_condition, int | float) and 1 < max_condition < math.inf):
        raise DomainError(f"max_condition: expected a finite number above 1, got {max_condition!r}")
    if rank_tol is not None and not (isinstance(rank_tol, int | float) and 0 <= rank_tol < 1):
        raise DomainError(f"rank_tol: expected None or a number in [0, 1), got {rank_tol!r}")
    sweep: _Sweep | None = None
    pending: list[DeflatedFactor] = []
    batches: list[Array] = []
    seen = 0
    for item in factors:
        layer = as_deflated(f"factors[{seen}]", item)
        if sweep is None:
            sweep = _Sweep(layer, count, every, float(max_condition), rank_tol)
        sweep.check(layer, f"factors[{seen}]")
        pending.append(layer)
        seen += 1
        counted = seen - transient
        ends = counted == 0 or (counted > 0 and counted % batch == 0)
        if ends or len(pending) >= sweep.length:
            sweep.advance(pending)
            pending = []
        if ends:
            logs = sweep.take()
            if counted:
                batches.append(logs)
    if sweep is None or seen <= transient:
        raise DomainError(
            f"factors: expected more than transient = {transient}, got {seen}; the exponents of no "
            "factors are not defined"
        )
    if pending:
        sweep.advance(pending)
    return sweep.spectrum(batches, sweep.take(), seen - transient, transient, batch)


@dataclass(frozen=True)
class _Step:
    """A frame after a block of factors, not yet taken over."""

    frame: Array
    diagonal: Array
    exponent: int
    condition: float
    kept: Array


class _Sweep:
    """The frames on their way through the factors, and the logarithms since the last `take`."""

    def __init__(
        self,
        first: DeflatedFactor,
        count: int | None,
        every: int | None,
        max_condition: float,
        rank_tol: float | None,
    ) -> None:
        self.size, self.tokens = int(first.factor.shape[0]), first.tokens
        self.groups = first.tokens if first.tokenwise else 1
        self.every, self.max_condition = every, max_condition
        rows = self.size // self.groups
        left = rows - first.nullity * self.tokens // self.groups
        self.asked = self.size if count is None else min(count, self.size)
        self.partial = self.asked < self.groups * left
        columns = min(self.asked, rows) if self.partial else left
        self.rank_tol = _EPS * rows if rank_tol is None else rank_tol
        rng = np.random.default_rng(0)
        starts = [rng.normal(size=(rows, columns)) for _ in range(self.groups)]
        self.frames = [np.linalg.qr(start)[0] for start in starts]
        self.places = list(np.arange(self.groups * columns).reshape(self.groups, columns))
        self.logs = np.zeros(self.groups * columns)
        self.longest = max(1, min(_LONGEST_BLOCK, _BLOCK_BYTES // (8 * rows * self.size)))
        self.length = every or 1
        self.factorisations = 0

    def check(self, layer: DeflatedFactor, name: str) -> None:
        """Refuse a factor of another size than the first, or one that mixes its tokens."""
        if layer.factor.shape[0] != self.size:
            raise ShapeError(
                f"{name}: expected the size {self.size} of factors[0], got shape "
                f"{layer.factor.shape}"
            )
        if self.groups > 1 and not (layer.tokenwise and layer.tokens == self.groups):
            raise ShapeError(
                f"{name}: expected a factor that acts on each of {self.groups} tokens alone, as "
                f"factors[0] does, got {layer.factor!r}; materialise factors[0] if others mix them"
            )

    def advance(self, block: list[DeflatedFactor]) -> None:
        """Take the frames through consecutive factors."""
        if any(frame.shape[1] for frame in self.frames):
            self._advance(block, [self._matrices(layer.factor) for layer in block])

    def _matrices(self, factor: Factor) -> Any:
        """Return the matrix of each group, or the operator itself where columns are few."""
        few = self.partial and self.groups == 1 and 8 * self.frames[0].shape[1] <= self.size
        return [factor] if few else factor_blocks(factor, self.groups)

    def _advance(self, block: list[DeflatedFactor], matrices: list[Any]) -> None:
        last = block[-1]
        rows = [] if self.partial else [factor_blocks(r, self.groups) for r in last.weak_rows]
        steps = [self._step(k, last, matrices, rows) for k in range(self.groups)]
        self.factorisations += 1
        condition = max(step.condition for step in steps)
        if self.every is None:
            if len(block) > 1 and condition > self.max_condition:
                half = self.length = len(block) // 2
                self._advance(block[:half], matrices[:half])
                self._advance(block[half:], matrices[half:])
                return
            self._adapt(condition, len(block))
        for k, step in enumerate(steps):
            places = self.places[k]
            if step.kept.size < places.size:
                self.logs[np.delete(places, step.kept)] = -np.inf
                self.places[k] = places = places[step.kept]
            self.frames[k] = step.frame
            with np.errstate(divide="ignore"):
                self.logs[places] += np.log(step.diagonal) + step.exponent * LOG_2

    def _step(
        self, group: int, last: DeflatedFactor, matrices: list[Any], rows: list[Array]
    ) -> _Step:
        """Carry one frame through the factors and factor it."""
        image, before, exponent, shift = self.frames[group], self.frames[group], 0, 0
        if not image.shape[1]:
            return _Step(image, np.zeros(0), 0, 1.0, np.arange(0))
        for one in matrices:
            before = image
            image, shift = split_exponent(_times(one[group], image))
            exponent += shift
        coordinates, small = None, 0
        mine = slice(None) if self.groups == 1 else slice(group, group + 1)
        if rows:
            coordinates = Complement.of(last.null[mine], last.weak[mine])
            weak = [np.ldexp(row[group] @ before, -shift) for row in rows]
            image = coordinates.compress(image, _interleaved(weak, image.shape[1]))
            small = len(rows) * len(coordinates.basis)
        elif last.null.shape[2] and not self.partial:
            image = without(last.null[mine], image)
        factored, tau = _householder(image)
        kept = np.arange(image.shape[1])
        condition = 1.0 if self.every is not None else self._condition(factored, len(matrices))
        if len(matrices) == 1:
            floor = self.rank_tol * _norm(matrices[0][group], -shift)
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

    def _adapt(self, condition: float, count: int) -> None:
        """Choose the length of the next block by the growth of the condition number."""
        per_factor = max(math.log(condition) / count, 1e-9)
        wanted = int(min(_AIM * math.log(self.max_condition) / per_factor, self.longest))
        self.length = max(1, min(wanted, 2 * self.length))

    def take(self) -> Array:
        """Return the logarithms since the last call, for all columns there ever were."""
        logs, self.logs = self.logs, np.where(np.isneginf(self.logs), -np.inf, 0.0)
        return logs

    def spectrum(
        self, batches: list[Array], rest: Array, layers: int, transient: int, batch: int
    ) -> LyapunovSpectrum:
        """Return the averages, sorted, with -inf for the directions that are left out."""
        sums = np.array(batches).reshape(len(batches), rest.size)
        exponents = (sums.sum(axis=0) + rest) / layers
        lost = 0 if self.partial else self.size - rest.size
        exponents = np.concatenate([exponents, np.full(lost, -np.inf)])
        means = np.concatenate([sums / batch, np.full((len(sums), lost), -np.inf)], axis=1)
        means[:, np.isneginf(exponents)] = -np.inf
        order = np.argsort(-exponents, kind="stable")[: self.asked]
        return LyapunovSpectrum(
            exponents=exponents[order],
            batch_means=means[:, order],
            layers=layers,
            transient=transient,
            batch=batch,
            size=self.size,
            factorisations=self.factorisations,
        )


def _times(matrix: Any, image: Array) -> Array:
    """Return the product, of an array in Fortran's order, which LAPACK takes as it is."""
    return (image.T @ matrix.T).T if isinstance(matrix, np.ndarray) else matrix @ image


def _householder(image: Array) -> tuple[Array, Array]:
    """Return R with the reflectors below its diagonal, and their factors."""
    if not image.shape[1]:
        return image, np.zeros(0)
    return dgeqrf(image, lwork=64 * image.shape[1])[:2]


def _diagonal(factored: Array) -> Array:
    return np.abs(factored.diagonal())


def _basis(factored: Array, tau: Array) -> Array:
    """Return Q; `factored` is overwritten."""
    if not tau.size:
        return factored
    return dorgqr(factored, tau, lwork=64 * tau.size, overwrite_a=1)[0]


def _interleaved(rows: list[Array], columns: int) -> Array:
    """Put q arrays (t, m) together token by token: (t * q, m)."""
    return np.stack(rows, axis=1).reshape(-1, columns) if rows else np.zeros((0, columns))


def _norm(matrix: Any, exponent: int) -> float:
    """Return the Frobenius norm times a power of two; 0 for an operator, which is not formed."""
    if not isinstance(matrix, np.ndarray):
        return 0.0
    mantissa, shift = split_exponent(matrix)
    return math.ldexp(float(np.linalg.norm(mantissa)), shift + exponent)
