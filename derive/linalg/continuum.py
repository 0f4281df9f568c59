r"""The continuum limit of a residual product: ordered exponential, Magnus series, and their errors.

The layers :math:`I + A_l` are one Euler step each of :math:`Y' = a(t)Y` on the unit interval with
the generator :math:`a(t) = L A_l` for :math:`l/L\le t<(l+1)/L`. Its solution is the *ordered
exponential* :math:`e^{A_{L-1}}\cdots e^{A_0}`, the limit of dividing every layer into r layers
:math:`I + A_l/r`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from derive.errors import DomainError
from derive.linalg.arrays import Array, as_array, as_count
from derive.linalg.factors import Factor, as_branches, width_in
from derive.linalg.materialise import materialise
from derive.linalg.norms import spectral_norm
from derive.linalg.products import end_to_end
from derive.linalg.scaled import ScaledMatrix

__all__ = [
    "Magnus",
    "Refinement",
    "log_continuum_bound",
    "magnus",
    "ordered_exponential",
    "refinements",
]

HIGHEST_ORDER = 12


def ordered_exponential(branches: Iterable[Factor], *, size: int | None = None) -> ScaledMatrix:
    r"""Return the ordered exponential of the branches.

    .. math:: e^{A_{L-1}}\cdots e^{A_1}e^{A_0}

    Each factor by `scipy.linalg.expm`, the product rescaled layer by layer.

    Parameters
    ----------
    branches : iterable of Operator or ndarray
        ``[A_0, ..., A_{L-1}]``, square, the first applied first.
    size : int, optional
        The width that an empty list stands for.

    Returns
    -------
    ScaledMatrix

    Raises
    ------
    DomainError
        If one exponential overflows.
    ShapeError, WeightError, UnknownNodeError
        As for `derive.linalg.path_sums`.

    Examples
    --------
    >>> import numpy as np
    >>> float(ordered_exponential([np.eye(1)] * 1000).log_norm())
    1000.0
    """
    checked = as_branches(branches)
    width = width_in("branches", checked, size)
    return end_to_end([_expm(materialise(a)) for a in checked], size=width)


def _expm(matrix: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        found = scipy.linalg.expm(matrix)
    if not np.isfinite(found).all():
        raise DomainError(
            "branches: expected exponentials within double precision, got an overflow of exp(A) at "
            f"a norm of {spectral_norm(np.asarray(matrix)):.3g}"
        )
    return found


def log_continuum_bound(norms: npt.ArrayLike, refinement: int = 1) -> float:
    r"""Return the log of a rigorous bound on product against ordered exponential.

    .. math:: \Bigl\lVert\prod_l\bigl(I+\tfrac{A_l}{r}\bigr)^r-\prod_le^{A_l}\Bigr\rVert_2
        \le e^a-\prod_l\bigl(1+\tfrac{a_l}{r}\bigr)^r,
        \qquad a_l=\lVert A_l\rVert_2,\ a=\sum_la_l

    about :math:`e^a\sum_la_l^2/(2r)`. Telescoping replaces one factor after the other; each costs
    at most :math:`\lVert e^A-I-A\rVert\le e^{\lVert A\rVert}-1-\lVert A\rVert` times the norms of
    the factors on both sides, and the scalars of that sum telescope back to the difference.

    Parameters
    ----------
    norms : array_like, shape (L,)
        The norms, or upper bounds of them.
    refinement : int
        r, at least 1.

    Returns
    -------
    float
        -inf if all norms are zero.

    Raises
    ------
    DomainError
        If a norm is negative or `refinement` is below 1.
    WeightError
        If a norm is not finite.
    """
    parts = as_count("refinement", refinement)
    values = np.asarray(norms, dtype=float)
    if not values.size:
        return -math.inf
    values = as_array("norms", values, 1)
    if (values < 0).any():
        raise DomainError(f"norms: expected numbers >= 0, got {values.min()}")
    gap = parts * math.fsum(_minus_log1p(values / parts))
    if not gap:
        return -math.inf
    return math.fsum(values) + math.log(-math.expm1(-gap))


def _minus_log1p(t: Array) -> Array:
    """Return t - log(1 + t) without cancellation, for t >= 0."""
    small = t < 0.05
    near = np.where(small, t, 0.0)
    # t^2/2 - t^3/3 + ...: alternating; 12 terms leave less than 0.05^12 of the first
    series = sum((-1) ** k * near**k / k for k in range(2, 15))
    return np.where(small, series, t - np.log1p(t))


@dataclass(frozen=True)
class Magnus:
    r"""The Magnus series of an ordered exponential, as far as asked for.

    Attributes
    ----------
    terms : list of ndarray
        :math:`\Omega_1, \Omega_2, \dots`
    norms : list of float
        Their spectral norms.
    errors : list of float
        :math:`\lVert e^{\Omega_1+\dots+\Omega_k}-Y\rVert_2/\lVert Y\rVert_2`, as measured, Y being
        the ordered exponential; infinite where the exponential overflows.
    action : float
        :math:`\int\lVert a(t)\rVert_2dt = \sum_l\lVert A_l\rVert_2`.
    converges : bool
        Whether the action is below :math:`\pi`, which suffices for convergence; above, the series
        may converge or not.
    """

    terms: list[Array]
    norms: list[float]
    errors: list[float]
    action: float
    converges: bool


def magnus(
    branches: Iterable[Factor],
    order: int = 4,
    *,
    size: int | None = None,
    norms: Sequence[float] | None = None,
) -> Magnus:
    r"""Return the Magnus terms of the ordered exponential, and what they miss.

    .. math:: e^{A_{L-1}}\cdots e^{A_0} = e^{\Omega_1+\Omega_2+\dots},\quad
        \Omega_1=\sum_lA_l,\quad \Omega_2=\tfrac12\sum_{l>m}[A_l,A_m],\ \dots

    :math:`\Omega_k` is homogeneous of degree k in the branches. For a generator that is constant
    on each layer the iterated integrals are sums, exactly, and come from the Dyson series
    :math:`P_k\leftarrow\sum_jA_l^jP_{k-j}/j!`; the logarithm of :math:`I+\sum_kP_kz^k` then gives
    :math:`\Omega_k`, for example :math:`\Omega_2=P_2-P_1^2/2`. That is O(K^2 L) products, and a
    rounding of about machine epsilon times :math:`a^k/k!` in :math:`\Omega_k`.

    Parameters
    ----------
    branches : iterable of Operator or ndarray
        ``[A_0, ..., A_{L-1}]``, square, the first applied first.
    order : int
        Number of terms, 1 to 12.
    size : int, optional
        The width that an empty list stands for.
    norms : sequence of float, optional
        The spectral norms of the branches, where they are known.

    Returns
    -------
    Magnus

    Raises
    ------
    DomainError
        If `order` is out of range, or an exponential or a term overflows.
    ShapeError, WeightError, UnknownNodeError
        As for `derive.linalg.path_sums`.

    Notes
    -----
    Source: Blanes, Casas, Oteo and Ros, The Magnus expansion and some of its applications, Physics
    Reports 470 (2009), section 2 for the terms and their relation to the Dyson series. Convergence
    where the integral of the 2-norm is below pi: for real matrices Moan and Niesen, Convergence of
    the Magnus series, Found. Comput. Math. 8 (2008); in general Casas, Sufficient conditions for
    the convergence of the Magnus expansion, J. Phys. A 40 (2007), arXiv:0711.2381.
    """
    count = as_count("order", order)
    if count > HIGHEST_ORDER:
        raise DomainError(f"order: expected 1 to {HIGHEST_ORDER}, got {order}")
    checked = as_branches(branches)
    width = width_in("branches", checked, size)
    dense = [materialise(a) for a in checked]
    terms = _logarithm(_dyson(dense, count, width))
    if not all(np.isfinite(t).all() for t in terms):
        raise DomainError(
            "branches: expected Magnus terms within double precision, got an overflow"
        )
    known = [spectral_norm(a) for a in dense] if norms is None else norms
    action = math.fsum(known)
    exact = ordered_exponential(dense, size=width)
    total, errors = np.zeros((width, width)), []
    for term in terms:
        total = total + term
        errors.append(_relative_error(total, exact))
    return Magnus(
        terms=terms,
        norms=[spectral_norm(t) for t in terms],
        errors=errors,
        action=action,
        converges=action < math.pi,
    )


def _relative_error(exponent: Array, exact: ScaledMatrix) -> float:
    try:
        found = _expm(exponent)
    except DomainError:
        return math.inf
    log_norm = exact.log_norm()
    # Both over the norm of the exact one: neither overflows unless the error itself does.
    scaled = exact.matrix * math.exp(exact.log_scale - log_norm)
    with np.errstate(over="ignore", invalid="ignore"):
        difference = found * np.exp(-log_norm) - scaled
    return float(np.linalg.norm(difference, 2)) if np.isfinite(difference).all() else math.inf


@np.errstate(over="ignore", invalid="ignore")
def _dyson(branches: Sequence[Array], order: int, width: int) -> list[Array]:
    """Return P_1, ..., P_K: the ordered exponential by degree in the branches."""
    series: list[Array] = [np.eye(width)] + [np.zeros((width, width)) for _ in range(order)]
    for a in branches:
        powers = [a]
        for j in range(2, order + 1):
            powers.append(a @ powers[-1] / j)
        for k in range(order, 0, -1):
            # P_0 is the identity
            series[k] = (
                series[k]
                + powers[k - 1]
                + sum(
                    (powers[j - 1] @ series[k - j] for j in range(1, k)), np.zeros((width, width))
                )
            )
    return series[1:]


@np.errstate(over="ignore", invalid="ignore")
def _logarithm(series: Sequence[Array]) -> list[Array]:
    """Return the terms by degree of log(I + P_1 z + P_2 z^2 + ...)."""
    order = len(series)
    total: list[Any] = [np.zeros_like(p) for p in series]
    power: list[Any] = list(series)  # of I + P - I to the m, by degree, from degree 1
    for m in range(1, order + 1):
        for k in range(order):
            total[k] = total[k] + (-1) ** (m + 1) / m * power[k]
        power = [
            sum(
                (power[j] @ series[k - 1 - j] for j in range(m - 1, k)),
                np.zeros_like(series[0]),
            )
            for k in range(order)
        ]
    return total


@dataclass(frozen=True)
class Refinement:
    r"""How far a stack of thinner layers is from its continuum limit.

    Attributes
    ----------
    parts : int
        r: every layer :math:`I + A_l` became r layers :math:`I + A_l/r`.
    log_error : float
        Log of :math:`\lVert\prod_l(I+A_l/r)^r-\prod_le^{A_l}\rVert_2`, as measured; below about
        machine epsilon times the product it is rounding.
    log_bound : float
        Log of the rigorous bound on it.
    relative_error : float
        The error divided by the norm of the ordered exponential.
    """

    parts: int
    log_error: float
    log_bound: float
    relative_error: float


def refinements(
    branches: Iterable[Factor],
    parts: Sequence[int] = (1, 2, 4, 8),
    *,
    size: int | None = None,
) -> list[Refinement]:
    r"""Return the error of the product against its continuum limit, for thinner and thinner layers.

    Parameters
    ----------
    branches : iterable of Operator or ndarray
        ``[A_0, ..., A_{L-1}]``, square, the first applied first.
    parts : sequence of int
        The numbers r of layers that every layer is divided into; 1 is the stack itself. The error
        falls as 1/r.
    size : int, optional
        The width that an empty list stands for.

    Returns
    -------
    list of Refinement

    Raises
    ------
    DomainError
        If a number is below 1, or a factor overflows.
    ShapeError, WeightError, UnknownNodeError
        As for `derive.linalg.path_sums`.

    Notes
    -----
    Source: the Euler method, of order 1: Hairer, Norsett and Wanner, Solving Ordinary Differential
    Equations I, section II.3.
    """
    checked = as_branches(branches)
    width = width_in("branches", checked, size)
    dense = [materialise(a) for a in checked]
    norms = np.array([spectral_norm(a) for a in dense])
    limit = ordered_exponential(dense, size=width)
    log_limit = limit.log_norm()
    found = []
    for count in parts:
        r = as_count("parts", count)
        layers = [np.linalg.matrix_power(np.eye(width) + a / r, r) for a in dense]
        product = end_to_end(layers, size=width)
        top = max(product.log_scale, limit.log_scale)
        difference = product.matrix * math.exp(product.log_scale - top) - limit.matrix * math.exp(
            limit.log_scale - top
        )
        log_error = ScaledMatrix(difference, top).log_norm()
        with np.errstate(over="ignore"):
            relative = float(np.exp(log_error - log_limit))
        found.append(Refinement(r, log_error, log_continuum_bound(norms, r), relative))
    return found
