"""`derive advise`: what a stack does at random weights, and which scale would hold it."""

from __future__ import annotations

from typing import Any

import click

from derive.cli.options import SEED, law_options, parse_values
from derive.cli.output import json_text, progress, table_text
from derive.errors import DeriveError, DomainError

__all__ = ["advise"]


@click.command()
@click.option(
    "--placement",
    "placements",
    multiple=True,
    required=True,
    help="A placement, an equation, or all; repeat for more.",
)
@click.option("--layers", default=24, show_default=True, help="Number of blocks L.")
@click.option("--width", default=1024, show_default=True, help="Features d.")
@law_options
@click.option(
    "--target", default=2.0, show_default=True, help="R: the gradient ratio from 1/R to R."
)
@click.option(
    "--bound", default=1.0, show_default=True, help="Of the update amplification, at most."
)
@click.option("--monte-carlo", is_flag=True, help="Draw stacks as well.")
@click.option("--seeds", default=16, show_default=True, help="Stacks that are drawn.")
@click.option(
    "--measured-width",
    default=128,
    show_default=True,
    help="Width of the drawn stacks, if below --width.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="The first seed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def advise(
    placements: tuple[str, ...],
    layers: int,
    width: int,
    norm_name: str,
    sublayer: str,
    init: str,
    tokens: int,
    memory_correlation: float,
    scores: str,
    dropout: float,
    values: tuple[str, ...],
    monte_carlo: bool,
    seeds: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Say what a stack does at random weights, how sure that is, and which scale holds it."""
    from derive.blocks.placements import all_placements
    from derive.laws.advise import advice_row, no_advice_row, ranked
    from derive.laws.advise import advise as ask
    from derive.laws.components import Moments
    from derive.laws.law import DepthLaw

    if monte_carlo and seeds < 2:
        raise DomainError(f"--seeds: expected at least 2, got {seeds}")
    every = [name.lower() for name in placements] == ["all"]
    names = all_placements() if every else placements
    sublayers = tuple(part.strip() for part in sublayer.split(",") if part.strip())
    common: dict[str, Any] = {
        "init": init,
        "tokens": tokens,
        "values": parse_values(values),
        "memory": Moments(1.0, memory_correlation),
        "scores": scores,
        "dropout": dropout,
    }
    found, refused, errors = [], [], []
    for name in progress(names, "advise"):
        try:
            one = DepthLaw(name, norm_name, sublayers, **common)
            drawn = seeds if monte_carlo else 0
            found.append(ask(one, layers, width=width, edges=not every, seeds=drawn, **options))
        except DeriveError as error:
            if not every:
                raise
            errors.append(error)
            refused.append(
                no_advice_row(name, norm_name, sublayers, init, layers, width, tokens, error)
            )
    if not found:
        raise errors[0]
    rows = [advice_row(one) for one in (ranked(found) if every else found)] + refused
    if as_json:
        click.echo(json_text(rows))
        return
    if every:
        _print_ranking(rows)
        return
    from derive.render.advise import advice_text

    click.echo("\n\n".join(advice_text(row) for row in rows))


def _print_ranking(rows: list[dict[str, Any]]) -> None:
    from derive.render.advise import ranking_cells

    click.echo(table_text(*ranking_cells(rows)))
    for row in rows:
        if row["refused"] is not None:
            click.echo(f"{row['placement']}: {row['refused']}")
    first = rows[0]
    click.echo(
        f"{first['layers']} blocks of width {first['width']}, {first['norm']}, "
        f"{first['sublayer']}, init {first['init']}; ratio = E|g_0|^2/E|g_L|^2, the closest to 1 "
        "first, of one stack 95 %; growth = E|x_L|^2/E|x_0|^2; updates = amplification"
    )
