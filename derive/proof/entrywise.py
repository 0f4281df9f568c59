r"""Facts that rest on entries: signs of entries, Gershgorin's discs.

Each fact says what a norm is at most and shows it by the decision procedure and by named rules for
the signs of entries; what is not shown is not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import sympy as sp

from derive.calculus.atoms import Diag, Inner, Ones
from derive.calculus.let import Let, ScalarLet
from derive.calculus.normal_form import equal
from derive.calculus.pointwise import Pointwise
from derive.calculus.tensor import Product, Sum, Transposed, is_scalar, product, total
from derive.proof.assumption import Assumption, given
from derive.proof.scalars import sign_rule

__all__ = ["Entries", "Laplacian", "entries_not_negative"]


def entries_not_negative(vector: sp.Basic) -> bool:
    """Whether every entry of a column is shown to be at least 0.

    Rules: ones; a function whose formula is not negative; sums; products entry by entry, in which
    a vector that occurs twice is a square.
    """
    if isinstance(vector, Let):
        return entries_not_negative(vector.definition)
    if isinstance(vector, Sum):
        return all(map(entries_not_negative, vector.args))
    if isinstance(vector, Product):
        scalars = [a for a in vector.args if is_scalar(a)]
        *diagonals, last = vector.matrices
        if last.shape[1] != 1 or not all(isinstance(a, Diag) for a in diagonals):
            return False
        counts = Counter([*(a.args[0] for a in diagonals), last])
        odd = [v for v, count in counts.items() if count % 2]
        return all(map(_not_negative, scalars)) and all(map(entries_not_negative, odd))
    return isinstance(vector, Ones) or (isinstance(vector, Pointwise) and _function_sign(vector, 0))


def _not_negative(scalar: sp.Expr) -> bool:
    """Whether a scalar is at least 0, also one made of inner products of such vectors."""
    if isinstance(scalar, ScalarLet):
        return bool(sign_rule(scalar)) or _not_negative(scalar.definition)
    if isinstance(scalar, sp.Mul | sp.Add):
        return all(map(_not_negative, scalar.args))
    if isinstance(scalar, sp.Pow) and scalar.exp.is_integer:
        return bool(scalar.exp.is_even) or _not_negative(scalar.base)
    if isinstance(scalar, Inner):
        left, right = scalar.args
        return left == right or (entries_not_negative(left) and entries_not_negative(right))
    return bool(sign_rule(scalar))


def _function_sign(vector: Pointwise, bound: sp.Expr | None, *, above: bool = False) -> bool:
    r"""Whether :math:`f^{(k)}(t) \ge b`, or :math:`\le b`, for every real t, by the sign rules."""
    if vector.activation.is_abstract:
        return False
    value = vector.activation.derivative(vector.order).expr
    difference = sp.sympify(bound) - value if above else value - bound
    forms = (difference, sp.simplify(difference.rewrite(sp.exp)))
    return any(bool(sign_rule(form)) for form in forms)


@dataclass(frozen=True)
class Entries:
    r"""A vector whose entries are between 0 and a bound.

    So that :math:`\lVert v\rVert_\infty \le b`. Shown for a function at
    every entry by the signs of its formula; otherwise by
    :math:`b\mathbf 1 - v = \text{slack}` with signs of entries that are known.

    Attributes
    ----------
    vector, bound : expression
        v and b.
    slack : expression, optional
        What b exceeds v by, entry by entry.
    """

    vector: sp.Basic
    bound: sp.Expr
    slack: sp.Basic | None = None
    rule: ClassVar[str] = "bounds of entries"

    def given(self, assumptions: Sequence[Assumption]) -> Entries:
        """Return the fact with assumptions put in."""
        slack = None if self.slack is None else given(self.slack, assumptions)
        return Entries(given(self.vector, assumptions), given(self.bound, assumptions), slack)

    def holds(self) -> bool:
        """Whether that is shown."""
        v, b = self.vector, self.bound
        if isinstance(v, Pointwise):
            return _function_sign(v, sp.S.Zero) and _function_sign(v, b, above=True)
        if self.slack is None or not entries_not_negative(self.slack):
            return False
        whole = product([b, Ones(v.shape[0])])
        return entries_not_negative(v) and equal(total([whole, product([-1, v])]), self.slack)


@dataclass(frozen=True)
class Laplacian:
    r"""The Laplacian of a weighted graph, :math:`A = (1^\top a)\operatorname{diag}(a) - aa^\top`.

    The weights a are not negative. The entries off the diagonal are not positive and each row adds
    up to 0, so that Gershgorin's discs give
    :math:`\lVert A\rVert_2 \le 2\max_i a_i(\mathbf 1^\top a - a_i)`. With
    :math:`\mathbf 1^\top a = 1` that is at most 1/2, since :math:`\frac12 - 2t(1 - t) =
    \frac12(1 - 2t)^2`.

    Attributes
    ----------
    matrix, weights, bound : expression
        A, a, and what its norm is at most: ``MaxAbs(v)`` with v equal to
        :math:`2(\mathbf 1^\top a)a - 2a\odot a`, or one half.
    """

    matrix: sp.Basic
    weights: sp.Basic
    bound: sp.Expr
    rule: ClassVar[str] = "Gershgorin's discs"

    def given(self, assumptions: Sequence[Assumption]) -> Laplacian:
        """Return the fact with assumptions put in."""
        return Laplacian(*(given(e, assumptions) for e in (self.matrix, self.weights, self.bound)))

    def holds(self) -> bool:
        """Whether that is shown."""
        from derive.proof.size import MaxAbs

        a = self.weights
        one = Ones(a.shape[0])
        mass = Inner(one, a)
        written = total([product([mass, Diag(a)]), product([-1, a, Transposed(a)])])
        if not (entries_not_negative(a) and equal(self.matrix, written)):
            return False
        if isinstance(self.bound, MaxAbs):
            rows = total([product([2 * mass, a]), product([-2, Diag(a), a])])
            return equal(self.bound.args[0], rows)
        return self.bound == sp.S.Half and equal(mass, sp.S.One)
