r"""Figures of gradient norms and Jacobian norms over depth.

Matplotlib's objects are used directly, without pyplot, so that no state is shared and no display is
needed. Norms come as natural logarithms, because a product of many Jacobians does not fit into a
float; the axes show powers of ten.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.errors import DeriveError, ShapeError
from derive.render.extras import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FORMATS",
    "curve_style",
    "depth_figure",
    "gradient_norms_figure",
    "save",
    "svg",
    "two_panels",
]

FORMATS = ("pdf", "png", "svg")
# Okabe and Ito's palette, readable with any colour vision and in grey with the markers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_STYLE = {"svg.fonttype": "path", "svg.hashsalt": "normderive"}


def curve_style(k: int) -> dict[str, Any]:
    """Return colour, line and marker of the k-th curve of a figure, as keywords of ``plot``."""
    return {
        "color": _COLOURS[k % len(_COLOURS)],
        "linestyle": _LINES[k % len(_LINES)],
        "marker": _MARKERS[k % len(_MARKERS)],
    }


def gradient_norms_figure(
    curves: Iterable[tuple[str, Any, Any]], *, title: str | None = None
) -> Figure:
    r"""Return a figure of gradient norms over the layers of a stack.

    Parameters
    ----------
    curves : iterable of (label, layers, log_norms)
        `layers` are the layer numbers, `log_norms` the natural logarithms of the norms,
        :math:`\ln\lVert\partial\mathcal L/\partial x_\ell\rVert_2`; ``-inf`` (a gradient that is
        exactly zero) leaves a gap.
    title : str, optional
        Plain text above the axes.

    Raises
    ------
    ShapeError
        If there is no curve, or the arrays of a curve differ in length.
    MissingExtraError
        If matplotlib is not installed.
    """
    figure = load("matplotlib.figure", "plot").Figure(figsize=(6.0, 3.8), layout="constrained")
    axes = figure.add_subplot()
    _draw(axes, curves)
    _gradient_labels(axes)
    if title:
        axes.set_title(title, fontsize="medium")
    return figure


def depth_figure(rows: Iterable[Mapping[str, Any]]) -> Figure:
    r"""Return a figure with two panels: end-to-end Jacobian norm by depth, gradient norm by layer.

    Parameters
    ----------
    rows : iterable of mappings
        Each with ``placement``, ``layers`` (the depth L), ``log_norm`` (the natural logarithm of
        :math:`\lVert\partial x_L/\partial x_0\rVert_2`) and ``log_grad_norms`` (L + 1 natural
        logarithms of gradient norms, for :math:`x_0` to :math:`x_L`; may hold ``-inf``). ``width``
        tells stacks of different widths apart.

    Raises
    ------
    ShapeError
        If there is no row.
    MissingExtraError
        If matplotlib is not installed.
    """
    rows, figure, left, right = two_panels(rows)
    stacks: dict[str, list[Mapping[str, Any]]] = {}
    widths = {row.get("width") for row in rows}
    for row in rows:
        label = str(row["placement"])
        label += f", d = {row['width']}" if len(widths) > 1 else ""
        stacks.setdefault(label, []).append(row)
    by_depth, by_layer = [], []
    for label, group in stacks.items():
        group.sort(key=lambda row: row["layers"])
        depths = [row["layers"] for row in group]
        by_depth.append((label, depths, [row["log_norm"] for row in group]))
        deepest = group[-1]
        norms = np.asarray(deepest["log_grad_norms"], dtype=float)
        by_layer.append((f"{label}, L = {deepest['layers']}", np.arange(norms.size), norms))
    _draw(left, by_depth, marked=True)
    left.set_xlabel("depth $L$ (number of blocks)")
    left.set_ylabel(r"$\Vert\partial x_L/\partial x_0\Vert_2$ (spectral norm)")
    _whole_numbers(left)
    _draw(right, by_layer)
    _gradient_labels(right)
    return figure


def two_panels(rows: Iterable[Any]) -> tuple[list[Any], Figure, Axes, Axes]:
    """Return the rows as a list, and an empty figure for them with two panels side by side.

    Raises
    ------
    ShapeError
        If there is no row.
    MissingExtraError
        If matplotlib is not installed.
    """
    listed = list(rows)
    if not listed:
        raise ShapeError("rows: expected at least one stack, got none")
    figure = load("matplotlib.figure", "plot").Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    return listed, figure, left, right


def save(fig: Figure, path: str | Path) -> Path:
    """Write a figure in the format that the suffix of the path names, and return the path.

    Raises
    ------
    DeriveError
        If the suffix is not one of `FORMATS`, or the folder does not exist.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise DeriveError(
            f"path: expected a name that ends in {', '.join('.' + f for f in FORMATS)}, "
            f"got {str(path)!r}"
        )
    if not path.parent.is_dir():
        raise DeriveError(f"path: the folder {str(path.parent)!r} does not exist")
    with load("matplotlib", "plot").rc_context(_STYLE):
        fig.savefig(path, format=kind, dpi=200, metadata=_undated(kind))
    return path


