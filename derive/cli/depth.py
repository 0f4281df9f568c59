"""`derive depth`: stacks over depth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from derive.cli.options import (
    check_figure,
    parse_depths,
    plot_option,
    stack_options,
    stack_text,
)
from derive.cli.output import json_text, progress, table_text

__all__ = ["depth"]


@click.command()
@click.argument("placements", nargs=-1, required=True)
@click.option("--layers", default="6,12,24,48", show_default=True, help="Depths, comma-separated.")
@stack_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plot_option
def depth(
    placements: tuple[str, ...],
    layers: str,
    as_json: bool,
    plot: Path | None,
    options: dict[str, Any],
) -> None:
    """Evaluate stacks of the PLACEMENTS (or equations) over depth, at random weights."""
    if plot is not None:
        check_figure(plot)
    rows = _depth_rows(placements, parse_depths(layers), options)
    if plot is not None:
        from derive.render import plots

        plots.save(plots.depth_figure(rows), plot)
    if as_json:
        click.echo(json_text(rows))
        return
    table = [
        [
            r["placement"],
            str(r["layers"]),
            f"{r['log_norm']:.4g}",
            f"{r['log_grad_norms'][0]:.4g}",
            f"{r['branch_norm_sum']:.4g}",
            f"{r['log_first_order_remainder']:.4g}",
        ]
        for r in rows
    ]
    header = ("placement", "L", "log|dx_L/dx_0|", "log|g_0|", "sum |A_l|", "log remainder bound")
    click.echo(table_text(header, table))
    click.echo(
        f"{stack_text(options)}; 2-norms, natural logs; |g_L| = 1; "
        "remainder of I + sum A_l: exp(a) - 1 - a with a = sum |A_l|, A_l = J_l - I"
    )


def _depth_rows(
    placements: Sequence[str], depths: Sequence[int], options: dict[str, Any]
) -> list[dict[str, Any]]:
    from derive.depth import depth_rows

    jobs = [(name, depth_) for name in placements for depth_ in depths]
    rows: list[dict[str, Any]] = []
    for name, depth_ in progress(jobs, "depth"):
        rows += depth_rows(name, [depth_], **options)
    return rows
