"""Sums and chains of operators, flat and n-ary."""

from __future__ import annotations

from functools import cached_property

from derive.errors import ShapeError, UnknownNodeError
from derive.linalg.arrays import Array
from derive.linalg.operator import Operator
from derive.linalg.tokenwise import Identity, Zero

__all__ = ["Chain", "Sum"]


class Sum(Operator):
    """The sum of operators, ``y = A_0 x + A_1 x + ...``.

    Nested sums are flattened and zeros dropped.

    Parameters
    ----------
    *ops : Operator
        At least one; all with the same tokens, rows and cols.

    Attributes
    ----------
    terms : tuple of Operator
        The flat terms; empty if all were zero.

    Raises
    ------
    ShapeError
        If there is no operator, or two do not have the same shape.
    UnknownNodeError
        If one is not an Operator.
    """

    terms: tuple[Operator, ...]

    def __init__(self, *ops: Operator) -> None:
        first = _checked("Sum", ops)
        for place, op in enumerate(ops):
            if (op.tokens, op.rows, op.cols) != (first.tokens, first.rows, first.cols):
                raise ShapeError(
                    f"Sum, operand {place}: expected the shape of {first!r}, got {op!r}"
                )
        flat = (term for op in ops for term in (op.terms if isinstance(op, Sum) else (op,)))
        self.terms = tuple(term for term in flat if not isinstance(term, Zero))
        super().__init__(
            first.tokens, first.rows, first.cols, tokenwise=all(t.tokenwise for t in self.terms)
        )

    def _apply(self, x: Array) -> Array:
        if not self.terms:
            return Zero(self.tokens, self.rows, self.cols)._apply(x)
        return _added([term._apply(x) for term in self.terms])

    def _apply_transposed(self, x: Array) -> Array:
        if not self.terms:
            return Zero(self.tokens, self.cols, self.rows)._apply(x)
        return _added([term._apply_transposed(x) for term in self.terms])

    @cached_property
    def _transposed(self) -> Sum:
        if not self.terms:
            return Sum(Zero(self.tokens, self.cols, self.rows))
        terms = tuple(term._transposed for term in self.terms)
        return self._altered(self.tokens, self.cols, self.rows, terms=terms)

    @property
    def _work(self) -> int:
        return sum(term._work for term in self.terms)


class Chain(Operator):
    """The product of operators as a matrix product: ``Chain(A, B)`` is ``A @ B``, B applied first.

    Nested chains are flattened and identities dropped, so that a thousand layers are one tuple.

    Parameters
    ----------
    *ops : Operator
        At least one; the cols of each are the rows of the next.

    Attributes
    ----------
    factors : tuple of Operator
        The flat factors, the last applied first; empty if all were identities.

    Raises
    ------
    ShapeError
        If there is no operator, or two neighbours do not fit.
    UnknownNodeError
        If one is not an Operator.
    """

    factors: tuple[Operator, ...]

    def __init__(self, *ops: Operator) -> None:
        first = _checked("Chain", ops)
        for place in range(1, len(ops)):
            outer, inner = ops[place - 1], ops[place]
            if outer.tokens != inner.tokens or outer.cols != inner.rows:
                raise ShapeError(
                    f"Chain, operand {place}: expected tokens={outer.tokens}, rows={outer.cols} "
                    f"to be multiplied by {outer!r}, got {inner!r}"
                )
        flat = (factor for op in ops for factor in (op.factors if isinstance(op, Chain) else (op,)))
        self.factors = tuple(factor for factor in flat if not isinstance(factor, Identity))
        super().__init__(
            first.tokens, first.rows, ops[-1].cols, tokenwise=all(f.tokenwise for f in self.factors)
        )

    def _apply(self, x: Array) -> Array:
        if not self.factors:
            return Identity(self.tokens, self.rows)._apply(x)
        for factor in reversed(self.factors):
            x = factor._apply(x)
        return x

    def _apply_transposed(self, x: Array) -> Array:
        if not self.factors:
            return Identity(self.tokens, self.rows)._apply(x)
        for factor in self.factors:
            x = factor._apply_transposed(x)
        return x

    @cached_property
    def _transposed(self) -> Chain:
        if not self.factors:
            return self
        factors = tuple(factor._transposed for factor in reversed(self.factors))
        return self._altered(self.tokens, self.cols, self.rows, factors=factors)

    @property
    def _work(self) -> int:
        return sum(factor._work for factor in self.factors)


def _added(images: list[Array]) -> Array:
    """Add fresh arrays; one that is shared by all tokens has a leading axis of 1."""
    total = images[0]
    for image in images[1:]:
        if image.shape == total.shape:
            total += image
        else:
            total = total + image
    return total


def _checked(name: str, ops: tuple[Operator, ...]) -> Operator:
    """Return the first operand after checking that all are operators."""
    if not ops:
        raise ShapeError(f"{name}: expected at least one operator, got none")
    for place, op in enumerate(ops):
        if not isinstance(op, Operator):
            raise UnknownNodeError(
                f"{name}, operand {place}: expected an Operator, got {type(op).__name__}"
            )
    return ops[0]
