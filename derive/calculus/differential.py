r"""The differential: :math:`dy = J\,dx`, from which the Jacobian is read off.

A differential is a `Form`, a sum of *coefficient times differential of an atom*. `differential`
walks an expression node by node; a node without a rule raises, nothing comes back as zero.

Source: Magnus and Neudecker, *Matrix Differential Calculus*, chapter 5 (first identification
theorem).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import singledispatchmethod
from typing import Any

import sympy as sp

from derive.calculus.atoms import Diag, Inner, Matrix, Ones, State, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply
from derive.calculus.pointwise import Pointwise
from derive.calculus.tensor import Product, Sum, Tensor, Transposed, is_scalar, product, total
from derive.calculus.tokens import At, IndexSum, ScalarIndexSum, family, index_sum
from derive.errors import UnknownNodeError

__all__ = [
    "Differential",
    "Differentiator",
    "Form",
    "ScalarDifferential",
    "Term",
    "collect",
    "front",
    "rewrite",
    "substitute",
    "sum_inside",
]


class Differential(Tensor):
    r"""The differential :math:`dv` of a vector, an independent symbol of the same shape."""

    def __new__(cls, of: sp.Basic) -> sp.Basic:
        """Check the arguments and build the node."""
        return ScalarDifferential(of) if is_scalar(of) else sp.Basic.__new__(cls, of)

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of the vector."""
        return self.args[0].shape

    def _sympystr(self, printer: Any) -> str:
        body = printer._print(self.args[0])
        return f"d({body})" if isinstance(self.args[0], Sum | Product) else f"d{body}"

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import differential_latex

        return differential_latex(self.args[0], printer)


class ScalarDifferential(sp.Expr):
    r"""The differential :math:`ds` of a scalar."""

    is_commutative = True

    def __new__(cls, of: sp.Expr) -> ScalarDifferential:
        """Check the arguments and build the node."""
        return sp.Basic.__new__(cls, of)

    def _sympystr(self, printer: Any) -> str:
        return f"d{printer._print(self.args[0])}"

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import differential_latex

        return differential_latex(self.args[0], printer)


Bound = tuple[sp.Symbol, sp.Expr]


@dataclass(frozen=True)
class Term:
    """`coefficient` times the differential of `atom`, summed over the indices `over`.

    The differential of a matrix stands between two factors, `coefficient` and the column `right`:
    that of W in ``A W v`` is ``A dW v``.
    """

    coefficient: sp.Basic
    atom: sp.Basic
    over: tuple[Bound, ...] = ()
    right: sp.Basic | None = None

    @property
    def free_symbols(self) -> set[sp.Basic]:
        """Symbols in the factors and the atom, summation indices included."""
        used = self.coefficient.free_symbols | self.atom.free_symbols
        return used if self.right is None else used | self.right.free_symbols

    def expr(self) -> sp.Basic:
        """Return the term as an expression."""
        right = [] if self.right is None else [self.right]
        body = product([self.coefficient, Differential(self.atom), *right])
        for bound, size in reversed(self.over):
            node = ScalarIndexSum if is_scalar(body) else IndexSum
            body = node(body, bound, size)
        return body

    def renamed(self, renaming: Mapping[sp.Basic, sp.Basic]) -> Term:
        """Rename free indices; a bound index that would be captured moves out of the way first."""
        bounds = [b for b, _ in self.over]
        change = {a: b for a, b in renaming.items() if a not in bounds}
        taken = set(change.values())
        for bound in bounds:
            if bound in taken:
                change[bound] = self._fresh(bound, taken | set(change.values()) | set(bounds))
        return self._changed(change) if change else self

    def clear_of(self, indices: set[sp.Basic]) -> Term:
        """Rename the bound indices that are among `indices`."""
        change: dict[sp.Basic, sp.Basic] = {}
        for bound, _ in self.over:
            if bound in indices:
                change[bound] = self._fresh(bound, indices | set(change.values()))
        return self._changed(change) if change else self

    def _fresh(self, bound: sp.Symbol, taken: set[sp.Basic]) -> sp.Symbol:
        used = self.free_symbols
        return next(t for t in family(bound) if t not in taken and t not in used)

    def _changed(self, change: Mapping[sp.Basic, sp.Basic]) -> Term:
        return Term(
            self.coefficient.xreplace(change),
            self.atom.xreplace(change),
            tuple((change.get(b, b), size) for b, size in self.over),
            None if self.right is None else self.right.xreplace(change),
        )


