"""`derive report`: the main job as one page and one .tex."""

from __future__ import annotations

from pathlib import Path

import click

from derive.cli.options import SEED, parse_depths
from derive.cli.output import progress

__all__ = ["report"]


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("report"),
    show_default=True,
    help="Folder to write into.",
)
@click.option("--layers", default="6,12,24,48", show_default=True, help="Depths, comma-separated.")
@click.option("--width", default=64, show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True)
def report(out: Path, layers: str, width: int, seed: int) -> None:
    """Write derivations, depth curves and checks as one HTML page and one .tex."""
    from derive.report import write_report

    written = write_report(
        out, depths=parse_depths(layers), width=width, seed=seed, progress=progress
    )
    for path in written.paths:
        click.echo(path)
    if not written.ok:
        click.echo("a check failed; see the table of checks", err=True)
        raise SystemExit(1)