def svg(fig: Figure) -> str:
    """Return a figure as an ``svg`` element that can be put into a page."""
    stream = io.StringIO()
    with load("matplotlib", "plot").rc_context(_STYLE):
        fig.savefig(stream, format="svg", transparent=True, metadata=_undated("svg"))
    drawing = stream.getvalue()
    return drawing[drawing.index("<svg") :].strip()


def _undated(kind: str) -> dict[str, None]:
    """Leave the date out, so that the same figure gives the same file."""
    return {} if kind == "png" else {"Date" if kind == "svg" else "CreationDate": None}


def _draw(axes: Axes, curves: Iterable[tuple[str, Any, Any]], *, marked: bool = False) -> None:
    drawn = 0
    for k, (label, positions, log_norms) in enumerate(curves):
        x, y = np.asarray(positions, dtype=float), np.asarray(log_norms, dtype=float)
        if x.shape != y.shape or x.ndim != 1:
            raise ShapeError(
                f"curve {label!r}: expected as many norms as layers, got {y.shape} and {x.shape}"
            )
        axes.plot(
            x,
            np.where(np.isfinite(y), y / np.log(10), np.nan),
            color=_COLOURS[k % len(_COLOURS)],
            linestyle=_LINES[k % len(_LINES)],
            marker=_MARKERS[k % len(_MARKERS)] if marked or x.size <= 40 else None,
            markersize=4,
            linewidth=1.6,
            label=label.replace("$", r"\$"),
        )
        drawn += 1
    if not drawn:
        raise ShapeError("curves: expected at least one curve, got none")
    _powers_of_ten(axes)
    axes.grid(True, color="#888888", alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")


def _powers_of_ten(axes: Axes) -> None:
    """Label an axis of log10 values with the powers of ten that they stand for."""
    ticker = load("matplotlib.ticker", "plot")
    low, high = axes.get_ylim()
    if high - low < 1:  # less than one decade: show at least one power of ten
        middle = round((low + high) / 2)
        axes.set_ylim(min(low, middle - 0.6), max(high, middle + 0.6))
    axes.yaxis.set_major_locator(ticker.MaxNLocator(nbins=7, integer=True))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: rf"$10^{{{value:.0f}}}$"))


def _whole_numbers(axes: Axes) -> None:
    axes.xaxis.set_major_locator(load("matplotlib.ticker", "plot").MaxNLocator(integer=True))


def _gradient_labels(axes: Axes) -> None:
    axes.set_xlabel(r"layer $\ell$ (0: input)")
    axes.set_ylabel(r"$\Vert\partial\mathcal{L}/\partial x_\ell\Vert_2$ (gradient norm)")
    _whole_numbers(axes)
