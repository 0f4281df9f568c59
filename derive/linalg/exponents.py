r"""Estimated Lyapunov exponents: their errors, their sum, the dimension that they give."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from derive.errors import DomainError, ShapeError
from derive.linalg.arrays import Array

__all__ = ["LyapunovSpectrum", "kaplan_yorke_dimension"]


@dataclass(frozen=True, eq=False)
class LyapunovSpectrum:
    r"""Lyapunov exponents of a product of L factors, per factor, largest first.

    .. math:: \lambda_i = \frac1L\sum_{l}\log|R^{(l)}_{ii}|,\qquad J_lQ_l = Q_{l+1}R^{(l)}

    Attributes
    ----------
    exponents : ndarray, shape (m,)
        Natural logarithms per factor; -inf for directions that the factors annihilate.
    batch_means : ndarray, shape (B, m)
        The same averages over each of B batches of `batch` consecutive factors.
    layers : int
        Factors averaged over; more than ``B * batch`` if the last batch is not complete.
    transient : int
        Factors before them, which only turn the frame.
    batch : int
        Factors in a batch.
    size : int
        Components of the state; `exponents` is shorter if fewer were asked for.
    factorisations : int
        QR factorisations that were done, the repeated ones included.
    """

    exponents: Array
    batch_means: Array
    layers: int
    transient: int
    batch: int
    size: int
    factorisations: int

    @property
    def complete(self) -> bool:
        """Whether all exponents are there, not only the leading ones."""
        return len(self.exponents) == self.size

    @property
    def null_directions(self) -> int:
        """The number of exponents that are -inf."""
        return int(np.isneginf(self.exponents).sum())

    @cached_property
    def stderr(self) -> Array:
        r"""Standard errors of the exponents, by batch means.

        .. math:: \mathrm{se}_i^2 = \frac{1}{B(B-1)}\sum_{b=1}^{B}
            (\bar\lambda_i^{(b)} - \bar\lambda_i)^2

        They hold if the sequence is stationary and a batch longer than its memory. NaN for fewer
        than two batches; 0 for -inf, which is exact.

        Notes
        -----
        Source: Law and Carson, A sequential procedure for determining the length of a steady-state
        simulation, Operations Research 27 (1979); Flegal and Jones, Batch means and spectral
        variance estimators in Markov chain Monte Carlo, Annals of Statistics 38 (2010), section 3.
        """
        return _standard_error(self.batch_means)

    def interval(self, confidence: float = 0.95) -> tuple[Array, Array]:
        """Return confidence intervals of the exponents, by Student's t with B - 1 degrees.

        Raises
        ------
        DomainError
            If `confidence` is not between 0 and 1.
        """
        half = self._quantile(confidence) * self.stderr
        return self.exponents - half, self.exponents + half

    def _quantile(self, confidence: float) -> float:
        if not (isinstance(confidence, int | float) and 0 < confidence < 1):
            raise DomainError(f"confidence: expected a number between 0 and 1, got {confidence!r}")
        batches = len(self.batch_means)
        return float(stdtrit(batches - 1, (1 + confidence) / 2)) if batches > 1 else math.nan

    @property
    def sum(self) -> float:
        r"""The sum of all exponents, :math:`\mathbb E\log|\det J|`; NaN if not `complete`."""
        return float(self.exponents.sum()) if self.complete else math.nan

    @property
    def finite_sum(self) -> float:
        r"""The sum of the finite exponents: the growth of volume within the image."""
        return (
            float(self.exponents[np.isfinite(self.exponents)].sum()) if self.complete else math.nan
        )

    @property
    def finite_sum_stderr(self) -> float:
        """Standard error of `finite_sum`, by batch means of the sum."""
        if not self.complete:
            return math.nan
        finite = np.isfinite(self.exponents)
        return float(_standard_error(self.batch_means[:, finite].sum(axis=1, keepdims=True))[0])

    @property
    def kaplan_yorke(self) -> float:
        """Kaplan-Yorke dimension; NaN if the exponents that are there do not settle it."""
        if self.complete or self.exponents.sum() < 0:
            return kaplan_yorke_dimension(self.exponents)
        return math.nan

    @cached_property
    def drift(self) -> Array:
        r"""Mann and Kendall's z for a trend of the batch means over the batches, per exponent.

        .. math:: z = \frac{\tau}{\sqrt{2(2B+5)/(9B(B-1))}}

        with Kendall's :math:`\tau` between a batch's place and its mean: about standard normal
        where the sequence is stationary, however the means are distributed. NaN for fewer than four
        batches; 0 for -inf.

        Notes
        -----
        Source: Mann, Nonparametric tests against trend, Econometrica 13 (1945); Kendall, Rank
        Correlation Methods, 4th ed. (1975), section 3.5.
        """
        from scipy.stats import kendalltau  # slow to import, and seldom needed

        batches = len(self.batch_means)
        if batches < 4:
            return np.full(len(self.exponents), np.nan)
        spread = math.sqrt(2 * (2 * batches + 5) / (9 * batches * (batches - 1)))
        found = np.zeros(len(self.exponents))
        for k in np.flatnonzero(np.isfinite(self.exponents)):
            means = self.batch_means[:, k]
            if np.ptp(means) > 1e-14 * abs(self.exponents[k]):  # beyond rounding
                found[k] = kendalltau(np.arange(batches), means).statistic / spread
        return found

    def running(self, points: int = 8) -> tuple[Array, Array]:
        """Return the estimates from the first batches only, so that one sees them settle.

        Parameters
        ----------
        points : int
            At most so many, spaced geometrically, the last of all complete batches.

        Returns
        -------
        ndarray of int, shape (P,)
            Numbers of factors averaged over.
        ndarray, shape (P, m)
            The estimates.

        Raises
        ------
        DomainError
            If `points` is below 1.
        """
        if points < 1:
            raise DomainError(f"points: expected at least 1, got {points}")
        batches = len(self.batch_means)
        if not batches:
            return np.zeros(0, dtype=int), np.zeros((0, len(self.exponents)))
        chosen = np.unique(np.rint(np.geomspace(1, batches, points)).astype(int))
        means = np.cumsum(self.batch_means, axis=0)[chosen - 1] / chosen[:, None]
        return chosen * self.batch, means


def _standard_error(batch_means: Array) -> Array:
    batches, count = batch_means.shape
    if batches < 2:
        return np.full(count, np.nan)
    finite = np.isfinite(batch_means).all(axis=0)
    found = np.zeros(count)
    found[finite] = batch_means[:, finite].std(axis=0, ddof=1) / math.sqrt(batches)
    return found


def kaplan_yorke_dimension(exponents: npt.ArrayLike) -> float:
    r"""Return the Kaplan-Yorke (Lyapunov) dimension.

    .. math:: D = j + \frac{\lambda_1+\dots+\lambda_j}{|\lambda_{j+1}|},
        \qquad j = \max\{k : \lambda_1+\dots+\lambda_k \ge 0\}

    0 where all exponents are negative, their number where no partial sum is negative, and j where
    :math:`\lambda_{j+1} = -\infty`.

    Parameters
    ----------
    exponents : array_like, shape (m,)
        In any order; may hold -inf.

    Raises
    ------
    ShapeError
        If `exponents` is not one axis of at least one number.
    DomainError
        If one is NaN or +inf.

    Notes
    -----
    Source: Kaplan and Yorke, Chaotic behavior of multidimensional difference equations, Lecture
    Notes in Mathematics 730 (1979); Frederickson, Kaplan, Yorke and Yorke, The Liapunov dimension
    of strange attractors, Journal of Differential Equations 49 (1983).

    Examples
    --------
    >>> kaplan_yorke_dimension([0.4, 0.0, -1.0])
    2.4
    >>> kaplan_yorke_dimension([0.5, -float("inf")])
    1.0
    """
    values = np.asarray(exponents, dtype=float)
    if values.ndim != 1 or not values.size:
        raise ShapeError(f"exponents: expected one axis of numbers, got shape {values.shape}")
    if np.isnan(values).any() or np.isposinf(values).any():
        raise DomainError("exponents: expected finite numbers or -inf, got NaN or inf")
    values = np.sort(values)[::-1]
    partial = np.cumsum(values)
    kept = max((k + 1 for k in range(len(values)) if partial[k] >= 0), default=0)
    if kept == 0 or kept == len(values):
        return float(kept)
    return kept + float(partial[kept - 1] / -values[kept])
