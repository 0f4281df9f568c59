"""A task at one size: its methods, run in turn on the same numbers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from derive.bench.machine import peak_megabytes
from derive.bench.rows import OURS, Row

__all__ = ["TOLERANCE", "Elsewhere", "Problem", "measure"]

# Seconds from which on a method is slow.
_SLOW = 2.0
TOLERANCE = 1e-12
"""Largest relative difference in float64: two evaluations of the same sum in another order."""


@dataclass(frozen=True)
class Problem:
    """One task at one size.

    Attributes
    ----------
    task, size : str
        Names of the row.
    methods : mapping from str to callable
        Each returns an array; `OURS` is among them.
    missing : mapping from str to str
        Peers that cannot run, with the reason.
    flops : float, optional
        Operations that the closed form needs.
    memory : bool
        Whether the peak is worth telling: not for times below a millisecond.
    tolerance : float
        Largest relative difference at which two results agree.
    """

    task: str
    size: str
    methods: Mapping[str, Callable[[], Any]]
    missing: Mapping[str, str] = field(default_factory=dict)
    flops: float | None = None
    memory: bool = True
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Elsewhere:
    """A method that was timed in a process of its own: it is not run again."""

    seconds: float

    def __call__(self) -> None:
        """Do nothing."""


def difference(a: Any, b: Any) -> float:
    """Return the largest difference relative to the largest entry."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300))


def measure(problem: Problem, *, rounds: int = 5, least: float = 0.02) -> list[Row]:
    """Check that the methods agree, then time them in turn.

    Parameters
    ----------
    problem : Problem
        What to measure.
    rounds : int
        Rounds; in each every method runs once, or as often as `least` seconds take. The median of
        the rounds counts.
    least : float
        Seconds of one sample: the first run decides how many calls it is.

    Returns
    -------
    list of Row
        The closed form first, then the peers, then those that are missing.
    """
    results = {name: work() for name, work in problem.methods.items()}
    ours = results[OURS]
    # A method that returns nothing has nothing to compare.
    agree = {
        name: difference(ours, result) <= problem.tolerance
        for name, result in results.items()
        if name != OURS and result is not None
    }
    first = {name: _timed(work, 1) for name, work in problem.methods.items()}
    calls = {n: max(1, min(1000, round(least / max(s, 1e-7)))) for n, s in first.items()}
    a = np.random.default_rng(0).random((1024, 1024))
    out = np.empty_like(a)
    times: dict[str, list[float]] = {name: [] for name in problem.methods}
    dgemm: list[float] = []
    # Of methods that take seconds, three samples are enough: that of the first pass is one.
    slow = {name for name, seconds in first.items() if seconds > _SLOW}
    for name in slow:
        times[name].append(first[name])
    for number in range(rounds):
        if problem.flops is not None:
            dgemm.append(_timed(lambda: np.matmul(a, a, out=out), 1))
        for name, work in problem.methods.items():
            if name not in slow or number < 2:
                times[name].append(_timed(work, calls[name]))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, work in problem.methods.items():
        if isinstance(work, Elsewhere):
            medians[name] = work.seconds
    peers = [seconds for name, seconds in medians.items() if name != OURS]
    rate = 2 * 1024**3 / statistics.median(dgemm) if dgemm else None
    rows = []
    for name, work in problem.methods.items():
        rows.append(
            Row(
                task=problem.task,
                size=problem.size,
                method=name,
                median_s=medians[name],
                ratio_to_best_peer=min(peers) / medians[name] if peers else None,
                fraction_of_dgemm=(
                    problem.flops / medians[name] / rate if problem.flops and rate else None
                ),
                peak_mb=peak_megabytes(work) if problem.memory else None,
                agrees=(all(agree.values()) if agree else None)
                if name == OURS
                else agree.get(name),
            )
        )
    rows += [
        Row(problem.task, problem.size, f"{name}: {why}", None, None, None, None, None)
        for name, why in problem.missing.items()
    ]
    return rows


def _timed(work: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - start) / calls
