r"""Placements: where the normalisation sits in a residual block, one declarative entry each.

The equation is a text in ``x`` (the state), ``N`` (a norm) and ``F`` (a sublayer); everything else
(Jacobian, LaTeX, numbers, checks) follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from derive.errors import UnknownNameError

__all__ = ["PLACEMENTS", "Placement", "placement"]


@dataclass(frozen=True)
class Placement:
    """One way to place the norm.

    Attributes
    ----------
    name : str
        How it is asked for.
    equation : str
        The block; parsed, never evaluated.
    source : str
        Where the placement was published or first used.
    """

    name: str
    equation: str
    source: str


PLACEMENTS: dict[str, Placement] = {
    p.name: p
    for p in (
        Placement(
            "post",
            "N(x + F(x))",
            "Vaswani et al., Attention Is All You Need, 2017, section 3.1",
        ),
        Placement(
            "pre",
            "x + F(N(x))",
            "Baevski and Auli, 2018; Xiong et al., On Layer Normalization in the Transformer "
            "Architecture, 2020, arXiv:2002.04745",
        ),
    )
}


def placement(name: str) -> Placement:
    """Return the placement of that name.

    Raises
    ------
    UnknownNameError
        If there is none; the message lists those there are.
    """
    try:
        return PLACEMENTS[name.lower()]
    except KeyError:
        raise UnknownNameError(
            f"placement: expected one of {', '.join(PLACEMENTS)} or a block such as "
            f"'x + F(N(x))', got {name!r}"
        ) from None
