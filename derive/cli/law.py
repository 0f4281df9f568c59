"""`derive law`: what a placement does to variance and gradient over depth, at random weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from derive.cli.options import SEED, check_figure, law_options, parse_values, plot_option
from derive.cli.output import json_text, progress, table_text
from derive.errors import DeriveError, DomainError

__all__ = ["law"]


@click.command()
@click.argument("placements", nargs=-1, required=True)
@law_options
@click.option(
    "--layers",
    default="6,12,24",
    show_default=True,
    help="Numbers of blocks, comma-separated; 1..192 doubles from 1 up to 192.",
)
@click.option("--width", default=128, show_default=True, help="Features d.")
@click.option("--heads", default=1, show_default=True, help="Attention heads of the stacks.")
@click.option("--weights", is_flag=True, help="Also the gradients of the weight matrices.")
@click.option("--monte-carlo", is_flag=True, help="Draw stacks and compare.")
@click.option(
    "--backend",
    type=click.Choice(("derived", "torch")),
    default="derived",
    show_default=True,
    help="Stacks with derived Jacobians, or of PyTorch's modules with autograd.",
)
@click.option(
    "--dtype",
    type=click.Choice(("float64", "float32")),
    default="float64",
    show_default=True,
    help="Of the stacks of PyTorch.",
)
@click.option("--seeds", default=30, show_default=True, help="Stacks drawn at every depth.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="The first seed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--format", "form", type=click.Choice(("text", "latex")), default="text", show_default=True
)
@plot_option
def law(
    placements: tuple[str, ...],
    norm_name: str,
    sublayer: str,
    init: str,
    layers: str,
    tokens: int,
    memory_correlation: float,
    scores: str,
    dropout: float,
    start: float,
    values: tuple[str, ...],
    as_json: bool,
    form: str,
    plot: Path | None,
    **options: Any,
) -> None:
    """Depth laws of the PLACEMENTS (or equations), or of all: variance and gradient over depth."""
    from derive.blocks.placements import all_placements
    from derive.laws.components import Moments
    from derive.laws.law import DepthLaw
    from derive.laws.rows import law_rows, no_law_rows

    if plot is not None:
        check_figure(plot)
    depths, every = _depths(layers), [p.lower() for p in placements] == ["all"]
    sublayers = tuple(part.strip() for part in sublayer.split(",") if part.strip())
    common: dict[str, Any] = {
        "init": init,
        "tokens": tokens,
        "values": parse_values(values),
        "memory": Moments(1.0, memory_correlation),
        "scores": scores,
        "dropout": dropout,
        "start": start,
    }
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    refused: DeriveError | None = None
    for name in progress(all_placements() if every else placements, "law"):
        try:
            one = DepthLaw(name, norm_name, sublayers, **common)
            rows += law_rows(one, depths, **options)
            found[name] = one
        except DeriveError as error:
            if not every:
                raise
            refused = refused or error
            rows += no_law_rows(name, norm_name, sublayers, error)
    if refused is not None and not found:
        raise refused
    if plot is not None:
        from derive.render import plots
        from derive.render.law_figure import law_figure

        plots.save(law_figure(rows), plot)
    if as_json:
        click.echo(json_text(rows))
        return
    _print(found, rows, form, every, options["weights"])
    if options["monte_carlo"]:
        seeds, width = options["seeds"], options["width"]
        click.echo(
            f"measured: {seeds} stacks of width {width}; 95 % intervals of the mean, of which "
            "1 in 20 misses by chance; growth = v_L/v_0, ratio = E|g_0|^2/E|g_L|^2"
        )


def _depths(text: str) -> list[int]:
    """Return the depths of ``6,12,24``, or of ``1..192``: doubled from the first to the last."""
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        try:
            low, high = int(first), int(last if dots else first)
        except ValueError:
            raise DomainError(
                f"--layers: expected integers such as 6,12,24 or 1..192, got {text!r}"
            ) from None
        if not 1 <= low <= high:
            raise DomainError(f"--layers: expected integers >= 1, got {text!r}")
        depth = low
        while depth < high:
            found.append(depth)
            depth *= 2
        found.append(high)
    return list(dict.fromkeys(found))


def _print(
    found: dict[str, Any], rows: list[dict[str, Any]], form: str, every: bool, weights: bool
) -> None:
    from derive.render.law import law_latex, law_text
    from derive.render.weight_law import weight_law_latex, weight_law_text

    if form == "latex":
        shown = [law_latex, *([weight_law_latex] if weights else [])]
        click.echo("\n".join(show(one) for one in found.values() for show in shown))
        return
    if not every:
        shown = [law_text, *([weight_law_text] if weights else [])]
        told = ("\n".join(show(one) for show in shown) for one in found.values())
        click.echo("\n\n".join(told) + "\n")
    header = ["placement", "L", "growth", "ratio"]
    measured = any(row["measured"] for row in rows)
    if measured:
        header += ["growth measured", "ratio measured", "ok"]
    table = [_cells(row, measured) for row in rows if row["predicted"]]
    click.echo(table_text(header, table))
    if weights:
        cells = [one for row in rows if row["predicted"] for one in _weight_cells(row)]
        header = ["placement", "L", "matrix", "first", "middle", "last", "norm first/last"]
        click.echo("\n|dL/dW_l|^2/|g_L|^2 in the first, the middle and the last block with W:")
        click.echo(table_text([*header, *(["blocks ok"] if measured else [])], cells))
    for row in rows:
        if not row["predicted"]:
            click.echo(f"{row['placement']}: {row['forward_law']}")


def _weight_cells(row: dict[str, Any]) -> Iterator[list[str]]:
    for name, found in row["weight_gradients"].items():
        own = [k for k, value in enumerate(found["predicted"]) if value is not None]
        places = own[0], own[(len(own) - 1) // 2], own[-1]
        values = [found["predicted"][k] for k in places]
        cells = [row["placement"], str(row["layers"]), name]
        for k, value in zip(places, values, strict=True):
            ends = found["ci"] and found["ci"][k]
            cells.append(f"{value:.4g}" + (f" [{ends[0]:.4g}, {ends[1]:.4g}]" if ends else ""))
        cells.append(f"{math.sqrt(values[0] / values[-1]):.4g}" if values[-1] else "-")
        if found["ok"]:
            held = [found["ok"][k] for k in own]
            cells.append(f"{sum(held)} of {len(held)}")
        yield cells


def _cells(row: dict[str, Any], measured: bool) -> list[str]:
    both = ("growth", "gradient_ratio")
    cells = [row["placement"], str(row["layers"])]
    cells += [f"{row['predicted'][what]:.4g}" for what in both]
    if measured:
        for what in both:
            low, high = row["ci"][what]
            cells.append(f"{row['measured'][what]:.4g} [{low:.4g}, {high:.4g}]")
        cells.append("ok" if row["ok"] else "no")
    return cells
