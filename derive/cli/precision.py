"""`derive precision`: narrow formats simulated, float64 certified."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from derive.cli.options import check_figure, parse_depths, plot_option, stack_options, stack_text
from derive.cli.output import json_text, progress, table_text
from derive.errors import DomainError

__all__ = ["precision"]


@click.command()
@click.argument("placements", nargs=-1, required=True)
@click.option("--layers", default="48", show_default=True, help="Depths, comma-separated.")
@click.option(
    "--dtype", default="bfloat16", show_default=True, help="bfloat16, float16, float32 or float64."
)
@click.option("--statistics", help="Format inside a norm; float32 unless the dtype is wider.")
@click.option("--residual", help="Format of the residual stream; the dtype unless said.")
@click.option(
    "--certified",
    is_flag=True,
    help="Bound the error of the float64 answer rigorously, at small sizes.",
)
@click.option(
    "--bits",
    type=click.IntRange(64, 2048),
    default=128,
    show_default=True,
    help="Working precision of --certified to begin with.",
)
@stack_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plot_option
def precision(
    placements: tuple[str, ...],
    layers: str,
    dtype: str,
    statistics: str | None,
    residual: str | None,
    certified: bool,
    bits: int,
    as_json: bool,
    plot: Path | None,
    options: dict[str, Any],
) -> None:
    """Simulate narrow formats in stacks of the PLACEMENTS, or certify the float64 answer."""
    if plot is not None:
        if certified:
            raise DomainError("--plot: expected a simulation to draw, got --certified")
        check_figure(plot)
    jobs = [(name, depth) for name in placements for depth in parse_depths(layers)]
    title = stack_text(options)
    if certified:
        _certify(jobs, bits, options, title, as_json)
        return
    from derive.depth.precision import precision_rows
    from derive.depth.rounded import Precision

    formats = Precision.of(dtype, statistics, residual)
    rows: list[dict[str, Any]] = []
    for name, depth in progress(jobs, "precision"):
        rows += precision_rows(name, [depth], formats, **options)
    if plot is not None:
        from derive.render import plots
        from derive.render.precision_figure import precision_figure

        plots.save(precision_figure(rows), plot)
    if as_json:
        click.echo(json_text(rows))
        return
    header = (
        "placement",
        "L",
        "state error",
        "gradient error",
        "|g_0| error",
        "growth",
        "in units",
    )
    table = [
        [
            r["placement"],
            str(r["layers"]),
            f"{r['forward_errors'][-1]:.3g}",
            f"{r['gradient_errors'][0]:.3g}",
            f"{r['gradient_norm_errors'][0]:.3g}",
            ", ".join(
                "-" if math.isnan(g) else f"{g:.2f}"
                for g in (r["forward_growth"], r["gradient_growth"])
            ),
            f"{r['forward_errors'][-1] / r['unit_roundoff']:.3g}, "
            f"{r['gradient_errors'][0] / r['unit_roundoff']:.3g}",
        ]
        for r in rows
    ]
    click.echo(table_text(header, table))
    for r in rows:
        if r["breakdown"]:
            click.echo(f"{r['placement']}, L = {r['layers']}, breaks down at {r['breakdown']}")
    click.echo(
        f"{title}; {formats.dtype}, norm statistics {formats.statistics}, residual stream "
        f"{formats.residual}; relative errors |.|_F of x_L and dL/dx_0 against float64 with the "
        "same rounded weights; growth: slope of log error over log layers; unit: unit roundoff"
    )


def _certify(
    jobs: list[tuple[str, int]],
    bits: int,
    options: dict[str, Any],
    title: str,
    as_json: bool,
) -> None:
    from derive.depth import placed_stack
    from derive.depth.certified import certified_row, certify
    from derive.initialise import random_state

    rows = []
    for name, depth in progress(jobs, "certify"):
        stack = placed_stack(name, depth, **options)
        start = random_state(options["width"], options["tokens"], options["seed"])
        found = certify(stack, start, bits=bits)
        keys = {key: options[key] for key in ("width", "tokens", "seed")}
        rows.append({"placement": name, **keys, **certified_row(found)})
    if as_json:
        click.echo(json_text(rows))
        return
    header = ("placement", "L", "bits", "max |entry error| <=", "relative error <=", "|M| within")
    table = [
        [
            r["placement"],
            str(r["layers"]),
            str(r["bits"]),
            f"{r['entry_error']['upper']:.3g}",
            f"{r['relative_error']:.3g}",
            f"[{r['singular_values'][0]['lower']:.16g}, {r['singular_values'][0]['upper']:.16g}]",
        ]
        for r in rows
    ]
    click.echo(table_text(header, table))
    click.echo(
        f"{title}; M = dx_L/dx_0 in float64 against its enclosure in balls of that many bits, from "
        "the same weights taken as exact; the errors are proved"
    )
