r"""Certificates of kind ``identity``: equal for every d, by the decision procedure; by induction.

`Identity` is for expressions of the calculus and for plain scalars; `Induction` for a closed form
in the number of blocks L, whose value at 0 and whose step are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from derive.calculus.normal_form import equal
from derive.calculus.printing import latex, text
from derive.calculus.tensor import is_scalar
from derive.proof.check import Certificate, Check, Claimed, Formula, Subject, constant, has_vectors
from derive.proof.perturb import wrong_sides
from derive.proof.scalars import same
from derive.symbols import L

__all__ = ["Identity", "Induction", "shown_equal"]


def shown_equal(left: sp.Basic, right: sp.Basic) -> bool:
    """Whether two expressions are shown to be equal, at symbolic sizes.

    Raises
    ------
    UnknownNodeError
        If an expression is outside the fragment that the procedure decides.
    """
    if is_scalar(left) and is_scalar(right) and not (has_vectors(left) or has_vectors(right)):
        return same(left, right)
    if is_scalar(left) != is_scalar(right) or (not is_scalar(left) and left.shape != right.shape):
        return False
    return equal(left, right)


@dataclass(frozen=True, kw_only=True)
class Identity(Claimed):
    """Two expressions that are equal for every d and all values of their atoms."""

    kind = "identity"

    def decide(self, left: sp.Basic, right: sp.Basic) -> tuple[bool, str]:
        """Compare the sides by the decision procedure."""
        return shown_equal(left, right), "by the normal form at symbolic d"


@dataclass(frozen=True, kw_only=True)
class Induction(Check):
    r"""A closed form of a recursion :math:`y_l = \Phi(y_{l-1}, l)`, for every number of blocks.

    Attributes
    ----------
    claim : callable
        From the subject to ``(closed, start, step)``: the closed form in L, its value at L = 0,
        and a callable ``step(y, l)`` that returns :math:`y_l` from :math:`y_{l-1}`.
    of, instead : callable
        Return the subject, and another one for which the closed form is wrong.
    name : str
        What the closed form is of, in LaTeX; for printing.
    """

    claim: Callable[[Any], tuple[sp.Expr, sp.Expr, Callable[[sp.Expr, sp.Expr], sp.Expr]]]
    of: Subject
    instead: Subject
    name: str = "y_L"
    kind = "identity"

    def certificate(self) -> Certificate:
        """Compare the start and the step."""
        closed, start, step = self.claim(self.of())
        closed = sp.sympify(closed)
        begins = same(_at(closed, sp.S.Zero), sp.sympify(start))
        goes_on = begins and same(_at(closed, L + 1), sp.sympify(step(closed, L + 1)))
        failed = "" if goes_on else "; the step fails" if begins else "; the start fails"
        return Certificate(self.label, self.formula().text, goes_on, f"by induction over L{failed}")

    def formula(self) -> Formula:
        """Return the closed form."""
        closed, _, _ = self.claim(self.of())
        return Formula(f"{self.name} = {text(closed)}", self.name, "=", latex(closed))

    def wrong(self) -> Iterator[tuple[str, Check]]:
        """Yield closed forms that differ from the recursion at some depth."""
        subject = self.of()
        closed, start, step = self.claim(subject)

        def false(sides: tuple[sp.Basic, sp.Basic]) -> bool:
            value = sp.sympify(start)
            for depth in range(5):
                if not _agree(_at(sides[1], sp.Integer(depth)), value):
                    return True
                value = sp.sympify(step(value, sp.Integer(depth + 1)))
            return False

        for kind, changed in wrong_sides((sp.Symbol(self.name), closed), false).items():
            for _, wrong in changed:
                yield kind, replace(self, claim=constant((wrong, start, step)))
        yield "placement", replace(self, of=self.instead, claim=_step_of(closed, self.claim))


def _step_of(closed: sp.Expr, claim: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Put the recursion of another subject beside the closed form of this one."""
    return lambda subject: (closed, *claim(subject)[1:])


def _at(closed: sp.Expr, depth: sp.Expr) -> sp.Expr:
    return sp.sympify(closed).subs(L, depth).doit()


def _agree(left: sp.Expr, right: sp.Expr) -> bool:
    found = sp.N(left - right, 30)
    return bool(found.is_number and abs(found) < 1e-20) or sp.simplify(left - right) == 0
