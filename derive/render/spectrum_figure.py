r"""Figures of the singular spectrum over depth, and of how tokens depend on tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.errors import ShapeError
from derive.render.extras import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["spectrum_figure", "token_map_figure"]

_COLUMNS = 3
_LINES = 128
_BELOW = 4  # decades shown below both rounding and the middle value
_LOG_EPS = float(np.log10(np.finfo(float).eps))


def spectrum_figure(rows: Iterable[Mapping[str, Any]]) -> Figure:
    r"""Return a figure of all singular values over depth, one panel a stack.

    Every singular value (of more than 128, as many of them, evenly spaced) is a line over l, in
    powers of ten; the largest, the middle and the smallest nonzero one are drawn strongly. The
    dashed line is machine epsilon times the largest: what lies below it is noise in a product kept
    as one matrix. Exact null directions are no lines; their number stands in the title. Values far
    below both that line and the middle one are cut off, and the legend says how low they go.

    Parameters
    ----------
    rows : iterable of mappings
        Each as `derive.depth.spectrum.spectrum_row` gives it, with ``drawn``.

    Raises
    ------
    ShapeError
        If there is no row.
    MissingExtraError
        If matplotlib is not installed.
    """
    rows = list(rows)
    panels, figure = _panels(rows)
    for axes, row in zip(panels, rows, strict=True):
        depths = np.array([point["depth"] for point in row["drawn"]], dtype=float)
        logs = np.array([point["log_singular_values"] for point in row["drawn"]], dtype=float)
        _draw_spectrum(axes, depths, logs / np.log(10))
        null = int(np.isneginf(logs).sum(axis=1).max())
        _title(axes, row, f", {null} null" if null else "")
        axes.set_xlabel(r"depth $\ell$ (number of blocks)")
    labels = {
        "dx_l/dx_0": r"\partial x_\ell/\partial x_0",
        "dx_L/dx_l": r"\partial x_L/\partial x_\ell",
    }
    panels[0].set_ylabel(rf"singular values of ${labels[rows[0]['product']]}$")
    return figure


def token_map_figure(rows: Iterable[Mapping[str, Any]]) -> Figure:
    r"""Return heat maps of :math:`\lVert\partial x_L[i]/\partial x_0[j]\rVert_F`, one a stack.

    Parameters
    ----------
    rows : iterable of mappings
        Each as `derive.depth.spectrum.spectrum_row` gives it, with ``token_log_norms``. A block
        that is zero is left white.

    Raises
    ------
    ShapeError
        If there is no row.
    MissingExtraError
        If matplotlib is not installed.
    """
    rows = list(rows)
    panels, figure = _panels(rows)
    for axes, row in zip(panels, rows, strict=True):
        logs = np.array(row["token_log_norms"], dtype=float) / np.log(10)
        finite = np.where(np.isfinite(logs), logs, np.nan)
        image = axes.imshow(finite, cmap="viridis", interpolation="nearest")
        figure.colorbar(image, ax=axes, shrink=0.8, label=r"$\log_{10}$ of the Frobenius norm")
        _title(axes, row, "")
        axes.set_xlabel("input token $j$")
        _whole_numbers(axes.xaxis)
        _whole_numbers(axes.yaxis)
    panels[0].set_ylabel("output token $i$")
    return figure


def _panels(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Axes], Figure]:
    if not rows:
        raise ShapeError("rows: expected at least one stack, got none")
    across = min(len(rows), _COLUMNS)
    down = -(-len(rows) // across)
    figure = load("matplotlib.figure", "plot").Figure(
        figsize=(1.5 + 3.7 * across, 3.8 * down), layout="constrained"
    )
    panels = list(np.ravel(figure.subplots(down, across)))
    for spare in panels[len(rows) :]:
        spare.set_visible(False)
    return panels[: len(rows)], figure


def _draw_spectrum(axes: Axes, depths: np.ndarray, logs: np.ndarray) -> None:
    finite = np.where(np.isfinite(logs), logs, np.nan)
    lines = np.unique(np.linspace(0, logs.shape[1] - 1, min(logs.shape[1], _LINES)).round())
    axes.plot(depths, finite[:, lines.astype(int)], color="#56B4E9", linewidth=0.5, alpha=0.7)
    axes.plot(depths, finite[:, 0], color="#D55E00", linewidth=1.6, label="largest")
    counts = np.isfinite(logs).sum(axis=1)
    along = np.arange(len(depths))
    middle, smallest = (
        finite[along, np.clip(place, 0, logs.shape[1] - 1)] for place in (counts // 2, counts - 1)
    )
    rounding = finite[:, 0] + _LOG_EPS
    shown = finite[np.isfinite(finite)]
    note = ""
    if shown.size:
        low, high = float(shown.min()), float(shown.max())
        floor = min(float(np.nanmin(rounding)), float(np.nanmin(middle))) - _BELOW
        if low < floor:  # a few values that vanish fast do not flatten the others
            note = rf" (to $10^{{{low:.0f}}}$)"
            low = floor
        margin = 0.05 * (high - low) + 0.3
        axes.set_ylim(low - margin, high + margin)
    axes.plot(depths, middle, color="#0072B2", linestyle="-.", linewidth=1.4, label="middle")
    axes.plot(depths, smallest, color="#0072B2", linewidth=1.4, label=f"smallest{note}")
    if shown.size and np.nanmax(rounding) > low:
        axes.plot(depths, rounding, "k--", linewidth=0.9, label="rounding of the largest")
    _powers_of_ten(axes)
    _whole_numbers(axes.xaxis)
    axes.legend(fontsize="x-small", loc="best")


def _title(axes: Axes, row: Mapping[str, Any], extra: str) -> None:
    name = str(row["placement"]).replace("$", r"\$")
    axes.set_title(f"{name}, L = {row['layers']}, d = {row['width']}{extra}", fontsize="medium")


def _powers_of_ten(axes: Axes) -> None:
    ticker = load("matplotlib.ticker", "plot")
    axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=7, integer=True))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: rf"$10^{{{value:.0f}}}$"))


def _whole_numbers(axis: Any) -> None:
    axis.set_major_locator(load("matplotlib.ticker", "plot").MaxNLocator(integer=True))