@dataclass(frozen=True)
class Form:
    """A differential: a sum of terms."""

    terms: tuple[Term, ...]

    def expr(self) -> sp.Basic:
        """Return the form as an expression in differentials."""
        return total([t.expr() for t in self.terms]) if self.terms else sp.S.Zero

    def renamed(self, renaming: Mapping[sp.Basic, sp.Basic]) -> Form:
        """Return the form with free indices renamed, without capturing them."""
        return Form(tuple(t.renamed(renaming) for t in self.terms)) if renaming else self

    def map(self, change: Callable[[sp.Basic], sp.Basic]) -> Form:
        """Return the form with `change` applied to every coefficient."""
        terms = (replace(t, coefficient=change(t.coefficient)) for t in self.terms)
        return Form(tuple(t for t in terms if not _vanishes(t.coefficient)))


def _vanishes(coefficient: sp.Basic) -> bool:
    return coefficient == 0 or bool(getattr(coefficient, "is_ZeroMatrix", False))


def front(expr: sp.Basic) -> sp.Basic:
    """Move the scalars of a word to its front; not across an operator that mixes tokens."""
    if not isinstance(expr, Product) or expr.mixes_tokens:
        return expr
    scalars = [a for a in expr.args if is_scalar(a)]
    return product([*scalars, *expr.matrices])


def rewrite(expr: sp.Basic, rules: Mapping[sp.Basic, sp.Basic]) -> sp.Basic:
    """Replace subexpressions, also the base of a power; definitions of lets are left alone."""
    if expr in rules:
        return rules[expr]
    if isinstance(expr, sp.Pow):  # s = sqrt(v) recognises v**q as s**(2 q)
        for before, after in rules.items():
            if isinstance(before, sp.Pow) and before.base == expr.base and expr.exp != before.exp:
                return after ** (expr.exp / before.exp)
    if not expr.args or isinstance(expr, Let | ScalarLet | Apply | State):
        return expr
    args = [rewrite(a, rules) for a in expr.args]
    return expr if all(a is b for a, b in zip(args, expr.args, strict=True)) else expr.func(*args)


def collect(form: Form, *, scalars_first: bool = True) -> Form:
    """Merge the terms of one atom.

    With `scalars_first` the common scalar is taken out of the merged coefficient; without it the
    scalars stay with the factor that they belong to.
    """
    groups: dict[tuple[sp.Basic, tuple[Bound, ...], sp.Basic | None], list[sp.Basic]] = {}
    for term in form.terms:
        coefficient = front(term.coefficient) if scalars_first else term.coefficient
        groups.setdefault((term.atom, term.over, term.right), []).append(coefficient)
    terms = []
    for (atom, over, right), coefficients in groups.items():
        merged = total(coefficients)
        if scalars_first and len(coefficients) > 1:
            merged = _common_scalar(merged)
        if not _vanishes(merged):
            terms.append(Term(merged, atom, over, right))
    return Form(tuple(terms))


def _common_scalar(expr: sp.Basic) -> sp.Basic:
    """Factor the scalar of the identity term (else of the first term) out of a sum."""
    from derive.calculus.tensor import split_coefficient

    if not isinstance(expr, Sum) or expr.mixes_tokens:
        return expr
    parts = [split_coefficient(front(t)) for t in expr.args]
    parts.sort(key=lambda part: (not _is_identity(part[1]), part[0].could_extract_minus_sign()))
    lead = parts[0][0]
    lead = -lead if lead.could_extract_minus_sign() else lead
    return product([lead, total([product([c / lead, w]) for c, w in parts])])


def _is_identity(word: sp.Basic) -> bool:
    return bool(getattr(word, "is_Identity", False))


