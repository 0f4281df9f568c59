"""One measurement a row, and what is read off many of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["OURS", "Row", "exponents", "losses", "table"]

OURS = "closed form"
"""The method that the others are peers of."""


@dataclass(frozen=True)
class Row:
    """What one method took for one task at one size.

    Attributes
    ----------
    task, size, method : str
        What was done, how large, and by whom.
    median_s : float or None
        Median of the seconds, the methods run in turn; None if the method did not run.
    ratio_to_best_peer : float or None
        Seconds of the fastest peer over those of this method: above 1, it is faster than the peers.
    fraction_of_dgemm : float or None
        Operations that the closed form needs, per second, over those of a product of matrices
        measured in the same run.
    peak_mb : float or None
        Growth of resident memory during one run, where the system tells it.
    agrees : bool or None
        Whether the result is that of the others to 1e-12; None where there was none to compare.
    """

    task: str
    size: str
    method: str
    median_s: float | None
    ratio_to_best_peer: float | None
    fraction_of_dgemm: float | None
    peak_mb: float | None
    agrees: bool | None

    def as_dict(self) -> dict[str, Any]:
        """Return the row with its eight keys."""
        return asdict(self)


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Return the rows as text, a header first."""
    header = ["task", "size", "method", "median", "vs best peer", "of dgemm", "peak MB", "agrees"]
    return [header] + [
        [
            r.task,
            r.size,
            r.method,
            _seconds(r.median_s),
            "" if r.ratio_to_best_peer is None else f"{r.ratio_to_best_peer:.2f}x",
            "" if r.fraction_of_dgemm is None else f"{r.fraction_of_dgemm:.2f}",
            "" if r.peak_mb is None else f"{r.peak_mb:.0f}",
            {True: "yes", False: "NO", None: ""}[r.agrees],
        ]
        for r in rows
    ]


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def losses(rows: Iterable[Row]) -> list[str]:
    """Return a line for every task in which a peer is faster than the closed form."""
    return [
        f"loss: {r.task}, {r.size}: {1 / r.ratio_to_best_peer:.2f}x the time of the best peer"
        for r in rows
        if r.method == OURS and r.ratio_to_best_peer is not None and r.ratio_to_best_peer < 1
    ]


def exponents(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the exponent p of seconds ~ size^p by least squares, None for less than 2 sizes."""
    kept = [(math.log(size), math.log(seconds)) for size, seconds in points if seconds > 0]
    if len({size for size, _ in kept}) < 2:
        return None
    mean_x = sum(a for a, _ in kept) / len(kept)
    mean_y = sum(b for _, b in kept) / len(kept)
    spread = sum((a - mean_x) ** 2 for a, _ in kept)
    return sum((a - mean_x) * (b - mean_y) for a, b in kept) / spread
