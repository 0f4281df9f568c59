"""Certificates that rest on a run: ``observed`` facts about installed software, and ``training``.

An observation reads something off a real configuration or block, a training run measures one. Both
state what came out and hold where it comes out again. They support and never prove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from derive.proof.check import Certificate, Check, Formula, Subject
from derive.proof.stated import stated_number, wrong_numbers

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
        number, tolerance = stated_number(self.stated)
        holds = abs(Fraction(found) - number) <= tolerance
        return Certificate(self.label, self.formula().text, holds, f"found {found:.9g}")

    def formula(self) -> Formula:
        """Return what is stated."""
        return Formula(f"{self.quantity} = {self.stated}")

    def wrong(self) -> Iterator[tuple[str, Check]]:
        """Yield other numbers, and the number of another subject."""
        number, _ = stated_number(self.stated)
        for kind, changed in wrong_numbers(number):
            # nothing but 0 has no sign, factor or term of its own
            yield kind, replace(self, stated=changed if number else "1")
        yield "placement", replace(self, of=self.instead)


@dataclass(frozen=True, kw_only=True)
class Training(Observed):
    """A number that a short training run ends with, to the digits that rounding leaves alone."""

    kind = "training"
