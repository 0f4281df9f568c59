r"""How often the intervals of stacks hold the laws, over a whole table of cases.

Every cell is measured with seeds of its own, so that cells are independent; a rate is of one
quantity over cells, and its interval is Clopper and Pearson's. An interval without spread (a mean
square that a norm sets, a gradient that is zero) is no coin that is tossed, and is counted apart.

**Many looks.** Of many intervals of 95 % some miss by chance. A law is called failing when a miss
is confirmed: m misses are measured again with fresh seeds, at :math:`1 - 0.05/m`, so that the
chance that any law is called failing without reason is at most 5 % (Bonferroni). The confirmed are
measured at a larger width: what goes away there is the finite width, which the laws leave out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from derive.blocks.placements import all_placements
from derive.errors import DeriveError, DomainError
from derive.laws.law import DepthLaw
from derive.laws.measure import ROUNDING, Estimate, Measurement, measure
from derive.laws.moments import Moments

__all__ = ["Case", "Confirmation", "Look", "Rate", "cases", "confirm", "deep_cases", "look", "rate"]

SUBLAYERS = (("ffn:relu",), ("ffn:gelu",), ("attention",), ("attention", "ffn:relu"))
NORMS = ("layernorm", "rmsnorm")
CORRELATIONS = ((0.0, 0.0), (0.0, 1.0), (0.5, 0.0), (0.5, 1.0))
"""Of tokens and of gradients: independent or correlated, independent or shared."""
VALUES = {
    "admin": {"omega": 1.5},
    "mhc": {"a": 0.1, "b1": 1.0, "b2": 0.5, "c1": 0.5, "c2": 0.5},
}
"""Scalars without a value at the start of training."""
SAME = {"float64": ROUNDING, "float32": 1e-5}
"""Relative distance at which numbers count as the same."""
STRIDE = 10_000
"""Seeds between two cases."""


@dataclass(frozen=True)
class Case:
    """A law and the stacks that it is held against.

    Attributes
    ----------
    law : DepthLaw
        The law.
    layers, width, hidden : int
        L, d and f.
    correlation, gradient_correlation : float
        Of tokens and of the gradient at the output.
    seeds, seed : int
        Number of stacks and the first seed.
    dtype : str
        Of the stacks.
    """

    law: DepthLaw
    layers: int
    width: int
    hidden: int
    correlation: float = 0.0
    gradient_correlation: float = 0.0
    seeds: int = 16
    seed: int = 0
    dtype: str = "float64"

    def measure(self, **options: Any) -> Measurement:
        """Measure the stacks, with those of PyTorch; options as for `derive.laws.measure`."""
        return measure(
            self.law,
            self.layers,
            width=self.width,
            hidden=self.hidden,
            correlation=self.correlation,
            gradient_correlation=self.gradient_correlation,
            seeds=self.seeds,
            seed=self.seed,
            dtype=self.dtype,
            backend="torch",
            weights=True,
            **options,
        )


@dataclass(frozen=True)
class Look:
    """One interval beside its law.

    Attributes
    ----------
    case : Case
        The stacks.
    quantity : str
        ``growth``, ``gradient_ratio``, or a matrix of the first block that has it, as ``W_2``.
    law : float
        What the law says.
    estimate : Estimate
        What the stacks do.
    """

    case: Case
    quantity: str
    law: float
    estimate: Estimate

    @property
    def has_spread(self) -> bool:
        """Whether seeds differ by more than rounding."""
        return self.estimate.spread > SAME[self.case.dtype] ** 2

    @property
    def covered(self) -> bool:
        """Whether the interval holds the law; without spread, whether it is that number."""
        if self.has_spread:
            return self.estimate.covers(self.law)
        return abs(self.estimate.mean - self.law) <= SAME[self.case.dtype] * abs(self.law)

    @property
    def deviation(self) -> float:
        """Return measured over law, less 1; 0 where both are 0."""
        return self.estimate.mean / self.law - 1 if self.law else 0.0


@dataclass(frozen=True)
class Confirmation:
    """A miss, measured again.

    Attributes
    ----------
    first, again : Look
        The miss, and the same with fresh seeds at the corrected confidence.
    wider : Look or None
        At a larger width, where the second look misses as well.
    """

    first: Look
    again: Look
    wider: Look | None = field(default=None)

    @property
    def failed(self) -> bool:
        """Whether the law fails beyond chance at the width of the case."""
        return not self.again.covered

    @property
    def reason(self) -> str:
        """Return why, as far as a larger width tells."""
        if self.wider is None:
            return "chance"
        near, far = self.again.deviation, self.wider.deviation
        if abs(far) < abs(near) / 2:
            return "finite width"
        return "not explained by the width"


@dataclass(frozen=True)
class Rate:
    """How many of the intervals hold the law, with a 95 % interval for the rate."""

    held: int
    total: int
    low: float
    high: float

    def __str__(self) -> str:
        if not self.total:
            return "-"
        share, low, high = (100 * x for x in (self.held / self.total, self.low, self.high))
        return f"{self.held} of {self.total}: {share:.1f} % ({low:.1f} to {high:.1f})"


def rate(looks: Iterable[Look]) -> Rate:
    """Return the rate of coverage of looks that have a spread.

    Source of the interval: Clopper and Pearson, *Biometrika* 26, 1934; exact for independent looks.
    """
    held = [one.covered for one in looks if one.has_spread]
    if not held:
        return Rate(0, 0, 0.0, 1.0)
    found = stats.binomtest(sum(held), len(held)).proportion_ci(0.95, method="exact")
    return Rate(sum(held), len(held), float(found.low), float(found.high))


def cases(
    *,
    placements: Sequence[str] = (),
    layers: int = 6,
    width: int = 128,
    hidden: int | None = None,
    tokens: int = 4,
    seeds: int = 16,
    seed: int = 0,
) -> list[Case]:
    """Return the table: placements, norms, sublayers, correlations, with seeds of their own.

    Parameters
    ----------
    placements : sequence of str
        All of the catalogue unless said.
    layers, width, hidden, tokens : int
        L, d, f (2 d unless said) and n.
    seeds, seed : int
        Stacks a case, and the first seed of the first case.

    Raises
    ------
    UnknownNameError
        If a placement is not known.
    DomainError
        If there are too many seeds for cases to have their own, or too few.
    """
    if not 2 <= seeds <= STRIDE // 10:
        raise DomainError(f"seeds: expected 2 to {STRIDE // 10}, got {seeds}")
    found: list[Case] = []
    for placement in placements or all_placements():
        for norm in NORMS:
            for sublayers in SUBLAYERS:
                values = VALUES.get(placement.lower())
                law = DepthLaw(placement, norm, sublayers, tokens=tokens, values=values)
                for correlation, gradient_correlation in CORRELATIONS:
                    found.append(
                        Case(
                            law,
                            layers,
                            width,
                            2 * width if hidden is None else hidden,
                            correlation,
                            gradient_correlation,
                            seeds,
                            seed + STRIDE * len(found),
                        )
                    )
    return found


def deep_cases(
    *,
    widths: Sequence[int] = (64, 256, 1024),
    depths: Sequence[int] = (1, 6, 24, 96, 192),
    seeds: Sequence[int] = (32, 16, 4),
    seed: int = 0,
) -> list[Case]:
    """Return stacks of real sizes in float32, f = d, one token (a decoder two).

    Parameters
    ----------
    widths, depths : sequence of int
        d and L.
    seeds : sequence of int
        Stacks for each width.
    seed : int
        The first seed.
    """
    together = Moments(1.0, 1.0)
    laws = [DepthLaw(name) for name in ("post", "pre", "sandwich", "lns")]
    laws.append(DepthLaw("N(x + C(x))", sublayers=("attention",), tokens=2, memory=together))
    return [
        Case(law, depth, width, width, seeds=count, seed=seed, dtype="float32")
        for width, count in zip(widths, seeds, strict=True)
        for law in laws
        for depth in depths
    ]


def look(case: Case, **options: Any) -> list[Look]:
    """Measure a case and return its looks; none where it has no law.

    Parameters
    ----------
    case : Case
        The case.
    **options
        ``confidence``, as for `derive.laws.measure.measure`.
    """
    try:
        found = case.measure(**options)
    except DeriveError:
        return []
    law = found.predicted
    looks = [
        Look(case, "growth", law.growth, found.growth),
        Look(case, "gradient_ratio", law.gradient_ratio, found.gradient_ratio),
    ]
    seen: set[str] = set()
    for estimates, values in zip(found.weights, law.weights, strict=True):
        top = max(values.values())
        for name in sorted(set(estimates) - seen):
            value = values[name] if values[name] > 1e-12 * top else 0.0
            looks.append(Look(case, name, value, estimates[name]))
        seen |= set(estimates)
    return looks


def confirm(
    looks: Iterable[Look], *, times: int = 3, wider: int = 4, fresh: int = STRIDE // 2
) -> Iterator[Confirmation]:
    r"""Measure misses again, with fresh seeds and more of them, at :math:`1 - 0.05/m`.

    Parameters
    ----------
    looks : iterable of Look
        All looks; the m misses among them are measured again.
    times : int
        How many times as many seeds.
    wider : int
        How many times as wide the stacks are that confirmed misses are measured at.
    fresh : int
        What is added to the first seed.
    """
    missed = [one for one in looks if not one.covered]
    confidence = 1 - 0.05 / max(len(missed), 1)
    again: dict[int, list[Look]] = {}
    larger: dict[int, list[Look]] = {}
    for one in missed:
        key = id(one.case)
        if key not in again:
            more = replace(one.case, seeds=times * one.case.seeds, seed=one.case.seed + fresh)
            again[key] = look(more, confidence=confidence)
        second = _of(again[key], one.quantity)
        if second.covered:
            yield Confirmation(one, second)
            continue
        if key not in larger:
            case = second.case
            grown = replace(case, width=wider * case.width, hidden=wider * case.hidden)
            larger[key] = look(grown, confidence=confidence)
        yield Confirmation(one, second, _of(larger[key], one.quantity))


def _of(looks: Iterable[Look], quantity: str) -> Look:
    return next(one for one in looks if one.quantity == quantity)


def bias(looks: Iterable[Look]) -> tuple[float, float]:
    """Return the mean of log(measured/law) over looks with a spread, and its standard error."""
    logs = [np.log1p(one.deviation) for one in looks if one.has_spread and one.law > 0]
    if len(logs) < 2:
        return float("nan"), float("nan")
    return float(np.mean(logs)), float(np.std(logs, ddof=1) / np.sqrt(len(logs)))
