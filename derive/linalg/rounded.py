r"""Rounding to narrow floating-point formats, and operators that round every result.

The arithmetic itself runs in double precision and each result is rounded once, to nearest with ties
to even. For a sum, product, quotient or square root of float32 numbers that is exactly what float32
hardware returns; a dot product or matrix product is accumulated in double precision and rounded
once, which is what hardware with a wide accumulator approaches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from derive.errors import UnknownNameError, UnknownNodeError
from derive.linalg.arrays import Array
from derive.linalg.composition import Chain, Sum
from derive.linalg.operator import Operator
from derive.linalg.tokenwise import Identity, Zero

__all__ = ["FORMATS", "Format", "Rounded", "Rounding", "number_format", "rounded"]

Rounding: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes
    ----------
    name : str
        How it is asked for.
    digits : int
        Binary digits of the significand, the leading one included.
    largest : float
        The largest finite number.
    """

    name: str
    digits: int
    largest: float

    @property
    def unit(self) -> float:
        r"""The unit roundoff :math:`u = 2^{-p}`: half the distance from 1 to the next number."""
        return 2.0**-self.digits

    def __call__(self, values: Array) -> Array:
        """Return the nearest numbers of the format, ties to even, as float64.

        What is beyond the largest number by half a step or more becomes infinite; what is too small
        becomes a subnormal number or zero of the same sign. NaN stays NaN.
        """
        values = np.asarray(values, dtype=np.float64)
        if self.name == "float64":
            return values
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if self.name == "bfloat16":
                return _to_bfloat16(values)
            return values.astype(self.name).astype(np.float64)


FORMATS = {
    f.name: f
    for f in (
        Format("float64", 53, float(np.finfo(np.float64).max)),
        Format("float32", 24, float(np.finfo(np.float32).max)),
        Format("bfloat16", 8, (2 - 2.0**-7) * 2.0**127),
        Format("float16", 11, 65504.0),
    )
}
"""The formats by name. Source: IEEE 754-2019, table 3.5; bfloat16 is float32 without its last
sixteen bits."""


def number_format(name: str | Format) -> Format:
    """Return the format of a name.

    Raises
    ------
    UnknownNameError
        If there is none.
    """
    if isinstance(name, Format):
        return name
    try:
        return FORMATS[str(name)]
    except KeyError:
        raise UnknownNameError(
            f"dtype: expected one of {', '.join(FORMATS)}, got {name!r}"
        ) from None


def _to_bfloat16(values: Array) -> Array:
    """Round by the bits of float32.

    Through float32 the rounding would be done twice. So float32 is taken *to odd* first: towards
    zero, and the last bit set where that was not exact; with sixteen bits more than the target no
    tie is made or missed.
    """
    narrow = np.atleast_1d(values).astype(np.float32)
    bits = narrow.view(np.uint32)
    wide = narrow.astype(np.float64)
    is_nan = np.isnan(narrow)
    beyond = np.abs(wide) > np.abs(np.atleast_1d(values))  # rounded away from zero
    bits = np.where(beyond, bits - np.uint32(1), bits)
    inexact = (bits.view(np.float32).astype(np.float64) != np.atleast_1d(values)) & ~is_nan
    bits = np.where(inexact, bits | np.uint32(1), bits)
    # To nearest: half a step less one, and one more where the kept part is odd.
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    nearest = (bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
    kept = np.where(is_nan, np.uint32(0x7FC00000), nearest).astype(np.uint32)
    return kept.view(np.float32).astype(np.float64).reshape(np.shape(values))


class Rounded(Operator):
    r"""An operator whose result is rounded: :math:`y = \operatorname{fl}(Jx)`.

    It is not linear, by as much as it rounds. Its transpose rounds as well.

    Parameters
    ----------
    op : Operator
        J.
    rounding : callable
        What a result is rounded with, such as a `Format`.

    Raises
    ------
    UnknownNodeError
        If `op` is not an operator.
    """

    op: Operator
    rounding: Rounding

    def __init__(self, op: Operator, rounding: Rounding) -> None:
        if not isinstance(op, Operator):
            raise UnknownNodeError(f"op: expected an Operator, got {type(op).__name__}")
        self.op = op
        self.rounding = rounding
        super().__init__(op.tokens, op.rows, op.cols, tokenwise=op.tokenwise)

    def _apply(self, x: Array) -> Array:
        return self.rounding(self.op._apply(x))

    @cached_property
    def _transposed(self) -> Rounded:
        return Rounded(self.op._transposed, self.rounding)

    @property
    def _work(self) -> int:
        return self.op._work


class _RoundedSum(Operator):
    """A sum of operators, rounded after every addition, the first term first."""

    def __init__(self, terms: tuple[Operator, ...], rounding: Rounding) -> None:
        self.terms = terms
        self.rounding = rounding
        first = terms[0]
        tokenwise = all(t.tokenwise for t in terms)
        super().__init__(first.tokens, first.rows, first.cols, tokenwise=tokenwise)

    def _apply(self, x: Array) -> Array:
        total = self.terms[0]._apply(x)
        for term in self.terms[1:]:
            total = self.rounding(total + term._apply(x))
        return total

    @cached_property
    def _transposed(self) -> _RoundedSum:
        return _RoundedSum(tuple(t._transposed for t in self.terms), self.rounding)

    @property
    def _work(self) -> int:
        return sum(term._work for term in self.terms)


def rounded(op: Operator, rounding: Rounding) -> Operator:
    """Return an operator that rounds after every factor of a chain and every term of a sum.

    Parameters
    ----------
    op : Operator
        The operator; what is `Rounded` already stays as it is.
    rounding : callable
        What a result is rounded with, such as a `Format`.

    Returns
    -------
    Operator

    Raises
    ------
    UnknownNodeError
        If `op` is not an operator.
    """
    if isinstance(op, Rounded | _RoundedSum | Identity | Zero):
        return op
    if isinstance(op, Chain) and op.factors:
        return Chain(*(rounded(factor, rounding) for factor in op.factors))
    if isinstance(op, Sum) and op.terms:
        return _RoundedSum(tuple(rounded(term, rounding) for term in op.terms), rounding)
    return Rounded(op, rounding)
