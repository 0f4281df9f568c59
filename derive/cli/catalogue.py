"""`derive list` and `derive catalogue`: the tables of what is known."""

from __future__ import annotations

from pathlib import Path

import click

from derive.cli.output import json_text, table_text

__all__ = ["catalogue", "list_"]

TABLES = ("placements", "norms", "sublayers", "systems")
COLUMNS = {
    "placements": ("name", "kind", "equation", "residual"),
    "norms": ("name", "equation", "jacobian"),
    "sublayers": ("name", "kind", "equation", "note"),
    "systems": ("name", "depth", "width", "heads", "norm", "placement", "year", "verified"),
}


@click.command("list")
@click.argument("table", type=click.Choice(TABLES))
@click.option("--json", "as_json", is_flag=True, help="Print every column as JSON.")
def list_(table: str, as_json: bool) -> None:
    """List the placements, norms, sublayers or systems of the catalogue."""
    from derive.blocks.catalogue import catalogue as rows_of

    rows = rows_of(table)
    if as_json:
        click.echo(json_text(rows))
    else:
        columns = COLUMNS[table]
        click.echo(table_text(columns, [[str(row[c]) for c in columns] for row in rows]))


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write Markdown.")
@click.option("--tex", type=click.Path(dir_okay=False, path_type=Path), help="Write LaTeX.")
def catalogue(out: Path | None, tex: Path | None) -> None:
    """Write the catalogue as Markdown (to the terminal by default) or as LaTeX."""
    from derive.render.catalogue import catalogue_markdown, catalogue_tex

    if out is None and tex is None:
        click.echo(catalogue_markdown(), nl=False)
    for path, make in ((out, catalogue_markdown), (tex, catalogue_tex)):
        if path is not None:
            path.write_text(make(), encoding="utf-8")
            click.echo(path)
