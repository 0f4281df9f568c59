"""`derive spectrum`: singular spectra over depth, extreme triplets, gradients of the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from derive.cli.options import check_figure, parse_depths, plot_option, stack_options, stack_text
from derive.cli.output import json_text, progress, table_text
from derive.errors import DomainError

if TYPE_CHECKING:
    from derive.linalg.singular import Side

__all__ = ["spectrum"]

DRAWN = 49
"""How many depths a figure shows."""


@click.command()
@click.argument("placements", nargs=-1, required=True)
@click.option("--layers", default="48", show_default=True, help="Depths L, comma-separated.")
@click.option(
    "--side",
    type=click.Choice(["input", "output"]),
    default="input",
    show_default=True,
    help="Products from the input, dx_l/dx_0, or to the output, dx_L/dx_l.",
)
@click.option("--every", is_flag=True, help="List every depth l, not about nine.")
@click.option(
    "--tol",
    "rank_tol",
    type=click.FloatRange(min=0, max=1, max_open=True),
    help="Tolerance of the numerical rank; machine epsilon times the size by default.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    help="Take this many of the largest singular triplets of dx_L/dx_0, and no whole spectrum.",
)
@click.option(
    "--bottom", type=click.IntRange(min=1), help="The same for the smallest, from the inverse."
)
@click.option("--weights", is_flag=True, help="Gradients of the weights, layer by layer.")
@click.option(
    "--tokens-map",
    "token_plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a heat map of |dx_L[i]/dx_0[j]|.",
)
@stack_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plot_option
def spectrum(
    placements: tuple[str, ...],
    layers: str,
    side: Side,
    every: bool,
    rank_tol: float | None,
    top: int | None,
    bottom: int | None,
    weights: bool,
    token_plot: Path | None,
    as_json: bool,
    plot: Path | None,
    options: dict[str, Any],
) -> None:
    """Take the singular spectra over depth of stacks of the PLACEMENTS (or equations)."""
    from derive.depth import placed_stack
    from derive.depth.rows import random_input
    from derive.depth.spectrum import listed_depths, spectrum_row

    whole = not (top or bottom)
    if plot is not None:
        if not whole:
            raise DomainError("--plot: expected the whole spectrum, which --top and --bottom skip")
        check_figure(plot)
    if token_plot is not None:
        check_figure(token_plot, "--tokens-map")
    jobs = [(name, depth) for name in placements for depth in parse_depths(layers)]
    rows = []
    for name, depth in progress(jobs, "spectrum"):
        stack = placed_stack(name, depth, **options)
        x, cotangent = random_input(stack, options["width"], options["tokens"], options["seed"])
        row = spectrum_row(
            stack,
            x,
            side=side,
            places=range(depth + 1) if every else None,
            drawn=listed_depths(depth, DRAWN) if plot is not None else (),
            rank_tol=rank_tol,
            whole=whole,
            top=top or 0,
            bottom=bottom or 0,
            cotangent=cotangent if weights else None,
            token_map=token_plot is not None,
        )
        shared = {key: options[key] for key in ("width", "tokens", "seed")}
        rows.append({"placement": name, "layers": depth, **shared, **row})
    _draw(rows, plot, token_plot)
    if as_json:
        shown = [{k: v for k, v in row.items() if k != "drawn"} for row in rows]
        click.echo(json_text(shown))
        return
    for row in rows:
        for table in _tables(row):
            click.echo(table)
    click.echo(
        f"{stack_text(options)}; 2-norms, natural logs"
        + ("; cotangent of norm 1" if weights else "")
    )


def _draw(rows: Sequence[dict[str, Any]], plot: Path | None, token_plot: Path | None) -> None:
    if plot is None and token_plot is None:
        return
    from derive.render import plots
    from derive.render.spectrum_figure import spectrum_figure, token_map_figure

    if plot is not None:
        plots.save(spectrum_figure(rows), plot)
    if token_plot is not None:
        plots.save(token_map_figure(rows), token_plot)


def _tables(row: Mapping[str, Any]) -> list[str]:
    """Return the tables of one stack, each with a line that says what it is."""
    name = f"{row['placement']}, L = {row['layers']}"
    tables = []
    if row["depths"]:
        header = (
            "l",
            "log norm",
            "log Frobenius",
            "rank",
            "null",
            "log condition",
            "effective rank",
            "alignment",
            "method",
        )
        lines = [
            [
                str(r["depth"]),
                f"{r['log_norm']:.4g}",
                f"{r['log_frobenius']:.4g}",
                str(r["numerical_rank"]),
                str(r["null_directions"]),
                f"{r['log_condition']:.4g}",
                f"{r['effective_rank']:.4g}",
                "-" if math.isnan(r["alignment"]) else f"{r['alignment']:.4g}",
                r["method"],
            ]
            for r in row["depths"]
        ]
        size = row["width"] * row["tokens"]
        caption = (
            f"{name}: {row['product']}, {size} singular values, rank above {row['rank_tol']:.2g}"
        )
        tables.append(f"{caption}\n{table_text(header, lines)}")
    for which in ("top", "bottom"):
        if which in row:
            tables.append(f"{name}: {which} of dx_L/dx_0\n{_triplets(row[which])}")
    if "weight_log_norms" in row:
        tables.append(f"{name}: log|dL/dW| by layer\n{_weights(row['weight_log_norms'])}")
    return tables


def _triplets(found: Sequence[Mapping[str, Any]]) -> str:
    header = ["k", "log sigma", "|Mv - s u|/|M|", "|M'u - s v|/|M|", "method"]
    lines = [
        [
            str(place),
            f"{r['log_value']:.6g}",
            f"{r['residual_right']:.1e}",
            f"{r['residual_left']:.1e}",
            r["method"],
        ]
        for place, r in enumerate(found, start=1)
    ]
    if "inverse_residual" in found[0]:
        header.insert(4, "of the inverse")
        for line, r in zip(lines, found, strict=True):
            line.insert(4, f"{r['inverse_residual']:.1e}")
    return table_text(header, lines)


def _weights(layers: Sequence[Mapping[str, float]]) -> str:
    names = sorted({name for layer in layers for name in layer})
    lines = [
        [str(place), *(f"{layer[n]:.4g}" if n in layer else "" for n in names)]
        for place, layer in enumerate(layers)
    ]
    return table_text(["layer", *names], lines)
