"""A check: a claim about a subject, and the procedure that certifies it or does not.

Every kind of certificate is a `Check`. The claim is a function of its *subject* (a Jacobian, a
recursion, a number of blocks), so that the same claim can be put to the wrong subject: a check has
to reject that, as it has to reject the claim with a sign flipped, a factor 1.01, a term dropped, an
assumption dropped, or zero claimed. `Check.wrong` makes those.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import sympy as sp

from derive.calculus.certificates import Certificate
from derive.calculus.printing import latex, text
from derive.calculus.tensor import is_scalar
from derive.errors import DeriveError
from derive.proof.assumption import Assumption, given, without_each
from derive.proof.interval import IntervalRing, entries, sizes_at
from derive.proof.perturb import Sides, wrong_sides
from derive.proof.scalars import trial

__all__ = ["Certificate", "Check", "Claimed", "Formula", "constant", "differ", "has_vectors"]

Subject = Callable[[], Any]


@dataclass(frozen=True)
class Formula:
    """How the claim of a check prints.

    Attributes
    ----------
    text : str
        On one line, for a terminal.
    left, relation, right : str
        In LaTeX, without delimiters; empty where the claim is in words only.
    """

    text: str
    left: str = ""
    relation: str = ""
    right: str = ""

    @property
    def latex(self) -> str:
        """The whole claim in LaTeX."""
        return f"{self.left} {self.relation} {self.right}".strip()


class Check(ABC):
    """One thing to be certified."""

    kind: ClassVar[str]

    @property
    def label(self) -> str:
        """The kind as tables print it; with its sizes where it holds for those only."""
        return self.kind

    @abstractmethod
    def certificate(self) -> Certificate:
        """Check the claim; the certificate says whether it holds."""

    @abstractmethod
    def formula(self) -> Formula:
        """Return the claim as it was checked."""

    @abstractmethod
    def wrong(self) -> Iterator[tuple[str, Check]]:
        """Yield wrong versions of this check, each with the kind of its mistake."""


@dataclass(frozen=True, kw_only=True)
class Claimed(Check):
    """A check of an equation or a relation between two expressions.

    Attributes
    ----------
    claim : callable
        From the subject to the two sides.
    of : callable
        Returns the subject; called when the check runs.
    instead : callable
        Returns another subject, for which the claim is wrong.
    assuming : tuple of Assumption
        What is put in place of general quantities; each has to be needed.
    seed : int
        Of the values at which wrong claims are told from right ones.
    name : str
        What the left side is of, in LaTeX: printed in its place, for what is composed and not
        written.
    """

    claim: Callable[[Any], Sides]
    of: Subject
    instead: Subject
    assuming: tuple[Assumption, ...] = ()
    seed: int = 0
    name: str = ""
    relation: ClassVar[str] = "="
    relation_latex: ClassVar[str] = "="

    def sides(self) -> Sides:
        """Return both sides, with the assumptions put in."""
        left, right = self.claim(self.of())
        return given(sp.sympify(left), self.assuming), given(sp.sympify(right), self.assuming)

    def certificate(self) -> Certificate:
        """Check the claim; the certificate says whether it holds."""
        left, right = self.sides()
        holds, detail = self.decide(left, right)
        return Certificate(self.label, self.shown(left, right).text, holds, detail)

    @abstractmethod
    def decide(self, left: sp.Basic, right: sp.Basic) -> tuple[bool, str]:
        """Return whether the relation of the two sides is shown, and by what."""

    def formula(self) -> Formula:
        """Return the claim as it was checked."""
        return self.shown(*self.sides())

    def shown(self, left: sp.Basic, right: sp.Basic) -> Formula:
        """Return how the claim of two sides prints."""
        return Formula(
            f"{self.name or text(left)} {self.relation} {text(right)}",
            self.name or latex(left),
            self.relation_latex,
            latex(right),
        )

    def false(self, sides: Sides) -> bool:
        """Whether the claim with these sides does not hold, without use of the certificate."""
        return differ(*sides, seed=self.seed)

    def wrong(self) -> Iterator[tuple[str, Check]]:
        """Yield wrong versions of this check, each with the kind of its mistake."""
        for kind, changed in wrong_sides(self.sides(), self.false).items():
            for sides in changed:
                yield kind, replace(self, claim=constant(sides), assuming=())
        for rest in without_each(self.assuming):
            without = replace(self, assuming=rest)
            if self.false(without.sides()):
                yield "assumption", without
        swapped = replace(self, of=self.instead)
        if self.false(swapped.sides()):
            yield "placement", swapped


def constant(value: Any) -> Callable[[Any], Any]:
    """Return a claim that is the same for every subject."""
    return lambda _: value


def differ(
    left: sp.Basic, right: sp.Basic, *, seed: int = 0, sizes: Mapping[Any, int] = {}
) -> bool:
    """Whether two expressions differ at random rational values: rigorous, by interval arithmetic.

    Parameters
    ----------
    left, right : expression
        Of one shape; of different shapes they differ.
    seed : int
        Of the values.
    sizes : mapping
        Sizes of dimensions, in place of d = 4, n = 2.
    """
    if is_scalar(left) != is_scalar(right):
        return True
    if is_scalar(left) and not (has_vectors(left) or has_vectors(right)):
        return _scalars_differ(left, right, seed)
    if not is_scalar(left) and left.shape != right.shape:
        return True
    for width in (4, 5):
        try:
            at = sizes_at(width, 2, sizes)
            mixes = any(getattr(e, "mixes_tokens", False) for e in (left, right))
            ring = IntervalRing(seed + width)
            first, second = (_entries(e, ring, at, mixes) for e in (left, right))
        except DeriveError as error:
            last = error
            continue
        return len(first) != len(second) or any(
            a.apart(b) for a, b in zip(first, second, strict=True)
        )
    raise last


def _entries(expr: sp.Basic, ring: IntervalRing, at: Mapping[Any, int], mixes: bool) -> list[Any]:
    tokens = 2 if mixes else 1
    if mixes and getattr(expr, "is_ZeroMatrix", False):
        count = tokens**2 * int(expr.shape[0].subs(at)) * int(expr.shape[1].subs(at))
        return [ring.number(sp.S.Zero)] * count
    return entries(expr, ring, at, tokens)


def has_vectors(expr: sp.Basic) -> bool:
    """Whether an expression holds a vector or a matrix, also inside a scalar."""
    return any(getattr(e, "is_Matrix", False) for e in sp.preorder_traversal(expr))


def _scalars_differ(left: sp.Expr, right: sp.Expr, seed: int) -> bool:
    difference = left - right
    for k in range(3):
        at = trial(sp.Tuple(left, right), seed + k)
        value, scale = (sp.N(e.subs(at).doit(), 30) for e in (difference, abs(left) + abs(right)))
        if value.is_comparable and abs(value) > sp.Float("1e-18") * scale:
            return True
    return False
