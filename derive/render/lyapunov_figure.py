r"""Lyapunov exponents with their error bars, and how the estimates settle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.errors import ShapeError
from derive.render.extras import load
from derive.render.plots import curve_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["lyapunov_figure"]


def lyapunov_figure(rows: Iterable[Mapping[str, Any]]) -> Figure:
    r"""Return a figure with two panels: the exponents by rank, the running estimate of the top one.

    Parameters
    ----------
    rows : iterable of mappings
        Each as `derive.depth.asymptotics.lyapunov_row` gives it, with ``placement``. Exponents of
        -inf are counted in the legend; error bars are two standard errors.

    Raises
    ------
    ShapeError
        If there is no row.
    MissingExtraError
        If matplotlib is not installed.
    """
    rows = list(rows)
    if not rows:
        raise ShapeError("rows: expected at least one stack, got none")
    figure = load("matplotlib.figure", "plot").Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for k, row in enumerate(rows):
        label = str(row["placement"]).replace("$", r"\$")
        style = {**curve_style(k), "markersize": 4, "linewidth": 1.2}
        exponents = np.asarray(row["exponents"], dtype=float)
        finite = np.isfinite(exponents)
        nulls = int(row["null_directions"])
        left.errorbar(
            np.arange(1, len(exponents) + 1)[finite],
            exponents[finite],
            yerr=2 * np.nan_to_num(np.asarray(row["stderr"], dtype=float))[finite],
            markevery=max(1, int(finite.sum()) // 32),
            capsize=2,
            label=label + (rf", and {nulls} at $-\infty$" if nulls else ""),
            **style,
        )
        running = row["running"]
        top = np.asarray(running["top"], dtype=float)
        right.plot(running["layers"], np.where(np.isfinite(top), top, np.nan), label=label, **style)
    left.set_xlabel("rank $i$")
    left.set_ylabel(r"exponent $\lambda_i$ (natural log per layer)")
    left.xaxis.set_major_locator(load("matplotlib.ticker", "plot").MaxNLocator(integer=True))
    right.set_xlabel("layers averaged over")
    right.set_ylabel(r"running estimate of $\lambda_1$")
    if any(row["running"]["layers"] for row in rows):
        right.set_xscale("log")
    for axes in (left, right):
        _finish(axes)
    return figure


def _finish(axes: Axes) -> None:
    axes.axhline(0.0, color="#888888", linewidth=0.8)
    axes.grid(True, color="#888888", alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
