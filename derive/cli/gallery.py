"""`derive gallery`: figures of the laws, one for each family."""

from __future__ import annotations

from pathlib import Path

import click

from derive.cli.output import progress

__all__ = ["gallery"]


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("gallery"),
    show_default=True,
    help="Folder of the figures.",
)
@click.option(
    "--format", "form", type=click.Choice(("svg", "pdf", "png")), default="svg", show_default=True
)
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), help="Write their page.")
@click.option("--width", type=click.IntRange(min=16), default=192, show_default=True)
@click.option(
    "--seeds",
    type=click.IntRange(min=2),
    default=12,
    show_default=True,
    help="Stacks drawn for a point.",
)
def gallery(
    names: tuple[str, ...], out: Path, form: str, page: Path | None, width: int, seeds: int
) -> None:
    """Draw the figures NAMES of the gallery, or all."""
    from derive.render.gallery import Sampling, gallery_page, write_gallery
    from derive.render.gallery.pages import chosen

    plates = chosen(names)
    for plate in progress(plates, "gallery"):
        for path in write_gallery([plate], out, Sampling(width, seeds), form):
            click.echo(path)
    if page is not None:
        page.write_text(gallery_page(), encoding="utf-8")
        click.echo(page)
