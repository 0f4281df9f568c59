"""`derive literature`: published statements beside what the laws give, computed when asked."""

from __future__ import annotations

import click

from derive.cli.output import json_text, progress

__all__ = ["literature"]


@click.command()
@click.option("--paper", help="A paper, or one entry; all by default.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--format", "form", type=click.Choice(("text", "markdown")), default="text", show_default=True
)
def literature(paper: str | None, as_json: bool, form: str) -> None:
    """Compare the laws with the literature: statement, how it was seen, ours, verdict, reason."""
    from derive.laws.literature import literature_row, select
    from derive.render.literature import literature_markdown, literature_text

    rows = [literature_row(entry) for entry in progress(select(paper), "literature")]
    if as_json:
        click.echo(json_text(rows))
    elif form == "markdown":
        click.echo(literature_markdown(rows), nl=False)
    else:
        click.echo(literature_text(rows))
