"""Numbers that an author states in decimal notation, and what makes them wrong."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from derive.errors import DomainError

__all__ = ["stated_number", "wrong_numbers"]


def stated_number(text: str) -> tuple[Fraction, Fraction]:
    """Return a number and how far a value may be from it: half a unit of its last digit.

    An integer is meant exactly. Fewer than three digits are refused unless it is one.

    Raises
    ------
    DomainError
        If the text is not a decimal number with enough digits.
    """
    try:
        number = Fraction(text)
    except ValueError:
        raise DomainError(f"stated: expected a decimal number, got {text!r}") from None
    mantissa, _, power = text.lower().partition("e")
    whole, point, decimals = mantissa.partition(".")
    if not point and not power:
        return number, Fraction(0)
    if len((whole + decimals).lstrip("-+0")) < 3:
        raise DomainError(f"stated: expected an integer or at least three digits, got {text!r}")
    return number, Fraction(10) ** (int(power or 0) - len(decimals)) / 2


def wrong_numbers(number: Fraction) -> Iterator[tuple[str, str]]:
    """Yield the number made wrong in each way, with the kind of the mistake, in full precision."""
    for kind, changed in (
        ("sign", -number),
        ("factor", number * Fraction(101, 100)),
        ("zero", Fraction(0)),
        ("term", number - 1),
    ):
        yield kind, _decimal(changed)


def _decimal(number: Fraction) -> str:
    """Return a number in decimal notation, with more digits than anyone states."""
    return str(number) if number.denominator == 1 else f"{float(number):.12e}"
