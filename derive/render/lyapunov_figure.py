r"""Lyapunov exponents with their error bars, and how the estimates settle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.render.extras import load
from derive.render.plots import curve_style, two_panels

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
        -inf, and those far below all others, are in the legend; error bars are two standard errors,
        and the confidence interval on the right.

    Raises
    ------
    ShapeError
        If there is no row.
    MissingExtraError
        If matplotlib is not installed.
    """
    rows, figure, left, right = two_panels(rows)
    for k, row in enumerate(rows):
        label = str(row["placement"]).replace("$", r"\$")
        style = {**curve_style(k), "markersize": 4, "linewidth": 1.2}
        exponents = np.asarray(row["exponents"], dtype=float)
        shown, notes = _drawn(exponents)
        left.errorbar(
            np.arange(1, len(exponents) + 1)[shown],
            exponents[shown],
            yerr=2 * np.nan_to_num(np.asarray(row["stderr"], dtype=float))[shown],
            markevery=max(1, int(shown.sum()) // 32),
            capsize=2,
            label="; ".join([label, *notes]),
            **style,
        )
        running, rate = row["running"], row["rate"]
        top = np.asarray(running["top"], dtype=float)
        right.plot(running["layers"], np.where(np.isfinite(top), top, np.nan), label=label, **style)
        if np.isfinite([rate["low"], rate["high"]]).all():
            right.vlines(row["layers"], rate["low"], rate["high"], color=style["color"])
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


def _drawn(exponents: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return which exponents to draw, and words for those that are -inf or far below the others.

    Far is a gap of three times the range above it: one that would flatten the others.
    """
    shown, notes = np.isfinite(exponents), []
    finite = exponents[shown]
    for k in range(2, len(finite)):
        if finite[k - 1] - finite[k] > 3 * (finite[0] - finite[k - 1]) > 0:
            far = finite[k:]
            shown = exponents >= finite[k - 1]
            notes.append(
                f"{len(far)} at {far.mean():.3g}"
                if np.ptp(far) < 0.1
                else f"{len(far)} from {far[-1]:.3g} to {far[0]:.3g}"
            )
            break
    nulls = int(np.isneginf(exponents).sum())
    return shown, notes + ([rf"{nulls} at $-\infty$"] if nulls else [])


def _finish(axes: Axes) -> None:
    axes.axhline(0.0, color="#888888", linewidth=0.8)
    axes.grid(True, color="#888888", alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
