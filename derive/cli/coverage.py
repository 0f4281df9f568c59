"""`derive coverage`: how often the intervals of stacks hold the depth laws, over the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from derive.cli.options import SEED
from derive.cli.output import progress

__all__ = ["coverage"]


@click.command()
@click.argument("placements", nargs=-1)
@click.option("--layers", default=6, show_default=True, help="Number of blocks L.")
@click.option("--width", default=128, show_default=True, help="Features d.")
@click.option("--hidden", type=int, help="Hidden width f; 2 d by default.")
@click.option("--tokens", default=4, show_default=True, help="Tokens n.")
@click.option("--seeds", default=16, show_default=True, help="Stacks a case.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="The first seed.")
@click.option("--deep", is_flag=True, help="Also stacks up to d = 1024 and L = 192; half an hour.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the page to a file."
)
def coverage(placements: tuple[str, ...], deep: bool, out: Path | None, **options: Any) -> None:
    """Hold the depth laws of all PLACEMENTS against stacks; misses are measured again."""
    from derive.laws.coverage import cases, confirm, deep_cases, look
    from derive.render.coverage import coverage_page

    table = cases(placements=placements, **options)
    looks = [one for case in progress(table, "coverage") for one in look(case)]
    confirmations = list(confirm(looks))
    sizes = deep_cases(seed=options["seed"]) if deep else []
    real = [one for case in progress(sizes, "deep") for one in look(case)]
    page = coverage_page(table, looks, confirmations, real)
    if out is None:
        click.echo(page, nl=False)
    else:
        out.write_text(page, encoding="utf-8")
        click.echo(out)
