"""Sources of claims: what was published, where in it, and what of it was seen."""

from __future__ import annotations

from dataclasses import dataclass

from derive.errors import DomainError

__all__ = ["SEEN", "Cite", "Source"]

SEEN = {
    "text": "read in the text",
    "code": "read in the authors' code",
    "secondary": "read in a third party's account",
    "memory": "recalled, not seen",
}
"""What a citation rests on, strongest first."""


@dataclass(frozen=True)
class Source:
    """A publication or a document.

    Attributes
    ----------
    key : str
        How it is referred to, as in ``xiong2020``.
    authors, title : str
        As published; "and others" for more than two authors.
    year : int
        Of the first version.
    where : str
        Identifier or venue: ``arXiv:2002.04745``.
    """

    key: str
    authors: str
    year: int
    title: str
    where: str = ""

    @property
    def short(self) -> str:
        """Authors and year."""
        return f"{self.authors}, {self.year}"

    def __call__(self, place: str = "", seen: str = "secondary") -> Cite:
        """Cite a place in it, and say what was seen of it."""
        return Cite(self, place, seen)


@dataclass(frozen=True)
class Cite:
    """A place in a source.

    Attributes
    ----------
    source : Source
        The publication.
    place : str
        Theorem, equation, section or page.
    seen : str
        One of `SEEN`.
    """

    source: Source
    place: str = ""
    seen: str = "secondary"

    def __post_init__(self) -> None:
        if self.seen not in SEEN:
            raise DomainError(f"seen: expected one of {', '.join(SEEN)}, got {self.seen!r}")

    def __str__(self) -> str:
        place = f", {self.place}" if self.place else ""
        return f"{self.source.short}{place} ({SEEN[self.seen]})"
