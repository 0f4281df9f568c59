r"""Initialisation schemes as what they do to variance: the factors that a law is made of.

A linear map with weights of variance :math:`\sigma^2` takes a vector of ``fan_in`` entries of mean
square v to entries of mean square :math:`\text{fan\_in}\,\sigma^2 v`; that factor is its *gain*.
A law depends on an initialisation through these factors only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy as sp

from derive.errors import DomainError, UnknownNameError
from derive.symbols import L, d, f

__all__ = ["SCHEMES", "Scheme", "scheme"]

Number = Any


@dataclass(frozen=True)
class Scheme:
    r"""An initialisation.

    Attributes
    ----------
    name : str
        How it is asked for.
    variance : callable
        ``(fan_in, fan_out)`` to the variance of the weights of a linear map.
    residual : expression
        Factor of the standard deviation of maps that write to the residual stream (output
        projections); may depend on the number of blocks L.
    value : expression
        Factor of the standard deviation of feed-forward, value and output projections (DeepNorm's
        beta); may depend on L.
    source : str
        Where it is from.
    """

    name: str
    variance: Callable[[Number, Number], Number]
    source: str
    residual: sp.Expr = sp.S.One
    value: sp.Expr = sp.S.One

    def gain(self, fan_in: Number, fan_out: Number, *, writes: bool, scaled: bool = True) -> Number:
        """Return ``fan_in`` times the variance of the weights.

        Parameters
        ----------
        fan_in, fan_out : int or expression
            Shape of the map.
        writes : bool
            Whether it writes to the residual stream.
        scaled : bool
            Whether `value` applies: not for queries and keys.
        """
        factor = (self.residual if writes else 1) * (self.value if scaled else 1)
        return sp.sympify(fan_in * self.variance(fan_in, fan_out) * factor**2)


def _fixed(std: str) -> Callable[[Number, Number], Number]:
    return lambda fan_in, fan_out: sp.Rational(std) ** 2


_SCHEMES = (
    Scheme(
        "lecun",
        lambda fan_in, fan_out: sp.S.One / fan_in,
        "LeCun et al., Efficient BackProp, 1998, equation (16)",
    ),
    Scheme(
        "xavier",
        lambda fan_in, fan_out: sp.Integer(2) / (fan_in + fan_out),
        "Glorot and Bengio, Understanding the difficulty of training deep feedforward neural "
        "networks, 2010, equation (16)",
    ),
    Scheme(
        "he",
        lambda fan_in, fan_out: sp.Integer(2) / fan_in,
        "He et al., Delving Deep into Rectifiers, 2015, arXiv:1502.01852, equation (10)",
    ),
    Scheme(
        "gpt2",
        _fixed("0.02"),
        "Radford et al., 2019, section 2.3: N(0, 0.02^2), writing maps scaled by 1/sqrt(L) with L "
        "residual blocks",
        residual=1 / sp.sqrt(L),
    ),
    Scheme(
        "deepnorm",
        lambda fan_in, fan_out: sp.Integer(2) / (fan_in + fan_out),
        "Wang et al., DeepNet, 2022, arXiv:2203.00555: Xavier with gain beta = (4 L)^(-1/4)",
        value=(4 * L) ** sp.Rational(-1, 4),
    ),
)

SCHEMES: dict[str, Scheme] = {s.name: s for s in _SCHEMES}


def scheme(name: str | Scheme) -> Scheme:
    """Return the initialisation of that name.

    Raises
    ------
    UnknownNameError
        If there is none; the message lists those there are.
    """
    if isinstance(name, Scheme):
        return name
    try:
        return SCHEMES[str(name).lower()]
    except KeyError:
        raise UnknownNameError(
            f"init: expected one of {', '.join(SCHEMES)}, got {name!r}"
        ) from None


def sizes(width: int | None, hidden: int | None, blocks: int | None) -> dict[sp.Symbol, int]:
    """Return the substitution of width, hidden width (4 d by default) and number of blocks.

    Raises
    ------
    DomainError
        If a size is below 1 (a width below 3).
    """
    found: dict[sp.Symbol, int] = {}
    for name, symbol, size, least in (
        ("width", d, width, 3),
        ("hidden", f, 4 * width if hidden is None and width is not None else hidden, 1),
        ("layers", L, blocks, 1),
    ):
        if size is not None:
            if size < least:
                raise DomainError(f"{name}: expected at least {least}, got {size}")
            found[symbol] = size
    return found
