"""The path-length histogram of a stack's Jacobian."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.render.extras import load
from derive.render.plots import curve_style, two_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["paths_figure"]

# Okabe and Ito's palette, with hatches that tell the bars apart in grey.
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "")


def paths_figure(rows: Iterable[Mapping[str, Any]]) -> Figure:
    r"""Return a figure with two panels: shares by path length, norms by path length.

    Parameters
    ----------
    rows : iterable of mappings
        Each as `derive.depth.paths.expansion_row` gives it, with ``placement``. On the left are the
        overlaps :math:`\langle S_k, M\rangle/\lVert M\rVert^2` as bars, with a bar for all longer
        paths, on the right the spectral norms of :math:`S_k`.

    Raises
    ------
    ShapeError
        If there is no row.
    MissingExtraError
        If matplotlib is not installed.
    """
    rows, figure, left, right = two_panels(rows)
    width = 0.8 / len(rows)
    longest = max(row["order"] for row in rows)
    for k, row in enumerate(rows):
        label = f"{row['placement']}, L = {row['layers']}".replace("$", r"\$")
        colour, hatch = curve_style(k)["color"], _HATCHES[k % len(_HATCHES)]
        lengths = np.array([r["length"] for r in row["lengths"]], dtype=float)
        shares = [r["overlap"] for r in row["lengths"]]
        if row["order"] < row["longest"]:
            lengths, shares = np.append(lengths, longest + 1.0), [*shares, row["rest_overlap"]]
        heights = np.asarray(shares, dtype=float)
        left.bar(
            lengths + (k - (len(rows) - 1) / 2) * width,
            np.where(np.isfinite(heights), heights, 0.0),
            width,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=label,
        )
        logs = np.array([r["log_norm"] for r in row["lengths"]], dtype=float) / np.log(10)
        right.plot(
            np.arange(len(logs)),
            np.where(np.isfinite(logs), logs, np.nan),
            color=colour,
            marker="osD^vPX"[k % 7],
            markersize=4,
            linewidth=1.6,
            label=label,
        )
    ticker = load("matplotlib.ticker", "plot")
    if any(row["order"] < row["longest"] for row in rows):
        ticks = list(range(0, longest + 1, max(1, (longest + 1) // 8)))
        left.set_xticks([*ticks, longest + 1], [*map(str, ticks), f">{longest}"])
    else:
        left.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    left.axhline(0.0, color="#888888", linewidth=0.8)
    left.set_ylabel(r"$\langle S_k, M\rangle/\Vert M\Vert^2$")
    right.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    right.yaxis.set_major_formatter(ticker.FuncFormatter(lambda v, _: rf"$10^{{{v:g}}}$"))
    right.set_ylabel(r"$\Vert S_k\Vert_2$")
    for axes in (left, right):
        axes.set_xlabel("path length $k$ (branches taken)")
        axes.grid(True, color="#888888", alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
    return figure
