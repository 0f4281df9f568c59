"""Panels of figures that a paper can print: size, type, laws as lines, stacks as points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.laws.measure import Estimate
from derive.render.extras import load
from derive.render.plots import curve_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Plate", "Sampling", "canvas", "law_line", "limit", "paper_style", "points"]

COLUMN = 3.4
"""Width of a column of a two-column paper, in inches."""
HEIGHT = 2.55
STYLE = {
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.4,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.borderaxespad": 0.3,
    "legend.labelspacing": 0.3,
}


@dataclass(frozen=True)
class Sampling:
    """How stacks are drawn for the points.

    Attributes
    ----------
    width : int
        d.
    seeds : int
        Number of stacks of a point, at least 2.
    depths : tuple of int
        Numbers of blocks at which points stand.
    """

    width: int = 192
    seeds: int = 12
    depths: tuple[int, ...] = (2, 6, 16, 40)


@dataclass(frozen=True)
class Plate:
    """One figure of the gallery.

    Attributes
    ----------
    name : str
        Of the file, without suffix.
    title : str
        A headline.
    shows : str
        What is seen.
    source : str
        Which laws the lines are, and where the points are from.
    draw : callable
        From a `Sampling` to the figure.
    """

    name: str
    title: str
    shows: str
    source: str
    draw: Callable[[Sampling], Figure]


@contextmanager
def paper_style() -> Iterator[None]:
    """Apply the type sizes and lines of a printed column."""
    with load("matplotlib", "plot").rc_context(STYLE):
        yield


def canvas(panels: int = 1, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels of one column's width side by side.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    size = (COLUMN * panels, height)
    figure = load("matplotlib.figure", "plot").Figure(figsize=size, layout="constrained")
    return figure, list(np.ravel(figure.subplots(1, panels)))


def law_line(axes: Axes, k: int, x: Any, y: Any, label: str | None = None) -> None:
    """Draw a law as the k-th line."""
    style = {**curve_style(k), "marker": "", "linewidth": 1.2}
    axes.plot(x, y, label=label, **style)


def points(axes: Axes, k: int, x: Sequence[float], found: Sequence[Estimate]) -> None:
    """Draw measured means with their intervals, in the colour of the k-th line."""
    means = np.array([one.mean for one in found])
    ends = np.array([(one.low, one.high) for one in found]).T
    style = {**curve_style(k), "linestyle": "none", "markersize": 3.2, "linewidth": 0.8}
    axes.errorbar(
        x, means, yerr=np.maximum(0, np.stack([means - ends[0], ends[1] - means])),
        capsize=1.6, capthick=0.6, markeredgecolor="white", markeredgewidth=0.3, **style,
    )  # fmt: skip


def limit(axes: Axes, level: float, label: str, *, left: bool = False) -> None:
    """Draw a limit: a grey line, with its name above its right or left end."""
    axes.axhline(level, color="#555555", linewidth=0.7, linestyle=(0, (4, 2)))
    place = (0.01, level) if left else (0.99, level)
    axes.annotate(
        label, place, xycoords=("axes fraction", "data"), ha="left" if left else "right",
        fontsize=6.5, va="bottom", color="#555555", xytext=(0, 1.5), textcoords="offset points",
    )  # fmt: skip
