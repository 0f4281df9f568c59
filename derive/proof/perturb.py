"""Wrong claims made from a right one: what every certificate has to reject.

A claim is an equation. It is made wrong by a flipped sign, a factor 1.01, a dropped term, or by
claiming zero. A change that happens to leave the claim true (the sign of nothing) is no wrong
claim: an oracle that shares nothing with the certificate decides which changes matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import sympy as sp

from derive.calculus.atoms import Inner, Ones
from derive.calculus.tensor import Product, Sum, Transposed, is_scalar, product, total
from derive.calculus.trace import Trace
from derive.errors import DeriveError

__all__ = ["KINDS", "Sides", "wrong_sides", "zero_like"]

KINDS = ("sign", "factor", "term", "zero", "assumption", "placement")
"""What a claim is made wrong by; the last two are made from the theorem, not from the equation."""

FACTOR = sp.Rational(101, 100)
MOST = 2
"""Wrong claims of one kind that are tried."""

Sides = tuple[sp.Basic, sp.Basic]


def zero_like(expr: sp.Basic) -> sp.Basic:
    """Return zero in the shape of an expression."""
    return sp.S.Zero if is_scalar(expr) else sp.ZeroMatrix(*expr.shape)


def _is_zero(expr: sp.Basic) -> bool:
    return expr == 0 or bool(getattr(expr, "is_ZeroMatrix", False))


def wrong_sides(sides: Sides, false: Callable[[Sides], bool]) -> dict[str, list[Sides]]:
    """Return wrong versions of an equation, by kind.

    Parameters
    ----------
    sides : pair of expressions
        Left and right side.
    false : callable
        Whether an equation does not hold, decided independently of the certificate.
    """
    makers: dict[str, Callable[[Sides], Iterator[Sides]]] = {
        "sign": lambda s: _scaled(s, sp.S.NegativeOne),
        "factor": lambda s: _scaled(s, FACTOR),
        "term": _dropped,
        "zero": _zeros,
    }
    found: dict[str, list[Sides]] = {}
    for kind, make in makers.items():
        kept: list[Sides] = []
        for candidate in make(sides):
            if len(kept) == MOST:
                break
            if candidate not in kept and _is_false(candidate, false):
                kept.append(candidate)
        found[kind] = kept
    return found


def _is_false(sides: Sides, false: Callable[[Sides], bool]) -> bool:
    """Whether an equation is wrong; one that has no meaning (a root of less than 0) is not."""
    try:
        return false(sides)
    except DeriveError:
        return False


def _scaled(sides: Sides, factor: sp.Expr) -> Iterator[Sides]:
    """Multiply the right side, or one term of a sum anywhere in the equation."""
    left, right = sides
    yield left, product([factor, right])
    for where, other in ((1, left), (0, right)):
        for changed in _in_sums(sides[where], lambda term: product([factor, term])):
            yield (other, changed) if where else (changed, other)


def _dropped(sides: Sides) -> Iterator[Sides]:
    """Drop one term of a sum anywhere in the equation; where there is none, subtract a unit."""
    left, right = sides
    for where, other in ((1, left), (0, right)):
        for changed in _in_sums(sides[where], zero_like):
            yield (other, changed) if where else (changed, other)
    yield left, total([right, product([-1, _unit(right)])])


def _zeros(sides: Sides) -> Iterator[Sides]:
    """Claim that the left side is zero, or, where it is, that a factor of it is."""
    left, right = sides
    if not _is_zero(right):
        yield left, zero_like(left)
    yield from ((part, zero_like(part)) for part in _parts(left))
    yield from ((part, zero_like(part)) for part in _parts(right))
    yield total([left, _unit(left)]), zero_like(left)


def _parts(expr: sp.Basic) -> Iterator[sp.Basic]:
    """Yield a product with its last or first matrix left out, the factors of an inner product."""
    if isinstance(expr, Inner):
        yield from expr.args
    if isinstance(expr, Sum):
        yield expr.args[0]
    if isinstance(expr, Product):
        places = [k for k, a in enumerate(expr.args) if not is_scalar(a)]
        for drop in (places[-1:], places[:1]):
            rest = [a for k, a in enumerate(expr.args) if k not in drop]
            if rest:
                yield product(rest)


def _unit(expr: sp.Basic) -> sp.Basic:
    """Return something of the same shape that is not zero."""
    if is_scalar(expr):
        return sp.S.One
    rows, cols = expr.shape
    if cols == 1:
        return Ones(rows)
    if rows == cols:
        return sp.Identity(rows)
    row = Transposed(Ones(cols))
    return row if rows == 1 else product([Ones(rows), row])


def _in_sums(expr: sp.Basic, change: Callable[[sp.Basic], sp.Basic]) -> Iterator[sp.Basic]:
    """Yield the expression with one term of one sum changed; named quantities stay as they are."""
    if isinstance(expr, Sum | sp.Add):
        join = total if isinstance(expr, Sum) else (lambda terms: sp.Add(*terms))
        for k, term in enumerate(expr.args):
            yield join([*expr.args[:k], change(term), *expr.args[k + 1 :]])
    rebuild: Callable[[list[sp.Basic]], sp.Basic]
    if isinstance(expr, Product):
        rebuild = product
    elif isinstance(expr, Sum):
        rebuild = total
    elif isinstance(expr, sp.Add | sp.Mul | sp.Pow | Inner | Trace | Transposed | sp.Function):

        def rebuild(args: list[sp.Basic]) -> sp.Basic:
            return expr.func(*args)
    else:
        return
    for k, part in enumerate(expr.args):
        for changed in _in_sums(part, change):
            yield rebuild([*expr.args[:k], changed, *expr.args[k + 1 :]])
