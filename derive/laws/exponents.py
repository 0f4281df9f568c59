r"""Lyapunov exponents of infinitely deep stacks, from the law.

The law is an average over weights (*annealed*): :math:`\log\mathbb E|g_0|^2/\mathbb E|g_L|^2`.
One infinitely deep stack (*quenched*) has the exponent
:math:`\lambda = \lim\frac1L\log|g_0|/|g_L|`, a mean of logarithms. Where the blocks have
independent weights the logarithm is a sum, nearly normal, with a variance of :math:`\sigma^2` a
block, and by Jensen

.. math:: \lambda = \tfrac12\log\mathbb E Z - \tfrac14\sigma^2 + O(d^{-2}), \qquad
    Z = |g_{l-1}|^2/|g_l|^2,

with :math:`\sigma^2 = O(1/d)` from `derive.laws.spread`. At infinite width both are
:math:`\frac12\log G`. The law of a random vector is that of the leading one: a block's branch is
as likely as its rotation, so that every vector grows alike and the top exponent is the typical one.

A block that adds its branch to an unbounded stream (pre-norm) has no exponent: its gradient ratio
grows like :math:`L^\kappa`, and :math:`\lambda = 0`.

Source: own; that random products have such exponents is Furstenberg and Kesten, 1960 (from memory).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import mpmath
import numpy as np
import sympy as sp
from scipy import stats

from derive.blocks.placements import STREAMS
from derive.depth.placed import placed_stack
from derive.errors import DomainError, UnknownNodeError
from derive.initialise import random_state
from derive.laws.law import DepthLaw
from derive.laws.solve import tidy
from derive.laws.spread import log_spread
from derive.symbols import L, d, l

__all__ = ["Exponent", "JensenGap", "exponent", "jensen_gap", "measured_gap"]

DEEP = 4
"""Blocks after which the spread of one more block is that of any later one."""
FAMILY = (2**40, 2**60, 2**90)
"""Depths at which a block that depends on L is read off."""
DIGITS = 120
"""Of the numbers there: a factor of a block is 1 up to 1/L."""
SETTLED = 1e-3
"""Change of the logarithm between them that counts as none."""


@dataclass(frozen=True)
class Exponent:
    r"""What the gradient ratio of a placement does as L goes to infinity.

    Attributes
    ----------
    kind : str
        ``exponential`` (a rate a block), ``stretched`` (the logarithm grows like :math:`L^\kappa`,
        :math:`0 < \kappa < 1`, rate 0), ``power`` (:math:`L^\kappa`, rate 0), ``logarithmic``
        (:math:`(\log L)^\kappa`, rate 0), ``bounded`` (a limit), or ``open`` (no rule says).
    annealed : float or None
        :math:`\frac12\log G` a block; None if the kind is ``open``.
    power : float or None
        :math:`\kappa`, where the kind has one.
    gap : float or None
        :math:`\frac14\sigma^2`, what Jensen's inequality takes off at this width; None where the
        spread is not known.
    """

    kind: str
    annealed: float | None
    power: float | None = None
    gap: float | None = None

    @property
    def quenched(self) -> float | None:
        """Return the exponent of one stack, up to the O(1/d) by which E Z is not G."""
        if self.annealed is None or self.gap is None:
            return None
        return self.annealed - self.gap


def exponent(law: DepthLaw, *, width: int = 128, hidden: int | None = None) -> Exponent:
    """Return what the gradient ratio does as the number of blocks goes to infinity.

    Parameters
    ----------
    law : DepthLaw
        The law.
    width, hidden : int
        d and f, for the gap of Jensen's inequality.

    Raises
    ------
    DomainError, UnknownNodeError, WeightError
        As for `DepthLaw.predict`.

    Examples
    --------
    >>> exponent(DepthLaw("pre")).power, exponent(DepthLaw("post")).kind
    (1.0, 'exponential')
    """
    kind, rate, power = _kind(law)
    gap = _gap(law, width, hidden) if kind == "exponential" else None
    return Exponent(kind, rate, power, 0.0 if rate == 0 and kind != "exponential" else gap)


def _kind(law: DepthLaw) -> tuple[str, float | None, float | None]:
    if law.open_state or law.recursion is None:
        return "open", None, None
    v = sp.Symbol("v", positive=True)
    phi, gain = (expr.subs(d, sp.Integer(1024)) for expr in law.recursion)
    added = tidy(phi - v)
    scalars = law._scalars(law.placement, l, L)
    if any(sp.sympify(value).has(L) for name, value in scalars.items() if name != "L"):
        return _family(law)
    if not phi.has(v) and not phi.has(l) and not gain.has(l):
        return "exponential", 0.5 * math.log(gain.subs(v, phi)), None
    if not added.has(v):
        back = tidy((gain - 1) * v)
        if added == 0 and back == 0:
            return "bounded", 0.0, None
        share = tidy(back / added) if added != 0 else sp.oo
        if share.is_number and not added.has(l):
            return "power", 0.0, float(share)
        if share.is_number and tidy(added * l).is_number:
            return "logarithmic", 0.0, float(share)
    if not gain.has(v) and not gain.has(l) and gain.is_number:
        return "exponential", 0.5 * math.log(gain), None
    return "open", None, None


def _family(law: DepthLaw) -> tuple[str, float | None, float | None]:
    """Return what the ratio does as L grows where a block depends on the number of blocks."""
    solved = law.solution
    if solved is None or solved.gradient is None or solved.gradient.has(sp.Sum, sp.Piecewise):
        return "open", None, None
    ratio = sp.expand_log(sp.log(solved.explicit()[1]), force=True)
    ratio = ratio.replace(
        lambda e: isinstance(e, sp.log) and e.args[0].func is sp.gamma, _log_gamma
    )
    with mpmath.workdps(DIGITS):
        at = sp.lambdify(L, ratio.subs(d, 1024), "mpmath")
        sizes = [abs(float(at(mpmath.mpf(depth)))) for depth in FAMILY]
    change = [abs(sizes[k + 1] - sizes[k]) for k in (0, 1)]
    if change[1] <= SETTLED * max(sizes[1], 1.0):
        return "bounded", 0.0, None
    doubled = [math.log(FAMILY[k + 1] / FAMILY[k]) for k in (0, 1)]
    slopes = [change[k] / doubled[k] for k in (0, 1)]
    if abs(slopes[1] - slopes[0]) <= SETTLED * slopes[0]:
        return "power", 0.0, slopes[1]
    power = math.log(sizes[2] / sizes[1]) / doubled[1]
    return ("stretched", 0.0, power) if 0.01 < power < 0.99 else ("open", None, None)


def _log_gamma(expr: sp.Expr) -> sp.Expr:
    return sp.loggamma(expr.args[0].args[0])


def _gap(law: DepthLaw, width: int, hidden: int | None) -> float | None:
    try:
        first, second = (
            log_spread(law, law.predict(depth, width=width, hidden=hidden)).gradient ** 2
            for depth in (DEEP, 2 * DEEP)
        )
    except (UnknownNodeError, DomainError):
        return None
    return (second - first) / DEEP / 4


class JensenGap(NamedTuple):
    """Half of log of mean, half of mean of log, and their distance, with standard errors."""

    annealed: float
    annealed_error: float
    quenched: float
    quenched_error: float
    gap: float
    gap_error: float


def jensen_gap(log_factors: np.ndarray) -> JensenGap:
    r"""Return both exponents of factors Z from their logarithms, one row a stack.

    .. math:: \tfrac12\log\overline Z, \qquad \tfrac12\overline{\log Z}, \qquad
        \tfrac12\bigl(\log\overline Z - \overline{\log Z}\bigr)

    with standard errors over the rows.

    Parameters
    ----------
    log_factors : array (stacks, blocks)
        Natural logarithms.

    Raises
    ------
    DomainError
        If there are fewer than two rows, or a value is not finite.
    """
    logs = np.asarray(log_factors, dtype=float)
    if logs.ndim != 2 or len(logs) < 2 or not np.all(np.isfinite(logs)):
        raise DomainError(
            f"log_factors: expected finite values of shape (stacks >= 2, blocks), got shape "
            f"{logs.shape}"
        )
    annealed = 0.5 * np.log(np.exp(logs).mean(axis=1))
    quenched = 0.5 * logs.mean(axis=1)
    found: list[float] = []
    for values in (annealed, quenched, annealed - quenched):
        found += [float(values.mean()), float(stats.sem(values))]
    return JensenGap(*found)


def measured_gap(
    law: DepthLaw, layers: int, *, width: int, stacks: int = 4, seed: int = 0
) -> JensenGap:
    """Measure both exponents on stacks of random weights, block by block.

    Parameters
    ----------
    law : DepthLaw
        A law of one token and one stream at the initialisation ``lecun``.
    layers : int
        Blocks of every stack, of which a quarter at either end is left out.
    width, stacks, seed : int
        Features, number of stacks, and the first seed.

    Raises
    ------
    DomainError
        If the law has another initialisation, or several tokens or streams.
    """
    if law.init != "lecun" or law.tokens != 1:
        raise DomainError(
            f"law: expected one token at the initialisation lecun, got {law.tokens} at {law.init}"
        )
    if law.key in STREAMS:
        raise DomainError(f"law: expected one stream, got {law.placement}")
    rows = []
    for one in range(seed, seed + stacks):
        stack = placed_stack(
            law.placement,
            layers,
            width=width,
            norm=law.norm,
            sublayer=law.sublayers[0],
            seed=one,
            values=law.values,
        )
        cotangent = np.random.default_rng((one, 2)).standard_normal(width)
        logs = stack.gradient_log_norms(random_state(width, 1, one), cotangent)
        rows.append(2 * (logs[:-1] - logs[1:])[layers // 4 : layers - layers // 4])
    return jensen_gap(np.array(rows))
