r"""Moments of softmax weights at random scores, exact for normal scores and any number of tokens.

Scores of a row are normal, and any two of them have the same covariance. What they share cancels
in the softmax; with s^2 the variance of what they do not share, the weights are those of
independent :math:`\xi_j \sim \mathcal N(0, s^2)`,

.. math:: P_{ij} = e^{\xi_{ij}}/Z_i, \qquad Z_i = \sum_j e^{\xi_{ij}}, \qquad
    \operatorname{corr}(\xi_{ij}, \xi_{kj}) = \rho.

Powers of :math:`1/Z` are integrals, :math:`Z^{-m} = \int_0^\infty t^{m-1}e^{-tZ}dt/(m-1)!`, which
make the tokens factors: with :math:`\varphi_k(t) = \mathbb E\,e^{k\xi - te^\xi}`,

.. math:: \mathbb E\sum_jP_{ij}^2 = n\int_0^\infty t\,\varphi_2(t)\,\varphi_0(t)^{n-1}\,dt

and so on, in two variables for two rows. All are evaluated by the trapezoid rule in
:math:`\log t` and in :math:`\xi`, whose error falls as :math:`e^{-\pi^2/h}` in the step h. For n
to infinity

.. math:: \mathbb E\sum_jP_{ij}P_{kj} \to e^{\rho s^2}/n.

Source: own; the limit for one row as in Kedia et al., 2024, arXiv:2403.09635.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from derive.errors import DomainError

__all__ = ["LARGEST_VARIANCE", "SoftmaxMoments", "softmax_moments"]

LARGEST_VARIANCE = 16.0
"""Of scores, up to which an integral takes well below a second."""
STEP = 0.3
REACH = 8.5
"""Standard deviations up to which a normal density is summed."""
DEEP = 20.0
"""How far below 1/n the logarithm of t starts: what is left out is of order e^-40."""


class SoftmaxMoments(NamedTuple):
    r"""What attention needs of its weights: of one row, and of two rows i and k.

    Attributes
    ----------
    same, other : float
        :math:`\mathbb E\sum_jP_{ij}^2` and :math:`\mathbb E\sum_jP_{ij}P_{kj}`.
    same_score, other_score : float
        :math:`\mathbb E\sum_jP_{ij}P_{kj}(1 - P_{ij} - P_{kj} + \sum_mP_{im}P_{km})` for k = i
        and for k not i: what reaches the scores.
    """

    same: float
    other: float
    same_score: float
    other_score: float


@lru_cache(maxsize=4096)
def softmax_moments(tokens: int, variance: float, correlation: float) -> SoftmaxMoments:
    r"""Return the moments of softmax weights.

    Parameters
    ----------
    tokens : int
        n, at least 1.
    variance : float
        s^2 of what scores of a row do not share, not negative.
    correlation : float
        Of the scores of two rows for the same key, -1 to 1.

    Raises
    ------
    DomainError
        If a number is out of range, or the variance beyond `LARGEST_VARIANCE`.
    """
    if tokens < 1 or not abs(correlation) <= 1 + 1e-12:
        raise DomainError(
            f"tokens, correlation: expected at least 1 token and a correlation in [-1, 1], got "
            f"{tokens}, {correlation}"
        )
    if not 0 <= variance <= LARGEST_VARIANCE:
        raise DomainError(
            f"scores: expected a variance from 0 to {LARGEST_VARIANCE:g}, got {variance:g}"
        )
    if tokens == 1:
        return SoftmaxMoments(1.0, 1.0, 0.0, 0.0)
    if variance == 0:
        flat = 1 / tokens
        return SoftmaxMoments(flat, flat, flat - flat**2, flat - flat**2)
    spread = math.sqrt(variance)
    same = _one_row(tokens, spread)
    rho = min(1.0, max(-1.0, correlation))
    other = same if rho == 1 else _two_rows(tokens, spread, rho)
    return SoftmaxMoments(same[0], other[0], same[1], other[1])


def _normal(scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points and weights of a normal variable of this standard deviation."""
    step = min(STEP, STEP / scale) if scale > 0 else 1.0
    z = np.arange(-math.ceil(REACH / step), math.ceil(REACH / step) + 1) * step
    weights = np.exp(-(z**2) / 2)
    return scale * z, weights / weights.sum()


def _logarithms(tokens: int, spread: float) -> np.ndarray:
    """Return the points in log t, from where t Z is small up to where it is large."""
    return np.arange(-DEEP - math.log(tokens) - REACH * spread, 5.0 + REACH * spread, STEP)


def _one_row(tokens: int, spread: float) -> tuple[float, float]:
    y = _logarithms(tokens, spread)
    xi, weights = _normal(spread)
    shifted = y[:, None] + xi  # of t e^xi, whose powers are multiplied by those of 1/t below
    decay = np.exp(-np.exp(np.minimum(shifted, 7.0)))
    f0, f1, f2, f3, f4 = (
        (np.exp(k * np.minimum(shifted, 7.0)) * decay) @ weights for k in range(5)
    )
    del f1
    with np.errstate(under="ignore"):
        rest = f0 ** (tokens - 1)
        pairs = f0 ** (tokens - 2)
    squares = tokens * STEP * float(f2 @ rest)
    cubes = tokens * STEP / 2 * float(f3 @ rest)
    fourths = tokens * STEP / 6 * float(f4 @ rest)
    crossed = tokens * (tokens - 1) * STEP / 6 * float(f2**2 @ pairs)
    return squares, squares - 2 * cubes + fourths + crossed


def _two_rows(tokens: int, spread: float, rho: float) -> tuple[float, float]:
    y = _logarithms(tokens, spread)
    shared, outer = _normal(spread * math.sqrt(abs(rho)))
    own, inner = _normal(spread * math.sqrt(1 - abs(rho)))

    def given(sign: float) -> list[np.ndarray]:
        """Return E of (t e^xi)^k e^(-t e^xi) given the shared part, for k = 0, 1, 2."""
        shifted = np.minimum(y[:, None, None] + (sign * shared)[:, None] + own, 7.0)
        decay = np.exp(-np.exp(shifted))
        return [(np.exp(k * shifted) * decay) @ inner for k in range(3)]

    left, right = given(1.0), given(math.copysign(1.0, rho))
    f00, f11, f21, f22 = (
        (left[a] * outer) @ right[b].T for a, b in ((0, 0), (1, 1), (2, 1), (2, 2))
    )
    with np.errstate(under="ignore"):
        rest = f00 ** (tokens - 1)
        pairs = f00 ** (tokens - 2)
    unit = tokens * STEP**2
    overlap = unit * float(np.sum(f11 * rest))
    mixed = unit * float(np.sum(f21 * rest))
    squared = unit * float(np.sum(f22 * rest) + (tokens - 1) * np.sum(f11**2 * pairs))
    return overlap, overlap - 2 * mixed + squared
