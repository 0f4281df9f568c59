"""The gallery as files: one svg a figure, and a page that says what each shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from derive.errors import DeriveError, UnknownNameError
from derive.render.gallery.depth import DEPTH
from derive.render.gallery.kernels import KERNELS
from derive.render.gallery.panel import Plate, Sampling, paper_style
from derive.render.gallery.precision import PRECISION
from derive.render.gallery.tokens import TOKENS
from derive.render.gallery.weights import WEIGHTS
from derive.render.plots import save

__all__ = ["PLATES", "chosen", "gallery_page", "write_gallery"]

PLATES: dict[str, Plate] = {
    plate.name: plate for plate in (*DEPTH, *WEIGHTS, *TOKENS, *KERNELS, *PRECISION)
}


def chosen(names: Iterable[str]) -> list[Plate]:
    """Return the figures of these names; all if there is none.

    Raises
    ------
    UnknownNameError
        If a name is not known.
    """
    wanted = [name.lower() for name in names]
    for name in wanted:
        if name not in PLATES:
            raise UnknownNameError(f"figure: expected one of {', '.join(PLATES)}, got {name!r}")
    return [PLATES[name] for name in wanted or PLATES]


def write_gallery(
    plates: Iterable[Plate], folder: Path, sampling: Sampling | None = None, form: str = "svg"
) -> Iterator[Path]:
    """Draw figures, write each into a folder and yield its path.

    Parameters
    ----------
    plates : iterable of Plate
        From `chosen`.
    folder : Path
        Made if it does not exist.
    sampling : Sampling, optional
        How the stacks of the points are drawn; the same files come out for the same one.
    form : str
        ``svg``, ``pdf`` or ``png``.

    Raises
    ------
    DeriveError
        If `folder` is a file.
    MissingExtraError
        If matplotlib is not installed.
    """
    if folder.exists() and not folder.is_dir():
        raise DeriveError(f"out: expected a folder, got the file {str(folder)!r}")
    folder.mkdir(parents=True, exist_ok=True)
    for plate in plates:
        with paper_style():
            yield save(plate.draw(sampling or Sampling()), folder / f"{plate.name}.{form}")


def gallery_page(folder: str = "gallery") -> str:
    """Return the page of the gallery as Markdown; `folder` is where the figures are, from it."""
    drawn = Sampling()
    parts = [
        "# Gallery\n",
        "Written by `make gallery`. Lines are the depth laws, composed from each block's "
        "expression; points are stacks with random weights, "
        f"{drawn.seeds} for each point, of width {drawn.width}, with 95 % intervals of the mean "
        "(one in twenty misses by chance). Figures are vectors of one or two columns' width in "
        "the palette of Okabe and Ito, and the same files come out every time. How the laws come "
        "about is in [laws.md](laws.md).\n",
    ]
    for plate in PLATES.values():
        parts += [
            f"## {plate.title}\n",
            f"![{plate.title}]({folder}/{plate.name}.svg)\n",
            f"{plate.shows}\n",
            f"Made by `derive gallery {plate.name}`. Source: {plate.source}.\n",
        ]
    return "\n".join(parts)