class Differentiator:
    """Differentials with respect to a set of atoms.

    Parameters
    ----------
    is_atom : callable
        Whether a node is an atom, whose differential stays a symbol.
    rules : list of str
        Names of the rules used are appended here, each once.
    """

    def __init__(self, is_atom: Callable[[sp.Basic], bool], rules: list[str] | None = None) -> None:
        self.is_atom = is_atom
        self.rules: list[str] = [] if rules is None else rules
        self._constant: dict[sp.Basic, bool] = {}

    def __call__(self, expr: sp.Basic) -> Form:
        """Return the differential of `expr`.

        Raises
        ------
        UnknownNodeError
            If a node that depends on an atom has no rule.
        """
        if self.is_atom(expr):
            one = sp.S.One if is_scalar(expr) else sp.Identity(expr.shape[0])
            return Form((Term(one, expr),))
        if self.is_constant(expr):
            return Form(())
        return self._walk(expr)

    def is_constant(self, expr: sp.Basic) -> bool:
        """Whether no atom occurs in `expr`."""
        known = self._constant.get(expr)
        if known is None:
            known = not self.is_atom(expr) and all(self.is_constant(a) for a in expr.args)
            self._constant[expr] = known
        return known

    def _used(self, rule: str) -> None:
        if rule not in self.rules:
            self.rules.append(rule)

    def _scaled(self, left: Iterable[Any], form: Form, right: Iterable[Any] = ()) -> list[Term]:
        left, right = list(left), list(right)
        return [
            replace(t, coefficient=front(product([*left, t.coefficient, *right])))
            for t in form.terms
        ]

    @singledispatchmethod
    def _walk(self, expr: sp.Basic) -> Form:
        if is_scalar(expr) and isinstance(expr, sp.Expr):
            return self._scalar(expr)
        raise UnknownNodeError(
            f"differential: no rule for {type(expr).__name__} ({expr}); a node that depends on the "
            "state needs one"
        )

    @_walk.register
    def _sum(self, expr: Sum) -> Form:
        self._used("sum")
        return Form(tuple(t for a in expr.args for t in self(a).terms))

    @_walk.register
    def _product(self, expr: Product) -> Form:
        varying = [k for k, a in enumerate(expr.args) if not self.is_constant(a)]
        varying.sort(key=lambda k: is_scalar(expr.args[k]))  # the vector's own variation first
        quotient = any(
            is_scalar(expr.args[k]) and not self.is_constant(sp.denom(expr.args[k]))
            for k in varying
        )
        self._used("quotient" if quotient else "product" if len(varying) > 1 else "linear map")
        terms: list[Term] = []
        for k in varying:
            left, factor, right = expr.args[:k], expr.args[k], expr.args[k + 1 :]
            if is_scalar(factor):
                rest = product([*left, *right])
                inner = Differentiator(self.is_atom) if quotient else self
                terms += self._scaled([rest], inner(factor))
            elif factor.shape[1] == 1 and all(is_scalar(r) for r in right):
                terms += self._scaled([*right, *left], self(factor))
            elif self.is_atom(factor):  # a weight: d(A W v) = A dW v + A W dv
                coefficient = front(product([*left, sp.Identity(factor.shape[0])]))
                terms.append(Term(coefficient, factor, right=product(right)))
            elif isinstance(factor, Diag):
                terms += self._scaled([*left, self._as_diag(product(right))], self(factor.args[0]))
            else:
                raise UnknownNodeError(
                    f"differential: no rule for the varying matrix factor {factor} of {expr}"
                )
        return Form(tuple(terms))

    @staticmethod
    def _as_diag(vector: sp.Basic) -> sp.Basic:
        scalars = [a for a in getattr(vector, "args", ()) if is_scalar(a)]
        if isinstance(vector, Product) and len(vector.matrices) == 1:
            return product([*scalars, Diag(vector.matrices[0])])
        return Diag(vector)

    @_walk.register
    def _inner(self, expr: Inner) -> Form:
        left, right = expr.args
        if left == right:
            self._used("inner product")
            return Form(tuple(self._scaled([2, Transposed(left)], self(left))))
        constant = self.is_constant(left) or self.is_constant(right)
        self._used("linear map" if constant else "inner product")
        return Form(
            (
                *self._scaled([Transposed(right)], self(left)),
                *self._scaled([Transposed(left)], self(right)),
            )
        )

    @_walk.register
    def _pointwise(self, expr: Pointwise) -> Form:
        self._used("element-wise function")
        slope = Diag(Pointwise(expr.activation, expr.order + 1, expr.vector))
        return Form(tuple(self._scaled([slope], self(expr.vector))))

    @_walk.register(IndexSum)
    @_walk.register(ScalarIndexSum)
    def _index_sum(self, expr: Any) -> Form:
        inner = self(expr.summand)
        bound = (expr.index, expr.size)
        return Form(tuple(replace(t, over=(bound, *t.over)) for t in inner.terms))

    @_walk.register(Let)
    @_walk.register(ScalarLet)
    def _let(self, expr: Any) -> Form:
        return self(expr.definition)

    @_walk.register(State)
    @_walk.register(Vector)
    @_walk.register(Matrix)
    @_walk.register(Ones)
    @_walk.register(At)
    def _leaf(self, expr: Any) -> Form:
        raise UnknownNodeError(f"differential: {expr} is a leaf but neither atom nor constant")

    def _scalar(self, expr: sp.Expr) -> Form:
        """SymPy's own scalar derivative outside, ours for the vectors inside."""
        inner: list[sp.Basic] = []

        def gather(e: sp.Basic) -> None:
            if self.is_constant(e):
                return
            if self.is_atom(e) or isinstance(e, Inner | ScalarLet | ScalarIndexSum):
                if e not in inner:
                    inner.append(e)
                return
            if not isinstance(e, sp.Add | sp.Mul | sp.Pow | sp.Function):
                raise UnknownNodeError(
                    f"differential: no rule for the scalar {type(e).__name__} ({e})"
                )
            for a in e.args:
                gather(a)

        gather(expr)
        if expr.is_Pow or expr.is_Function:
            self._used("chain")
        elif expr.is_Mul and len(inner) > 1:
            denominator = sp.denom(expr)
            self._used("product" if self.is_constant(denominator) else "quotient")
        elif expr.is_Add:
            self._used("sum")
        stand_in = {e: sp.Dummy(positive=True) for e in inner}
        back = {v: k for k, v in stand_in.items()}
        opaque = _replace_nodes(expr, stand_in)
        terms: list[Term] = []
        for e, dummy in stand_in.items():
            slope = sp.diff(opaque, dummy).xreplace(back)
            if slope != 0:
                terms += self._scaled([slope], self(e))
        return Form(tuple(terms))


