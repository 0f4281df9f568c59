"""`derive bench`: the closed form and its peers, timed in turn."""

from __future__ import annotations

import click

from derive.cli.output import json_text, table_text

__all__ = ["bench"]


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes, under a minute and a half.")
@click.option(
    "--tasks",
    metavar="NAMES",
    help="Comma-separated: tokens, sequences, ensembles, products, gradients, lyapunov, symbolic.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(quick: bool, tasks: str | None, as_json: bool) -> None:
    """Time the closed form against torch, JAX, curvlinops and tensorgrad, on one thread.

    Agreement is checked first; peers that are not installed are rows that say so.
    """
    from derive.bench import suite
    from derive.bench.rows import losses, table

    chosen = None if tasks is None else [name.strip() for name in tasks.split(",")]
    report = suite.run(
        chosen,
        quick=quick,
        seen=lambda problem: click.echo(f"{problem.task}: {problem.size}", err=True),
    )
    if as_json:
        click.echo(json_text([row.as_dict() for row in report.rows]))
    else:
        header, *rows = table(report.rows)
        click.echo(table_text(header, rows))
        click.echo("BLAS of the process: " + report.blas)
        click.echo(report.versions)
        for line in (*report.growth, *(losses(report.rows) or ["no losses"])):
            click.echo(line)
    disagree = any(row.agrees is False for row in report.rows)
    if disagree:
        click.echo("derive: some results do not agree", err=True)
    raise SystemExit(1 if disagree else 0)
