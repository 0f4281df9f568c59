r"""Depth laws with what stacks do: growth and gradient ratio over the number of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.errors import ShapeError
from derive.render.extras import load
from derive.render.plots import curve_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["law_figure"]

MANY = 8
"""Curves above which the legend stands beside the panels."""
PANELS = (
    ("growth", r"$\mathrm{E}\,|x_L|^2/|x_0|^2$"),
    ("gradient_ratio", r"$\mathrm{E}\,|g_0|^2/|g_L|^2$"),
)


def law_figure(rows: Iterable[Mapping[str, Any]]) -> Figure:
    r"""Return a figure with two panels, both axes logarithmic: the laws as lines.

    Parameters
    ----------
    rows : iterable of mappings
        As from `derive.laws.rows.law_rows`; measured means are points with their intervals, rows
        without a law are left out.

    Raises
    ------
    ShapeError
        If no row has a law.
    """
    curves: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["predicted"] is not None:
            key = (row["placement"], row["norm"], row["sublayer"])
            curves.setdefault(key, []).append(row)
    if not curves:
        raise ShapeError("rows: expected at least one law, got none")
    several = [len({key[k] for key in curves}) > 1 for k in range(3)]
    figure = load("matplotlib.figure", "plot").Figure(figsize=(9.0, 3.8), layout="constrained")
    for axes, (what, label) in zip(figure.subplots(1, 2), PANELS, strict=True):
        for k, (key, group) in enumerate(curves.items()):
            named = [
                key[0],
                *(part for part, many in zip(key[1:], several[1:], strict=True) if many),
            ]
            style = {**curve_style(k), "markersize": 4, "linewidth": 1.2}
            group = sorted(group, key=lambda row: row["layers"])
            depths = [row["layers"] for row in group]
            line = {**style, "marker": "" if group[0]["measured"] else style["marker"]}
            values = [row["predicted"][what] for row in group]
            axes.plot(depths, values, label=", ".join(named).replace("$", r"\$"), **line)
            seen = [row for row in group if row["measured"]]
            if seen:
                means = np.array([row["measured"][what] for row in seen])
                ends = np.array([row["ci"][what] for row in seen]).T
                axes.errorbar(
                    [row["layers"] for row in seen],
                    means,
                    yerr=np.maximum(0, np.stack([means - ends[0], ends[1] - means])),
                    capsize=2,
                    **{**style, "linestyle": "none"},
                )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("depth $L$ (number of blocks)")
        axes.set_ylabel(label)
    if len(curves) > MANY:
        figure.set_size_inches(11.0, 4.6)
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside right upper", fontsize="x-small"
        )
    else:
        axes.legend(fontsize="x-small")
    return figure
