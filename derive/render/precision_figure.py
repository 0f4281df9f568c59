"""How the errors of a narrow format grow over depth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.render.extras import load
from derive.render.plots import curve_style, two_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["precision_figure"]

# Okabe and Ito's palette, with markers for grey.


def precision_figure(rows: Iterable[Mapping[str, Any]]) -> Figure:
    r"""Return a figure with two panels: error of the states, error of the gradients, by layer.

    Parameters
    ----------
    rows : iterable of mappings
        Each as `derive.depth.precision.precision_rows` gives it. Where a run breaks down the curve
        ends.

    Raises
    ------
    ShapeError
        If there is no row.
    MissingExtraError
        If matplotlib is not installed.
    """
    rows, figure, left, right = two_panels(rows)
    for k, row in enumerate(rows):
        label = f"{row['placement']}, {row['dtype']}, L = {row['layers']}".replace("$", r"\$")
        for axes, key in ((left, "forward_errors"), (right, "gradient_errors")):
            errors = np.asarray(row[key], dtype=float)
            seen = np.isfinite(errors) & (errors > 0)
            axes.plot(
                np.arange(len(errors)),
                np.where(seen, errors, np.nan),
                color=curve_style(k)["color"],
                marker=curve_style(k)["marker"],
                markevery=max(1, len(errors) // 12),
                markersize=4,
                linewidth=1.6,
                label=label,
            )
    for axes in (left, right):
        if any(np.isfinite(line.get_ydata()).any() for line in axes.get_lines()):
            axes.set_yscale("log")
        axes.set_xlabel(r"layer $\ell$ (0: input)")
        axes.xaxis.set_major_locator(load("matplotlib.ticker", "plot").MaxNLocator(integer=True))
        axes.grid(True, color="#888888", alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
    left.set_ylabel(r"relative error of $x_\ell$")
    right.set_ylabel(r"relative error of $\partial\mathcal{L}/\partial x_\ell$")
    return figure
