"""Certificates that rest on a run: ``observed`` facts about installed software, and ``training``.

An observation reads something off a real configuration or block, a training run measures one. Both
state what came out and hold where it comes out again. They support and never prove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from derive.errors import DomainError
from derive.proof.check import Certificate, Check, Formula, Subject
from derive.proof.counterexample import _decimal

__all__ = ["Observed", "Training"]


@dataclass(frozen=True, kw_only=True)
class Observed(Check):
    """A number that installed software has: a depth, an error against a placement, a count.

    Attributes
    ----------
    claim : callable
        From the subject to the number that is found.
    of, instead : callable
        Return the subject, and another one that has another number.
    stated : str
        The number in decimal notation: an integer, or at least three digits.
    quantity : str
        What it is, in words; formulas between dollar signs.
    """

    claim: Callable[[Any], float]
    of: Subject
    instead: Subject
    stated: str
    quantity: str
    kind = "observed"

    def certificate(self) -> Certificate:
        """Read the number again and compare."""
        found = float(self.claim(self.of()))
        holds = abs(Fraction(found) - Fraction(self.stated)) <= _tolerance(self.stated)
        return Certificate(self.label, self.formula().text, holds, f"found {found:.9g}")

    def formula(self) -> Formula:
        """Return what is stated."""
        return Formula(f"{self.quantity} = {self.stated}")

    def wrong(self) -> Iterator[tuple[str, Check]]:
        """Yield other numbers, and the number of another subject."""
        number = Fraction(self.stated)
        changes = {
            "sign": -number,
            "factor": number * Fraction(101, 100),
            "zero": Fraction(0),
            "term": number - 1,
        }
        for kind, changed in changes.items():
            if number == 0:
                changed = Fraction(1)  # nothing but 0 has no sign, factor or term of its own
            yield kind, replace(self, stated=_decimal(changed))
        yield "placement", replace(self, of=self.instead)


@dataclass(frozen=True, kw_only=True)
class Training(Observed):
    """A number that a short training run ends with, to the digits that rounding leaves alone."""

    kind = "training"


def _tolerance(stated: str) -> Fraction:
    """Return half a unit of the last digit; an integer is meant exactly."""
    mantissa, _, power = stated.lower().partition("e")
    whole, point, decimals = mantissa.partition(".")
    if not point and not power:
        return Fraction(0)
    if len((whole + decimals).lstrip("-+0")) < 3:
        raise DomainError(f"stated: expected an integer or at least three digits, got {stated!r}")
    return Fraction(10) ** (int(power or 0) - len(decimals)) / 2
