"""`derive list` and `derive catalogue`: the tables of what is known."""

from __future__ import annotations

from pathlib import Path

import click

from derive.cli.output import json_text, table_text

__all__ = ["catalogue", "list_"]

TABLES = ("placements", "norms", "sublayers", "systems", "components")
COLUMNS = {
    "placements": ("name", "kind", "equation", "residual"),
    "norms": ("name", "equation", "jacobian"),
    "sublayers": ("name", "kind", "equation", "note"),
    "components": ("name", "forward", "backward", "exact"),
    "systems": ("name", "depth", "width", "heads", "norm", "placement", "year", "verified"),
}


@click.command("list")
@click.argument("table", type=click.Choice(TABLES))
@click.option("--json", "as_json", is_flag=True, help="Print every column as JSON.")
def list_(table: str, as_json: bool) -> None:
    """List the placements, norms, sublayers, systems or the components of depth laws."""
    from derive.blocks.catalogue import catalogue as rows_of

    rows = _components() if table == "components" else rows_of(table)
    if as_json:
        click.echo(json_text(rows))
    else:
        columns = COLUMNS[table]
        click.echo(table_text(columns, [[str(row[c]) for c in columns] for row in rows]))


def _components() -> list[dict[str, object]]:
    from derive.laws.facts import component_facts

    return [
        {
            "name": one.name,
            "forward": ", ".join(map(str, one.forward or ())),
            "backward": ", ".join(map(str, one.backward or ())),
            "exact": "exact" if one.exact else "wide",
            "assumption": one.assumption,
            "source": one.source,
            "latex": one.latex(),
        }
        for one in component_facts()
    ]


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
