r"""Certificates of kind ``bound``: inequalities of norms by named rules.

The author writes both sides of :math:`a \le b`; the rules find a bound of a and the certificate
holds if it is shown not to exceed b. The rules: triangle inequality, submultiplicativity,
homogeneity, the norms of identity and diagonal, orthogonal projections and contractions
(:math:`A^\top = A` and :math:`A - A^2 \succeq 0` give :math:`0 \preceq A \preceq I`), orthogonal
and stochastic matrices (Schur's test), the Cauchy-Schwarz inequality, facts on entries
(`derive.proof.entrywise`), and facts that other theorems have shown. Every bound is evaluated at
random inputs as well; the closest approach is its witness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy as sp

from derive.calculus.atoms import Diag, Inner
from derive.calculus.let import Let, ScalarLet
from derive.calculus.normal_form import equal
from derive.calculus.structured import DoublyStochastic, Orthogonal, RowStochastic
from derive.calculus.tensor import Product, Sum, Transposed, is_scalar, product, total
from derive.errors import DeriveError, UnknownNodeError
from derive.proof.assumption import Assumption, given, without_each
from derive.proof.check import Check, Claimed, constant
from derive.proof.entrywise import Entries, Laplacian
from derive.proof.interval import IntervalRing, sizes_at
from derive.proof.perturb import wrong_sides
from derive.proof.scalars import sign_rule
from derive.proof.size import MaxAbs, SmallestSingular, SpectralNorm, measured

__all__ = ["AtMost", "Bound", "Contraction", "NormFact", "upper"]

ROUNDING = 1e-12
"""Relative excess of the left side at a witness that counts as rounding."""
TRIALS = 24
"""Random inputs at which a bound is evaluated."""


@dataclass(frozen=True)
class NormFact:
    """A bound of one norm that another theorem has shown: it is taken, and named.

    Attributes
    ----------
    matrix : expression
        Whose norm.
    bound : expression
        What it is at most.
    source : str
        Id of the theorem.
    """

    matrix: sp.Basic
    bound: sp.Expr
    source: str

    def given(self, assumptions: Sequence[Assumption]) -> NormFact:
        """Return the fact with assumptions put in."""
        matrix, bound = (given(e, assumptions) for e in (self.matrix, self.bound))
        return NormFact(matrix, bound, self.source)


@dataclass(frozen=True)
class Contraction:
    r"""A symmetric matrix between 0 and the identity, so that its norm is at most 1.

    Shown by :math:`A = A^\top` and :math:`A - A^2 = \sum_k c_k q_kq_k^\top`, both by the decision
    procedure, with every :math:`c_k \ge 0` by a named rule.

    Attributes
    ----------
    matrix : expression
        A.
    remainder : sequence of (scalar, vector)
        The :math:`c_k` and :math:`q_k`; none for a projection.
    """

    matrix: sp.Basic
    remainder: Sequence[tuple[sp.Expr, sp.Basic]] = ()

    def given(self, assumptions: Sequence[Assumption]) -> Contraction:
        """Return the fact with assumptions put in."""
        remainder = [(given(c, assumptions), given(q, assumptions)) for c, q in self.remainder]
        kept = tuple((c, q) for c, q in remainder if c != 0)
        return Contraction(given(self.matrix, assumptions), kept)

    def holds(self) -> bool:
        """Whether that is shown."""
        A = self.matrix
        parts = [product([c, q, Transposed(q)]) for c, q in self.remainder]
        rest = total(parts) if parts else sp.ZeroMatrix(*A.shape)
        if not all(sign_rule(c) for c, _ in self.remainder):
            return False
        return equal(A, Transposed(A)) and equal(total([A, product([-1, A, A])]), rest)


@dataclass(frozen=True)
class AtMost:
    r"""A scalar that is at most another: shown by a difference that is not negative.

    :math:`q \le b` for positive q and b follows from :math:`b^p - q^p = \text{slack} \ge 0` for
    p > 0, and from :math:`q^p - b^p = \text{slack} \ge 0` for p < 0. The quantity may be the
    `SpectralNorm` of a column, its length.

    Attributes
    ----------
    quantity, bound : expression
        q and b.
    slack : expression
        The difference as a sum of what is not negative.
    power : int
        p.
    """

    quantity: sp.Expr
    bound: sp.Expr
    slack: sp.Expr
    power: int = 1

    def given(self, assumptions: Sequence[Assumption]) -> AtMost:
        """Return the fact with assumptions put in."""
        quantity, bound, slack = (
            given(e, assumptions) for e in (self.quantity, self.bound, self.slack)
        )
        return AtMost(quantity, bound, slack, self.power)

    def holds(self) -> bool:
        """Whether that is shown."""
        first, second = (_lengths(e) ** self.power for e in (self.bound, self.quantity))
        if self.power < 0:
            first, second = second, first
        try:
            known = equal(first - second, self.slack)
        except UnknownNodeError:
            return False
        return known and bool(sign_rule(self.slack))


def _lengths(expr: sp.Expr) -> sp.Expr:
    """Write the norms of columns as square roots of inner products."""
    columns = {e: e.args[0] for e in expr.atoms(SpectralNorm) if e.args[0].shape[1] == 1}
    return expr.xreplace({e: sp.sqrt(Inner(v, v)) for e, v in columns.items()})


Fact = NormFact | Contraction | AtMost | Entries | Laplacian
Trace = list[str]


def upper(matrix: sp.Basic, facts: Sequence[Fact] = ()) -> tuple[sp.Expr, Trace]:
    """Return a bound of the spectral norm of an expression, and the rules that led to it.

    Parameters
    ----------
    matrix : expression
        A matrix or a vector; its norm is bounded by the norms of its atoms.
    facts : sequence of NormFact, Contraction or AtMost
        What is known besides the rules.
    """
    trace: Trace = []
    return _upper(matrix, facts, trace), list(dict.fromkeys(trace))


def _upper(A: sp.Basic, facts: Sequence[Fact], trace: Trace) -> sp.Expr:
    for fact in facts:
        if isinstance(fact, NormFact) and fact.matrix == A:
            trace.append(f"theorem {fact.source}")
            return fact.bound
        if isinstance(fact, Contraction) and fact.matrix == A:
            if not fact.holds():
                break
            trace.append("contraction: 0 <= A^2 <= A" if fact.remainder else "projection")
            return sp.S.One
        if isinstance(fact, Laplacian) and fact.matrix == A and fact.holds():
            trace.append(fact.rule)
            return fact.bound
        if isinstance(fact, AtMost) and fact.quantity == SpectralNorm(A) and fact.holds():
            trace.append("length of a column")
            return fact.bound
    if getattr(A, "is_ZeroMatrix", False):
        return sp.S.Zero
    if A.is_Identity:
        return sp.S.One
    if isinstance(A, Sum):
        if _is_projection(A):
            trace.append("projection")
            return sp.S.One
        trace.append("triangle inequality")
        return sp.Add(*(_upper(term, facts, trace) for term in A.args))
    if isinstance(A, Product):
        scalars = [a for a in A.args if is_scalar(a)]
        matrices = [a for a in A.args if not is_scalar(a)]
        if scalars:
            trace.append("homogeneity")
        size = sp.Mul(*map(_absolute, scalars))
        if len(matrices) == 1:
            return size * _upper(matrices[0], facts, trace)
        whole = product(matrices)
        known = NormFact | Contraction | Laplacian
        if any(isinstance(f, known) and f.matrix == whole for f in facts):
            return size * _upper(whole, facts, trace)
        trace.append("submultiplicativity")
        return size * sp.Mul(*(_upper(a, facts, trace) for a in matrices))
    if isinstance(A, Transposed):
        return _upper(A.args[0], facts, trace)
    if isinstance(A, Diag):
        trace.append("norm of a diagonal")
        return _largest(A.args[0], facts, trace)
    if isinstance(A, Orthogonal | DoublyStochastic):
        trace.append("orthogonal" if isinstance(A, Orthogonal) else "Schur's test: rows, columns")
        return sp.S.One
    if isinstance(A, RowStochastic):
        trace.append("Schur's test: rows add up to 1, columns to at most n")
        return sp.sqrt(A.shape[0])
    if isinstance(A, Let):
        return _upper(A.definition, facts, trace)
    return SpectralNorm(A)


def _largest(vector: sp.Basic, facts: Sequence[Fact], trace: Trace) -> sp.Expr:
    for fact in facts:
        if isinstance(fact, Entries) and fact.vector == vector and fact.holds():
            trace.append(fact.rule)
            return fact.bound
    return MaxAbs(vector)


def _cauchy_schwarz(pairing: sp.Expr, facts: Sequence[Fact], trace: Trace) -> sp.Expr:
    """Bound an inner product by the lengths of both vectors."""
    if not isinstance(pairing, Inner):
        return sp.Abs(pairing)
    trace.append("Cauchy-Schwarz inequality")
    return sp.Mul(*(_upper(v, facts, trace) for v in pairing.args))


def _is_projection(A: sp.Basic) -> bool:
    """Whether A is an orthogonal projection, by the decision procedure."""
    if A.shape[0] != A.shape[1]:
        return False
    try:
        return equal(A, Transposed(A)) and equal(product([A, A]), A)
    except DeriveError:
        return False


def _absolute(scalar: sp.Expr) -> sp.Expr:
    if isinstance(scalar, sp.Mul):
        return sp.Mul(*map(_absolute, scalar.args))
    if isinstance(scalar, sp.Pow):
        return _absolute(scalar.base) ** scalar.exp
    if isinstance(scalar, ScalarLet) or (isinstance(scalar, Inner) and len(set(scalar.args)) == 1):
        return scalar if sign_rule(scalar) else sp.Abs(scalar)
    return scalar if scalar.is_nonnegative or sign_rule(scalar) else sp.Abs(scalar)


def _lower_singular(A: sp.Basic, facts: Sequence[Fact], trace: Trace) -> sp.Expr:
    """Bound a smallest singular value from below: Weyl, products of square matrices."""
    if A.is_Identity:
        return sp.S.One
    if isinstance(A, Sum) and A.args[0].is_Identity:
        trace.append("Weyl's inequality")
        rest = total(A.args[1:])
        return 1 - _upper(rest, facts, trace)
    if isinstance(A, Product) and all(is_scalar(a) or a.shape[0] == a.shape[1] for a in A.args):
        trace.append("smallest singular value of a product")
        return sp.Mul(*(_lower_factor(a, facts, trace) for a in A.args))
    return SmallestSingular(A)


def _lower_factor(factor: sp.Basic, facts: Sequence[Fact], trace: Trace) -> sp.Expr:
    """Bound what a factor of a product contributes: never less than 0."""
    if is_scalar(factor):
        return _absolute(factor)
    below = _lower_singular(factor, facts, trace)
    return below if sign_rule(below) else sp.Max(0, below)


@dataclass(frozen=True, kw_only=True)
class Bound(Claimed):
    r"""An inequality :math:`a \le b` between scalars made of norms.

    The claim returns ``(a, b)``. Norms in a (`SpectralNorm`) are bounded by the rules; in b, a
    smallest singular value is bounded from below. The rest is the sign of the difference.

    Attributes
    ----------
    facts : callable
        From the subject to what is known besides the rules.
    """

    facts: Callable[[Any], Sequence[Fact]] = field(default=lambda _: ())
    kind = "bound"
    relation = "<="
    relation_latex = r"\le"

    def decide(self, left: sp.Basic, right: sp.Basic) -> tuple[bool, str]:
        """Bound the left side by the rules, compare, and evaluate at random inputs."""
        try:
            facts = [f.given(self.assuming) for f in self.facts(self.of())]
        except (DeriveError, TypeError, AttributeError):
            facts = []
        trace: Trace = []
        above = _replaced(left, sp.Abs, lambda e: _cauchy_schwarz(e, facts, trace))
        above = _replaced(above, SpectralNorm, lambda A: _upper(A, facts, trace))
        above = _replaced(above, MaxAbs, lambda v: _largest(v, facts, trace))
        below = _replaced(right, SmallestSingular, lambda A: _lower_singular(A, facts, trace))
        rule, above = _compared(above, below, facts, trace)
        closest = self._closest(left, right)
        if closest is None or not closest <= 1 + ROUNDING:
            return False, f"refuted at a random input: left/right = {closest}"
        trace += [rule] if below != above else []
        words = "; ".join(dict.fromkeys(t for t in trace if t))
        return bool(rule), f"{words}; closest random input: left/right = {closest:.4g}"

    def _closest(self, left: sp.Expr, right: sp.Expr) -> float | None:
        """Return the largest quotient of both sides over random inputs."""
        best = None
        for seed in range(TRIALS):
            at = sizes_at(2 + seed % 4, 2 + seed % 3)
            ring = IntervalRing(self.seed + seed)
            try:
                a, b = measured(left, ring, at), measured(right, ring, at)
            except DeriveError:
                continue
            scale = a / b if b > 0 else (1.0 if a <= b else float("inf"))
            best = scale if best is None else max(best, scale)
        return best

    def _smaller(self, changed: sp.Expr, right: sp.Expr) -> bool:
        """Whether a changed right side claims more at some random input."""
        for seed in range(TRIALS):
            at = sizes_at(2 + seed % 4, 2 + seed % 3)
            ring = IntervalRing(self.seed + seed)
            a, b = measured(changed, ring, at), measured(right, ring, at)
            if a < b - 1e-9 * abs(b):
                return True
        return False

    def wrong(self) -> Iterator[tuple[str, Check]]:
        """Yield wrong versions: a smaller bound is one, whether or not it could be shown."""
        left, right = self.sides()

        def changed(sides: tuple[sp.Basic, sp.Basic]) -> bool:
            return sides[0] == left and self._smaller(sides[1], right)

        tighter = {"factor": [(left, right * sp.Rational(100, 101))]}
        for kind, wrong in {**wrong_sides((left, right), changed), **tighter}.items():
            for sides in wrong:
                yield kind, replace(self, claim=constant(sides), assuming=())
        for rest in without_each(self.assuming):
            yield "assumption", replace(self, assuming=rest)
        yield "placement", replace(self, of=self.instead)


def _replaced(expr: sp.Expr, kind: type, rule: Callable[[sp.Basic], sp.Expr]) -> sp.Expr:
    """Replace the sizes of one kind by their bounds, where the expression grows with all."""
    nodes = sorted(expr.atoms(kind), key=sp.default_sort_key)
    sizes = {node: sp.Dummy("q", nonnegative=True) for node in nodes}
    form = expr.xreplace(sizes)
    if not all(sign_rule(sp.diff(form, q)) for q in sizes.values()):
        return expr
    return expr.xreplace({node: rule(node.args[0]) for node in nodes})


def _compared(
    above: sp.Expr, below: sp.Expr, facts: Sequence[Fact], trace: Trace
) -> tuple[str, sp.Expr]:
    """Return the rule that shows above <= below, after as few further steps as that takes."""
    rule = sign_rule(below - above)
    for fact in facts:
        if rule:
            return rule, above
        if isinstance(fact, AtMost) and above.has(fact.quantity) and fact.holds():
            above = _raised(above, fact, trace)
            rule = sign_rule(below - above)
    if not rule and below.has(sp.exp):
        raised = _exponential(above)
        if raised != above:
            trace.append("1 + t <= exp(t)")
            above = raised
            rule = sign_rule(sp.powsimp(below) - sp.powsimp(above))
    return rule, above


def _exponential(expr: sp.Expr) -> sp.Expr:
    """Replace every factor 1 + t, t not negative, by exp(t)."""
    factors = []
    for factor in sp.Mul.make_args(expr):
        rest = factor - 1
        grows = isinstance(factor, sp.Add) and bool(sign_rule(rest))
        factors.append(sp.exp(rest) if grows else factor)
    return sp.Mul(*factors)


def _raised(expr: sp.Expr, fact: AtMost, trace: Trace) -> sp.Expr:
    """Replace a scalar by its bound where the expression grows with it."""
    q = sp.Dummy("q", positive=True)
    form = expr.subs(fact.quantity, q)
    if not sign_rule(sp.diff(form, q)):
        return expr
    trace.append("monotone")
    return form.subs(q, fact.bound)