def _replace_nodes(expr: sp.Basic, mapping: Mapping[sp.Basic, sp.Basic]) -> sp.Basic:
    """Return `expr` with nodes replaced, without looking inside other nodes of ours."""
    if expr in mapping:
        return mapping[expr]
    if not expr.args or isinstance(expr, Inner | ScalarLet | ScalarIndexSum | Tensor):
        return expr
    return expr.func(*[_replace_nodes(a, mapping) for a in expr.args])


def substitute(
    form: Form, known: Callable[[sp.Basic], Form | None], *, scalars_first: bool = True
) -> tuple[Form, tuple[sp.Basic, ...]]:
    """Replace the differential of every known atom by its form; also return which were replaced."""
    terms: list[Term] = []
    replaced: list[sp.Basic] = []
    for term in form.terms:
        inner = known(term.atom)
        if inner is None:
            terms.append(term)
            continue
        if term.atom not in replaced:
            replaced.append(term.atom)
        outside = term.coefficient.free_symbols | {b for b, _ in term.over}
        for t in inner.terms:
            t = t.clear_of(outside) if t.over else t
            coefficient = product([term.coefficient, t.coefficient])
            coefficient = front(coefficient) if scalars_first else coefficient
            terms.append(Term(coefficient, t.atom, (*term.over, *t.over), t.right))
    return Form(tuple(terms)), tuple(replaced)


def sum_inside(form: Form) -> Form:
    """Move a sum whose index the atom does not carry into the coefficient, and rename the rest."""
    terms = []
    for term in form.terms:
        coefficient, over = term.coefficient, []
        kept = term.atom.free_symbols
        kept = kept if term.right is None else kept | term.right.free_symbols
        for bound, size in term.over:
            if bound in kept:
                over.append((bound, size))
            else:
                coefficient = front(index_sum(coefficient, bound, size))
        terms.append(Term(coefficient, term.atom, tuple(over), term.right))
    return Form(tuple(terms))
