"""Assumptions as objects: a theorem without them is another claim, and they can be instantiated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product as every
from typing import Any

import sympy as sp

from derive.errors import DomainError

__all__ = ["Assumption", "given", "satisfying", "without_each"]


@dataclass(frozen=True)
class Assumption:
    """Something that a theorem supposes.

    Attributes
    ----------
    name : str
        A short name.
    statement : str
        In words; formulas between dollar signs.
    at : tuple of pairs
        What is put in place of a general quantity: ``((eps, 0),)``, or ``((x, C * x),)`` for an
        input of mean zero. Empty where the assumption restricts scalars only.
    relation : relation or True
        What scalars have to satisfy.
    """

    name: str
    statement: str
    at: tuple[tuple[sp.Basic, Any], ...] = ()
    relation: sp.Basic = sp.true


def given(expr: sp.Basic, assumptions: Iterable[Assumption]) -> sp.Basic:
    """Return an expression with the assumptions put in."""
    for one in assumptions:
        expr = expr.xreplace({a: sp.sympify(b) for a, b in one.at}) if one.at else expr
    return expr


def without_each(assumptions: Sequence[Assumption]) -> Iterator[tuple[Assumption, ...]]:
    """Yield the assumptions with one of them dropped, for each of them."""
    for one in assumptions:
        yield tuple(a for a in assumptions if a is not one)


_POINTS = (0, 1, 2, 3, 4, 7, 64, Fraction(1, 2), Fraction(1, 100), -1, Fraction(-1, 3))
_MOST = 20_000


def satisfying(assumptions: Iterable[Assumption]) -> dict[sp.Basic, Any]:
    """Return values of the scalars that satisfy all assumptions: an instance of them.

    Quantities that an assumption replaces are among them. What is found is an instance; that none
    is found among some 20,000 points is reported as an error, since a theorem about nothing is
    true of everything.

    Raises
    ------
    DomainError
        If two assumptions put different things in one place, or no point satisfies the relations.
    """
    assumptions = tuple(assumptions)
    put: dict[sp.Basic, Any] = {}
    for one in assumptions:
        for quantity, value in one.at:
            value = sp.sympify(value)
            if put.setdefault(quantity, value) != value:
                raise DomainError(
                    f"assumptions: {one.name} puts {value} in place of {quantity}, where "
                    f"{put[quantity]} stands already; no input satisfies both"
                )
    relation = sp.And(*(a.relation for a in assumptions)).subs(
        {q: v for q, v in put.items() if isinstance(q, sp.Symbol)}
    )
    symbols = sorted(relation.free_symbols, key=str)
    for k, point in enumerate(_points(symbols)):
        if relation.subs(point) == sp.true:
            return {**put, **point}
        if k == _MOST:
            break
    names = ", ".join(a.name for a in assumptions)
    raise DomainError(f"assumptions: nothing was found that satisfies {names} ({relation})")


def _points(symbols: list[sp.Symbol]) -> Iterator[dict[sp.Basic, Any]]:
    choices = [[v for v in map(sp.sympify, _POINTS) if _allowed(s, v)] for s in symbols]
    return (dict(zip(symbols, values, strict=True)) for values in every(*choices))


def _allowed(symbol: sp.Symbol, value: sp.Expr) -> bool:
    """Whether a value agrees with what a symbol is declared to be."""
    if symbol.is_integer and not value.is_integer:
        return False
    if symbol.is_positive:
        return bool(value > 0)
    return not (symbol.is_nonnegative and value < 0)
