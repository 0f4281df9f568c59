"""`derive lyapunov`: Lyapunov exponents of stacks of very many layers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from derive.cli.options import check_figure, plot_option, stack_options, stack_text
from derive.cli.output import json_text, progress, table_text

__all__ = ["lyapunov"]

_ENDS = 4  # exponents shown at either end
_DRIFT = 2.0  # beyond this z a trend is told, as often by chance as an interval misses


@click.command(context_settings={"default_map": {"tokens": 1}})
@click.argument("placements", nargs=-1, required=True)
@click.option(
    "--layers", default=100_000, show_default=True, help="Layers L, the transient included."
)
@click.option(
    "--transient", type=int, help="First layers not averaged over; a tenth of all by default."
)
@click.option(
    "--batches", default=32, show_default=True, help="Batches of layers, for the error bars."
)
@click.option("--top", type=int, help="Only so many leading exponents, which is quicker.")
@stack_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plot_option
def lyapunov(
    placements: tuple[str, ...],
    layers: int,
    transient: int | None,
    batches: int,
    top: int | None,
    as_json: bool,
    plot: Path | None,
    options: dict[str, Any],
) -> None:
    """Lyapunov exponents of stacks of the PLACEMENTS (or equations), at random weights."""
    if plot is not None:
        check_figure(plot)
    options |= {"transient": transient, "batches": batches, "count": top}
    rows = [_row(name, layers, options) for name in placements]
    if plot is not None:
        from derive.render import plots
        from derive.render.lyapunov_figure import lyapunov_figure

        plots.save(lyapunov_figure(rows), plot)
    if as_json:
        click.echo(json_text(rows))
        return
    for row in rows:
        _print(row)
    click.echo(
        f"{stack_text(options)}; natural logs per layer; +-: one standard error, by batch means; "
        "-inf: directions that are annihilated exactly"
    )


def _row(name: str, layers: int, options: dict[str, Any]) -> dict[str, Any]:
    from derive.depth.asymptotics import lyapunov_row, placed_lyapunov_spectrum

    def bar(every: range) -> Iterable[int]:
        return progress(every, name)

    found = placed_lyapunov_spectrum(name, layers, progress=bar, **options)
    named = {key: options[key] for key in ("width", "tokens", "seed")}
    return lyapunov_row(found, placement=name, **named)


def _print(row: dict[str, Any]) -> None:
    rate = row["rate"]
    click.echo(
        f"{row['placement']}, {row['layers']} layers after a transient of {row['transient']}, "
        f"{row['batches']} batches of {row['batch']}"
    )
    click.echo(table_text(("i", "exponent", "+-"), _exponent_rows(row)))
    interval = f"{rate['confidence']:.0%} interval [{rate['low']:.4g}, {rate['high']:.4g}]"
    known = row["batches"] > 1
    click.echo(
        f"top exponent: {rate['exponent']:.4g}, "
        + (f"{interval}: {_MEANING[rate['kind']]}" if known else "one batch: no error bar")
    )
    if abs(rate["drift"]) > _DRIFT:
        click.echo(
            f"its batches have a trend (Mann-Kendall z = {rate['drift']:.3g}): a rate that changes "
            "with depth is not what the interval covers"
        )
    nulls = row["null_directions"]
    if not math.isnan(row["finite_sum"]):
        of = f"sum of the {len(row['exponents']) - nulls} finite exponents" if nulls else "sum"
        sigma = f" +- {row['finite_sum_stderr']:.2g}" if known else ""
        click.echo(f"{of}: {row['finite_sum']:.5g}{sigma}")
    if not math.isnan(row["kaplan_yorke"]):
        click.echo(f"Kaplan-Yorke dimension: {row['kaplan_yorke']:.4g}")
    running = row["running"]
    settled = zip(running["layers"], running["top"], strict=True)
    click.echo("top exponent over L: " + ", ".join(f"{n}: {v:.4g}" for n, v in settled))
    click.echo()


_MEANING = {
    "contracts": "differences shrink",
    "expands": "differences grow",
    "neither": "neither growth nor decay is certain",
}


def _exponent_rows(row: dict[str, Any]) -> list[list[str]]:
    """Return the first and last finite exponents, and one line for those at -inf."""
    nulls = row["null_directions"]
    finite = len(row["exponents"]) - nulls
    shown = [k for k in range(finite) if k < _ENDS or k >= finite - _ENDS]
    lines = []
    for place, k in enumerate(shown):
        if place and shown[place - 1] != k - 1:
            lines.append(["...", "", ""])
        error = f"{row['stderr'][k]:.2g}" if row["batches"] > 1 else ""
        lines.append([str(k + 1), f"{row['exponents'][k]:.5g}", error])
    if nulls:
        span = str(finite + 1) if nulls == 1 else f"{finite + 1}-{finite + nulls}"
        lines.append([span, "-inf", "exact"])
    return lines
