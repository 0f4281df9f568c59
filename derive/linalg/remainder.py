"""Rigorous bounds on what a path expansion of a residual product leaves out."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy.special import gammainc, gammaln

from derive.errors import DomainError, UnknownNodeError
from derive.linalg.arrays import Array, as_array, as_count
from derive.linalg.factors import Factor, as_branches
from derive.linalg.norms import spectral_norm
from derive.linalg.operator import Operator

__all__ = [
    "log_product_remainder_bound",
    "log_remainder_bound",
    "product_remainder_bound",
    "remainder_bound",
]

_LOG_MAX = math.log(np.finfo(np.float64).max)


def remainder_bound(branches: Iterable[Factor] | Iterable[float], order: int = 1) -> float:
    r"""Bound what the paths of more than ``order`` branches add up to.

    .. math:: \left\lVert \prod_l (I + A_l) - \sum_{k \le m} S_k \right\rVert_2
        \le e^a - \sum_{k \le m} \frac{a^k}{k!}, \qquad a = \sum_l \lVert A_l \rVert_2

    At m = 1 it is :math:`e^a - 1 - a`. Evaluated without cancellation, to a relative error of
    about 1e-13, as :math:`e^a P(m + 1, a)` with the regularised incomplete gamma function or as
    its series.

    Parameters
    ----------
    branches : iterable of Operator, ndarray or float
        The branches A_l, or their norms (or upper bounds of them).
    order : int
        m, the longest path that the expansion keeps; at least 0.

    Returns
    -------
    float

    Raises
    ------
    DomainError
        If ``order`` or a norm is negative, or the bound overflows.
    ShapeError
        If a branch is not square, or sizes differ.
    WeightError
        If an array or a norm is not real and finite.
    UnknownNodeError
        If the list mixes branches and norms, or holds something else.

    Notes
    -----
    Source: |S_k| <= e_k(|A_0|, ..., |A_{L-1}|) <= a^k / k!, from the triangle inequality,
    submultiplicativity and Maclaurin's inequality.

    Examples
    --------
    >>> round(remainder_bound([0.5, 0.5]), 12) == round(math.e - 2, 12)
    True
    """
    return _exponential("branches", log_remainder_bound(branches, order), "log_remainder_bound")


def log_remainder_bound(branches: Iterable[Factor] | Iterable[float], order: int = 1) -> float:
    r"""Return the log of ``remainder_bound``, for sums of norms too large for it.

    .. math:: \log\left(e^a - \sum_{k \le m} \frac{a^k}{k!}\right)

    Parameters
    ----------
    branches : iterable of Operator, ndarray or float
        The branches A_l, or their norms (or upper bounds of them).
    order : int
        m, the longest path that the expansion keeps; at least 0.

    Returns
    -------
    float
        -inf if all branches are zero.

    Raises
    ------
    DomainError
        If ``order`` or a norm is negative.
    ShapeError
        If a branch is not square, or sizes differ.
    WeightError
        If an array or a norm is not real and finite.
    UnknownNodeError
        If the list mixes branches and norms, or holds something else.
    """
    norms = _norms(branches)
    first_left_out = as_count("order", order, least=0) + 1
    total = math.fsum(norms)
    if not total:
        return -math.inf
    if total >= first_left_out:
        # At most half of the exponential series is kept.
        return total + math.log(gammainc(first_left_out, total))
    # a^m / m! * (1 + a/(m+1) + a^2/((m+1)(m+2)) + ...): positive terms, ratio below 1.
    term, series, place = 1.0, 1.0, first_left_out
    while term > 1e-17 * series:
        place += 1
        term *= total / place
        series += term
    lead = first_left_out * math.log(total) - float(gammaln(first_left_out + 1))
    return lead + math.log(series)


def product_remainder_bound(branches: Iterable[Factor] | Iterable[float], order: int = 1) -> float:
    r"""Bound what the paths of more than ``order`` branches add up to, by each norm.

    .. math:: \left\lVert \prod_l (I + A_l) - \sum_{k \le m} S_k \right\rVert_2
        \le \prod_l (1 + a_l) - \sum_{k \le m} e_k(a) = \sum_{k > m} e_k(a),
        \qquad a_l = \lVert A_l \rVert_2

    with the elementary symmetric polynomials e_k. Never above ``remainder_bound``, reached by
    scalar branches, and 0 once m >= L.

    Parameters
    ----------
    branches : iterable of Operator, ndarray or float
        The branches A_l, or their norms (or upper bounds of them).
    order : int
        m, the longest path that the expansion keeps; at least 0.

    Returns
    -------
    float

    Raises
    ------
    DomainError
        If ``order`` or a norm is negative, or the bound overflows.
    ShapeError
        If a branch is not square, or sizes differ.
    WeightError
        If an array or a norm is not real and finite.
    UnknownNodeError
        If the list mixes branches and norms, or holds something else.

    Notes
    -----
    Source: the triangle inequality and submultiplicativity, path by path. The left-out sum obeys
    tau <- (1 + a_l) tau + a_l e_m, all terms positive, so that nothing cancels.

    Examples
    --------
    >>> round(product_remainder_bound([0.5, 0.5]), 12)
    0.25
    """
    log_bound = log_product_remainder_bound(branches, order)
    return _exponential("branches", log_bound, "log_product_remainder_bound")


def log_product_remainder_bound(
    branches: Iterable[Factor] | Iterable[float], order: int = 1
) -> float:
    r"""Return the log of ``product_remainder_bound``, for products too large for it.

    .. math:: \log \sum_{k > m} e_k(\lVert A_0 \rVert_2, \dots, \lVert A_{L-1} \rVert_2)

    Parameters
    ----------
    branches : iterable of Operator, ndarray or float
        The branches A_l, or their norms (or upper bounds of them).
    order : int
        m, the longest path that the expansion keeps; at least 0.

    Returns
    -------
    float
        -inf if fewer than m + 1 branches are not zero.

    Raises
    ------
    DomainError
        If ``order`` or a norm is negative.
    ShapeError
        If a branch is not square, or sizes differ.
    WeightError
        If an array or a norm is not real and finite.
    UnknownNodeError
        If the list mixes branches and norms, or holds something else.
    """
    norms = _norms(branches)
    norms = norms[norms > 0]
    kept = as_count("order", order, least=0)
    if kept >= len(norms):
        return -math.inf
    # logs[k] is log e_k for k <= m, the last entry that of the left-out sum.
    logs = np.full(kept + 2, -np.inf)
    logs[0] = 0.0
    for norm in norms:
        log_norm, stays = math.log(norm), math.log1p(norm)
        left_out = np.logaddexp(logs[-1] + stays, logs[kept] + log_norm)
        logs[1:-1] = np.logaddexp(logs[1:-1], logs[:kept] + log_norm)
        logs[-1] = left_out
    return float(logs[-1])


def _exponential(name: str, log_value: float, instead: str) -> float:
    if log_value >= _LOG_MAX:
        raise DomainError(
            f"{name}: expected a bound below exp({_LOG_MAX:.1f}), got exp({log_value:.1f}); "
            f"use {instead}"
        )
    return math.exp(log_value)


def _norms(branches: Iterable[Factor] | Iterable[float]) -> Array:
    """Return the norms, given or computed from the branches."""
    if isinstance(branches, Operator) or not isinstance(branches, Iterable):
        raise UnknownNodeError(
            f"branches: expected a list of branches or norms, got {type(branches).__name__}"
        )
    items = list(branches)
    if not items:
        return np.zeros(0)
    scalar = [not isinstance(item, Operator) and np.ndim(item) == 0 for item in items]
    if all(scalar):
        norms = as_array("norms", np.asarray(items), 1)
        if (norms < 0).any():
            raise DomainError(f"norms: expected numbers >= 0, got {norms.min()}")
        return norms
    if any(scalar):
        place = scalar.index(not scalar[0])
        raise UnknownNodeError(
            f"branches[{place}]: expected the kind of branches[0], a list of norms or one of "
            f"branches, got {type(items[place]).__name__}"
        )
    return np.array([spectral_norm(branch) for branch in as_branches(items)])
