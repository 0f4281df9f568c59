r"""Lyapunov exponents of a product of many factors, streamed: no factor is kept."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from derive.errors import DomainError, UnknownNodeError
from derive.linalg.arrays import Array, as_count
from derive.linalg.deflation import Deflatable, as_deflated
from derive.linalg.exponents import LyapunovSpectrum
from derive.linalg.frames import FrameSweep
from derive.linalg.operator import Operator

__all__ = ["lyapunov_spectrum"]


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
    sweep: FrameSweep | None = None
    batches: list[Array] = []
    seen = 0
    for item in factors:
        layer = as_deflated(f"factors[{seen}]", item)
        if sweep is None:
            sweep = FrameSweep(layer, count, every, float(max_condition), rank_tol)
        sweep.append(layer, f"factors[{seen}]")
        seen += 1
        counted = seen - transient
        if counted == 0:
            sweep.take()
        elif counted > 0 and counted % batch == 0:
            batches.append(sweep.take())
    if sweep is None or seen <= transient:
        raise DomainError(
            f"factors: expected more than transient = {transient}, got {seen}; the exponents of no "
            "factors are not defined"
        )
    return _spectrum(sweep, batches, seen - transient, transient, batch)


def _spectrum(
    sweep: FrameSweep, batches: list[Array], layers: int, transient: int, batch: int
) -> LyapunovSpectrum:
    """Return the averages, sorted, with -inf for the directions that are left out."""
    rest = sweep.take()
    sums = np.array(batches).reshape(len(batches), rest.size)
    exponents = (sums.sum(axis=0) + rest) / layers
    lost = 0 if sweep.partial else sweep.size - rest.size
    exponents = np.concatenate([exponents, np.full(lost, -np.inf)])
    means = np.concatenate([sums / batch, np.full((len(sums), lost), -np.inf)], axis=1)
    means[:, np.isneginf(exponents)] = -np.inf
    order = np.argsort(-exponents, kind="stable")[: sweep.asked]
    return LyapunovSpectrum(
        exponents=exponents[order],
        batch_means=means[:, order],
        layers=layers,
        transient=transient,
        batch=batch,
        size=sweep.size,
        factorisations=sweep.factorisations,
    )
