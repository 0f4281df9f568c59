"""`derive paths`: the sum over paths of a stack's Jacobian."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from derive.cli.options import check_figure, parse_depths, plot_option, stack_options, stack_text
from derive.cli.output import json_text, progress, table_text

__all__ = ["paths"]


@click.command()
@click.argument("placements", nargs=-1, required=True)
@click.option("--layers", default="12", show_default=True, help="Depths, comma-separated.")
@click.option(
    "--order",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Longest paths to keep apart.",
)
@click.option(
    "--strong",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Number of strongest single paths to list.",
)
@click.option(
    "--strong-length",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Longest of them.",
)
@click.option(
    "--continuum", is_flag=True, help="Compare with the ordered exponential and its Magnus series."
)
@stack_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plot_option
def paths(
    placements: tuple[str, ...],
    layers: str,
    order: int,
    strong: int,
    strong_length: int,
    continuum: bool,
    as_json: bool,
    plot: Path | None,
    options: dict[str, Any],
) -> None:
    """Expand the Jacobian of stacks of the PLACEMENTS (or equations) over paths."""
    if plot is not None:
        check_figure(plot)
    jobs = [(name, depth) for name in placements for depth in parse_depths(layers)]
    rows = [
        _row(name, depth, order, strong, strong_length, continuum, options)
        for name, depth in progress(jobs, "paths")
    ]
    if plot is not None:
        from derive.render import plots
        from derive.render.paths_figure import paths_figure

        plots.save(paths_figure(rows), plot)
    if as_json:
        click.echo(json_text(rows))
        return
    for row in rows:
        _print(row)
    click.echo(
        f"{stack_text(options)}; 2-norms unless said, natural logs; S_k: all paths through k "
        "branches, M their sum; overlap: <S_k, M>/|M|^2 (Frobenius); energy: squared Frobenius "
        "norms of single paths"
    )


def _row(
    name: str,
    depth: int,
    order: int,
    strong: int,
    strong_length: int,
    continuum: bool,
    options: dict[str, Any],
) -> dict[str, Any]:
    from derive.depth import placed_stack
    from derive.depth.paths import continuum_row, expansion_row, path_expansion
    from derive.initialise import random_state

    stack = placed_stack(name, depth, **options)
    start = random_state(options["width"], options["tokens"], options["seed"])
    found = path_expansion(stack, start, order, strong=strong, strong_length=strong_length)
    row = {
        "placement": name,
        **{key: options[key] for key in ("width", "tokens", "seed")},
        **expansion_row(found),
    }
    return {**row, "continuum": continuum_row(stack, start)} if continuum else row


def _print(row: dict[str, Any]) -> None:
    click.echo(f"{row['placement']}, L = {row['layers']}, log|M| = {row['log_norm']:.4g}")
    header = ("k", "log|S_k|", "overlap", "norm share", "energy", "log error to k", "log bound")
    table = [
        [
            str(r["length"]),
            *(f"{r[key]:.4g}" for key in ("log_norm", "overlap", "norm_share", "energy_share")),
            # what is left of a complete sum is rounding
            "-inf" if r["length"] == row["longest"] else f"{r['log_error']:.4g}",
            f"{r['log_error_bound']:.4g}",
        ]
        for r in row["lengths"]
    ]
    if row["order"] < row["longest"]:
        table.append([f">{row['order']}", "", f"{row['rest_overlap']:.4g}", "", "", "", ""])
    click.echo(table_text(header, table))
    length = row["effective_length"]
    click.echo(
        f"effective path length: {length['overlap']:.4g} by overlap, {length['energy']:.4g} by "
        f"energy; longest path {row['longest']}"
    )
    largest = sorted(row["contributions"], key=lambda c: -abs(c["relative_norm"]))[:5]
    through = (f"{c['layer']}:{c['branch']} {c['relative_norm']:.3g}" for c in largest)
    click.echo(f"|all paths through a branch|/|M|, largest: {', '.join(through) or 'no branches'}")
    found = row["strong_paths"]
    named = (
        f"{' '.join(f'{layer}:{branch}' for layer, branch in p['branches']) or 'skip'} "
        f"{math.exp(min(p['log_norm'], 700.0)):.3g}"
        for p in found["paths"]
    )
    sure = "" if found["certified"] else f" (of {found['examined']} looked at)"
    click.echo(f"strongest single paths, |path|{sure}: {', '.join(named) or 'none'}")
    if "continuum" in row:
        _print_continuum(row["continuum"])


def _print_continuum(found: dict[str, Any]) -> None:
    thin = ", ".join(f"{r['relative_error']:.3g} (r = {r['parts']})" for r in found["refinements"])
    click.echo(f"layers I + A/r against the ordered exponential, relative error: {thin}")
    terms = ", ".join(
        f"{error:.3g} to Omega_{k}" for k, error in enumerate(found["magnus"]["errors"], 1)
    )
    state = "below" if found["magnus"]["converges"] else "not below"
    click.echo(
        f"Magnus series, relative error: {terms}; sum |A_l| = {found['magnus']['action']:.4g}, "
        f"{state} pi"
    )
