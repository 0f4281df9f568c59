r"""Certificates of kind ``counterexample``: a witness, in rational or interval arithmetic.

The refuted claim says that left is at most, or equals, right. At the witness both sides are
enclosed, and their enclosures are apart in the way that refutes it; the author states both values,
which have to agree with the enclosures to all digits written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import sympy as sp

from derive.calculus.printing import latex, text
from derive.calculus.tensor import is_scalar
from derive.errors import DomainError
from derive.proof.assumption import Assumption, given, without_each
from derive.proof.check import Certificate, Check, Formula, Subject
from derive.proof.interval import Interval, IntervalRing, enclose, entries, sizes_at
from derive.proof.stated import stated_number, wrong_numbers

__all__ = ["Counterexample", "agrees", "largest_gap"]

SYMBOLS = {">": ">", "<": "<", "!=": r"\ne"}


@dataclass(frozen=True, kw_only=True)
class Counterexample(Check):
    """A witness at which two sides are apart.

    Attributes
    ----------
    claim : callable
        From the subject to the two sides: exact scalars, or expressions of the calculus.
    of, instead : callable
        Return the subject, and another one, at which the stated values are wrong.
    relation : str
        What holds at the witness: ``>``, ``<`` or ``!=``.
    stated : pair of str
        Both values in decimal notation, at least three digits: ``("16777216", "24")``. For vectors
        and matrices, which can only be unequal, the largest distance of two entries and ``"0"``.
    at : mapping
        Values of vectors, matrices, states and symbols by name; what is missing is drawn.
    width, tokens : int
        d and n of the witness, for expressions of the calculus.
    """

    claim: Callable[[Any], tuple[Any, Any]]
    of: Subject
    instead: Subject
    relation: str
    stated: tuple[str, str]
    at: dict[str, Any] = field(default_factory=dict)
    assuming: tuple[Assumption, ...] = ()
    width: int = 2
    tokens: int = 1
    seed: int = 0
    kind = "counterexample"

    def __post_init__(self) -> None:
        if self.relation not in SYMBOLS:
            raise DomainError(f"relation: expected one of >, <, !=, got {self.relation!r}")

    def sides(self) -> tuple[sp.Basic, sp.Basic]:
        """Return both sides, with the assumptions put in."""
        left, right = self.claim(self.of())
        return given(sp.sympify(left), self.assuming), given(sp.sympify(right), self.assuming)

    def enclosed(self) -> tuple[Interval, Interval]:
        """Return both sides at the witness; for matrices, their largest distance and 0."""
        left, right = self.sides()
        if _is_plain(left) and _is_plain(right):
            symbols = {s.name: s for s in left.free_symbols | right.free_symbols}
            at = {s: self.at[name] for name, s in symbols.items() if name in self.at}
            return enclose(left, at), enclose(right, at)
        ring = IntervalRing(self.seed, self.at)
        sizes = sizes_at(self.width, self.tokens)
        found = [entries(side, ring, sizes, self.tokens) for side in (left, right)]
        if is_scalar(left) and is_scalar(right):
            return found[0][0], found[1][0]
        return largest_gap(*found), Interval(0)

    def certificate(self) -> Certificate:
        """Enclose both sides; compare them with each other and with what is stated."""
        left, right = self.enclosed()
        apart = {
            ">": left.above(right),
            "<": right.above(left),
            "!=": left.apart(right),
        }[self.relation]
        as_stated = agrees(left, self.stated[0]) and agrees(right, self.stated[1])
        detail = f"left = {float(left):.9g}, right = {float(right):.9g}"
        if not as_stated:
            detail += f"; stated are {self.stated[0]} and {self.stated[1]}"
        return Certificate(self.label, self.formula().text, apart and as_stated, detail)

    def formula(self) -> Formula:
        """Return the relation at the witness."""
        left, right = self.sides()
        sign, values = self.relation, self.stated
        if is_scalar(left) and is_scalar(right):
            numbers = f"({values[0]} {sign} {values[1]})"
            numbers_latex = rf"\quad ({values[0]} {SYMBOLS[sign]} {values[1]})"
        else:
            numbers = f"(entries differ by {values[0]})"
            numbers_latex = rf"\quad \text{{(entries differ by ${values[0]}$)}}"
        return Formula(
            f"{text(left)} {sign} {text(right)} {numbers}",
            latex(left),
            SYMBOLS[sign],
            f"{latex(right)} {numbers_latex}",
        )

    def wrong(self) -> Iterator[tuple[str, Check]]:
        """Yield the witness with other values stated, the claim put to another subject."""
        left, right = self.stated
        for value, rebuilt in ((left, lambda v: (v, right)), (right, lambda v: (left, v))):
            number = Fraction(value)
            if number == 0:
                continue
            for kind, changed in wrong_numbers(number):
                yield kind, replace(self, stated=rebuilt(changed))
        for rest in without_each(self.assuming):
            yield "assumption", replace(self, assuming=rest)
        yield "placement", replace(self, of=self.instead)


def _is_plain(expr: sp.Basic) -> bool:
    return not any(getattr(e, "is_Matrix", False) for e in sp.preorder_traversal(expr))


def largest_gap(left: list[Interval], right: list[Interval]) -> Interval:
    """Return the largest distance of two entries, enclosed."""
    if len(left) != len(right):
        raise DomainError(f"sides: expected as many entries, got {len(left)} and {len(right)}")
    gaps = [a - b for a, b in zip(left, right, strict=True)]
    return Interval(abs(max(gaps, key=lambda g: abs(float(g))).iv))


def agrees(value: Interval, stated: str) -> bool:
    """Whether a number, to half a unit of its last digit as written, agrees with an interval.

    An integer is meant exactly. Fewer than three digits are refused unless it is one.

    Raises
    ------
    DomainError
        If the text is not a decimal number with enough digits.
    """
    number, tolerance = stated_number(stated)
    if tolerance:
        return value.meets(number - tolerance, number + tolerance)
    return value.meets(number, number) or _exactly(value, number)


def _exactly(value: Interval, number: Fraction) -> bool:
    """Whether an integer is the only one that an enclosure allows, to its width."""
    tiny = Fraction(1, 10**20) * (1 + abs(number))
    return value.meets(number - tiny, number + tiny)
