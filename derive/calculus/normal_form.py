r"""Equality at symbolic d: a decision procedure, not `simplify`.

An expression becomes a sum of *coefficient times word of letters*:

1. named quantities that stand for scalars (mean, variance, s) and what is built from them are
   expanded; the argument of a norm or sublayer stays a generic atom;
2. in a word every ``row ... column`` contracts to a scalar that commutes, with
   :math:`\mathbf 1^\top\mathbf 1 = d`; neighbouring diagonals commute and inverse pairs cancel;
3. coefficients are rational functions of these scalars, with :math:`s^2` reduced by its
   definition;
4. two expressions are equal for every ``d`` if all coefficients of their difference vanish. The
   converse holds because the letters are generic.

A scalar to the right of an operator that mixes tokens is a letter of its own: it does not commute.
What the matrices of `derive.calculus.structured` do to their neighbours is carried out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy as sp

from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Reciprocal, State, Vector
from derive.calculus.differential import ScalarDifferential
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply, JacobianOf, TokenBlocks
from derive.calculus.pointwise import Pointwise
from derive.calculus.structured import _Structured, without_structure
from derive.calculus.tensor import Product, Sum, Transposed, is_scalar, own
from derive.calculus.trace import Trace
from derive.errors import UnknownNodeError

__all__ = ["NormalForm", "equal", "is_zero", "stands_for_scalars"]

Letter = tuple[str, sp.Basic]
Word = tuple[Letter, ...]
Words = dict[Word, sp.Expr]


class NormalForm:
    """Reduces expressions to coefficients of words; one instance for expressions to be compared.

    Parameters
    ----------
    expand_lets : bool
        Whether named vectors (the argument of a norm) are expanded too. They are generic atoms
        otherwise, which is quicker and suffices unless what they are made of occurs beside them.
    """

    def __init__(self, expand_lets: bool = False) -> None:
        self.expand_lets = expand_lets
        self.columns: set[sp.Basic] = set()
        self.lets: set[Let] = set()
        self._scalars: dict[Any, sp.Symbol] = {}
        self._roots: dict[sp.Expr, sp.Symbol] = {}
        self._bases: dict[sp.Symbol, sp.Expr] = {}
        self._memo: dict[sp.Basic, Words] = {}
        self._points: dict[Any, sp.Basic] = {}

    # -- words

    def words(self, expr: sp.Basic) -> Words:
        """Return the words of a matrix expression with their coefficients.

        Raises
        ------
        UnknownNodeError
            If a node has no normal form (sums over an index).
        """
        found = self._memo.get(expr)
        if found is None:
            found = self._words(own(expr))
            self._memo[expr] = found
        return found

    def _words(self, expr: sp.Basic) -> Words:
        if isinstance(expr, Sum):
            out: Words = {}
            for term in expr.args:
                for word, coefficient in self.words(term).items():
                    out[word] = out.get(word, sp.S.Zero) + coefficient
            return out
        if isinstance(expr, Product):
            return self._product(expr)
        if isinstance(expr, Transposed):
            return self._transposed(self.words(expr.args[0]))
        if getattr(expr, "is_ZeroMatrix", False):
            return {}
        if getattr(expr, "is_Identity", False):
            return {(): sp.S.One}
        if isinstance(expr, Diag):
            return self._diagonal(expr)
        if isinstance(expr, Let) and (self.expand_lets or _is_not_generic(expr)):
            return self.words(expr.definition)
        if type(expr).__name__ in ("IndexSum", "At"):
            raise UnknownNodeError(
                f"normal form: {expr} carries a token or head index; the decision procedure is for "
                "expressions without"
            )
        if expr.shape[1] == 1:
            atom = self._atom(expr)
            self.columns.add(atom)
            if isinstance(expr, Let):
                self.lets.add(expr)
            return {(("col", atom),): sp.S.One}
        kind = "mix" if getattr(expr, "mixes_tokens", False) else "mat"
        return {((kind, self._atom(expr)),): sp.S.One}

    def _product(self, expr: Product) -> Words:
        out: Words = {(): sp.S.One}
        for factor in reversed(expr.args):
            out = self._times(factor, out)
        return out

    def _times(self, factor: sp.Basic, right: Words) -> Words:
        """Return the words of `factor` times what stands to its right, reduced before it."""
        if is_scalar(factor):
            coefficient = self.scalar(factor)
            return {w: coefficient * c for w, c in right.items()}
        mixes = getattr(factor, "mixes_tokens", False)
        if mixes and isinstance(factor, Sum):
            out: Words = {}
            for term in factor.args:
                for word, coefficient in self._times(term, right).items():
                    out[word] = out.get(word, sp.S.Zero) + coefficient
            return out
        if mixes and isinstance(factor, Product):
            for inner in reversed(factor.args):
                right = self._times(inner, right)
            return right
        if mixes:
            right = self._freeze(right)
        product: Words = {}
        for lw, lc in self.words(factor).items():
            for rw, rc in right.items():
                scalar, word = self._join(lw, rw)
                product[word] = product.get(word, sp.S.Zero) + lc * rc * scalar
        return product

    def _freeze(self, words: Words) -> Words:
        """Make per-token coefficients letters: they do not commute with what mixes tokens."""
        frozen: Words = {}
        for word, coefficient in words.items():
            canonical = self.canonical(coefficient)
            if canonical == 0:
                continue
            varying = (*self._scalars.values(), *self._bases)
            constant, rest = canonical.as_independent(*varying, as_Add=False)
            letter: Word = () if rest == 1 else (("scalar", rest),)
            frozen[letter + word] = frozen.get(letter + word, sp.S.Zero) + constant
        return frozen

    def _diagonal(self, expr: Diag) -> Words:
        out: Words = {}
        for word, coefficient in self.words(expr.args[0]).items():
            vectors = [v for kind, v in word if kind in ("diag", "col")]
            if len(vectors) == len(word):  # diagonals times a column: a product of diagonals
                letters = tuple(("diag", v) for v in vectors if not isinstance(v, Ones))
                word = _canonical_run(letters)
            else:
                word = (("diag", sp.Tuple(*(sp.Tuple(sp.Symbol(k), v) for k, v in word))),)
            out[word] = out.get(word, sp.S.Zero) + coefficient
        return out

    def _transposed(self, words: Words) -> Words:
        return {_transpose(w): c for w, c in words.items()}

    def _join(self, left: Word, right: Word) -> tuple[sp.Expr, Word]:
        """Concatenate two words: contract ``row ... column``, put runs of diagonals in order."""
        word = left + right
        structured = any(isinstance(v, _Structured) for _, v in word)
        scalar = sp.S.One
        while True:
            word = _structure_met(word) if structured else word
            span = _contraction(word)
            if span is None:
                return scalar, _canonical(word)
            start, stop = span
            scalar *= self._bilinear(word[start:stop])
            word = word[:start] + word[stop:]

    def _bilinear(self, word: Word) -> sp.Expr:
        """Return the commuting symbol of ``row ... column``, the same for the transposed word."""
        word = _canonical(word)
        if all(kind in ("row", "diag", "col") for kind, _ in word):
            vectors = _cancel_inverses([v for _, v in word if not isinstance(v, Ones)])
            if not vectors:
                return word[0][1].shape[0]
            key: Any = ("power", tuple(sorted(vectors, key=sp.default_sort_key)))
        else:
            key = ("form", min(word, _canonical(_transpose(word)), key=_word_key))
        if key not in self._scalars:
            self._scalars[key] = sp.Symbol(f"w{len(self._scalars)}", real=True)
        return self._scalars[key]

    def _atom(self, expr: sp.Basic) -> sp.Basic:
        """Return a letter's identity, in which the names of lets do not matter."""
        if isinstance(expr, Let):
            return self._atom(expr.definition)
        if isinstance(expr, TokenBlocks):
            return self._atom(expr.label)
        if not expr.args:
            return expr
        if isinstance(expr, Apply | JacobianOf | Pointwise):
            return self._at_point(expr)
        return expr.func(*[self._atom(a) if isinstance(a, sp.Basic) else a for a in expr.args])

    def _at_point(self, expr: sp.Basic) -> sp.Basic:
        """Return one letter for a map, its Jacobian or a function wherever the points are equal."""
        *function, point = expr.args
        point = self._atom(point)
        letter = expr.func(*function, point)
        try:
            words = {w: self.canonical(c) for w, c in self.words(point).items()}
        except UnknownNodeError:  # the point carries indices: compared as it is written
            return letter
        key = (expr.func, *function, frozenset((w, c) for w, c in words.items() if c != 0))
        return self._points.setdefault(key, letter)

    # -- scalars

    def scalar(self, expr: sp.Basic) -> sp.Expr:
        """Return a scalar as a rational function of generic symbols and square roots."""
        if isinstance(expr, ScalarLet):
            return self.scalar(expr.definition)
        if isinstance(expr, ScalarDifferential):
            return self._symbol(("differential", self._atom(expr.args[0])))
        if isinstance(expr, Inner):
            out = sp.S.Zero
            left = self._transposed(self.words(expr.args[0]))
            for lw, lc in left.items():
                for rw, rc in self.words(expr.args[1]).items():
                    value, word = self._join(lw, rw)
                    if word:
                        raise UnknownNodeError(f"normal form: {expr} does not contract")
                    out += lc * rc * value
            return out
        if isinstance(expr, Trace):
            matrix = expr.args[0]
            words = self.words(matrix).items()
            return sp.Add(*(c * self._trace(word, matrix.shape[0]) for word, c in words))
        if expr.is_Pow and expr.exp.is_Rational and expr.exp.q == 2:
            return self._root(self.canonical(self.scalar(expr.base))) ** (2 * expr.exp)
        if expr.is_Add or expr.is_Mul or (expr.is_Pow and expr.exp.is_Integer):
            return expr.func(*(self.scalar(a) for a in expr.args))
        if expr.is_number or expr.is_Symbol:
            return expr
        raise UnknownNodeError(
            f"normal form: no rule for the scalar {type(expr).__name__} ({expr})"
        )

    def _trace(self, word: Word, size: sp.Expr) -> sp.Expr:
        """Return the trace of a word: rotated until a row stands first, or one generic symbol."""
        kinds = [kind for kind, _ in word]
        if not word:
            return size
        if "row" in kinds:
            start = kinds.index("row")
            value, rest = self._join((), word[start:] + word[:start])
            if rest:
                raise UnknownNodeError(f"normal form: a trace of {word} does not contract")
            return value
        rotated = without_structure((word[-1], *word[:-1]))
        if len(rotated) < len(word):  # tr(R A R') = tr A
            return self._trace(_canonical(rotated), size)
        if set(kinds) == {"diag"}:
            one = Ones(size)
            return self._bilinear((("row", one), *word, ("col", one)))
        if not set(kinds) <= {"diag", "mat", "mat'"}:
            raise UnknownNodeError(f"normal form: no rule for the trace of {word}")
        turned = [w[k:] + w[:k] for w in (word, _transpose(word)) for k in range(len(w))]
        from_matrix = (_canonical(w) for w in turned if w[0][0] != "diag")
        return self._symbol(("trace", min(from_matrix, key=_word_key)))

    def _symbol(self, key: Any) -> sp.Symbol:
        if key not in self._scalars:
            self._scalars[key] = sp.Symbol(f"w{len(self._scalars)}", real=True)
        return self._scalars[key]

    def _root(self, base: sp.Expr) -> sp.Expr:
        """Return a square root; squares and positive symbols stand outside it.

        So that ``sqrt(q/d)`` and ``sqrt(q)/sqrt(d)`` are one and the same.
        """
        if base.is_number:
            return sp.sqrt(base)
        outside, inside = sp.S.One, base
        for symbol in sorted(base.free_symbols, key=str):
            power = _power_in(base, symbol) if symbol.is_positive else 0
            inside /= symbol**power
            outside *= self._root_symbol(symbol) ** (power % 2) * symbol ** (power // 2)
        content, _ = sp.Poly(sp.numer(sp.cancel(inside)), *base.free_symbols).primitive()
        content = sp.sqrt(content).as_coeff_Mul()[0]
        inside = sp.cancel(inside / content**2)
        return outside * content * (sp.S.One if inside == 1 else self._root_symbol(inside))

    def _root_symbol(self, base: sp.Expr) -> sp.Symbol:
        if base not in self._roots:
            root = sp.Symbol(f"root{len(self._roots)}", positive=True)
            self._roots[base] = root
            self._bases[root] = base
        return self._roots[base]

    def canonical(self, expr: sp.Expr) -> sp.Expr:
        """Return a canonical form: numerator and denominator free of squared roots."""
        if expr.is_number or expr.is_Symbol:
            return expr
        numerator, denominator = sp.fraction(sp.together(expr))
        numerator, denominator = self._reduced(numerator), self._reduced(denominator)
        for root in reversed(self._bases):  # make the denominator free of roots
            if denominator.has(root):
                conjugate = denominator.subs(root, -root)
                numerator = self._reduced(numerator * conjugate)
                denominator = self._reduced(denominator * conjugate)
        return sp.cancel(numerator / denominator)

    def _reduced(self, expr: sp.Expr) -> sp.Expr:
        expr = sp.expand(expr)
        for root, base in reversed(self._bases.items()):
            if expr.has(root):
                expr = _reduce_root(expr, root, base)
        return expr

    @property
    def decides(self) -> bool:
        """Whether the named vectors met are independent of the others met and of each other."""
        atoms = {self._atom(v) for v in self.lets}
        made_of = {self._atom(a) for v in self.lets for a in _shallow(v.definition)}
        return len(atoms) < 2 and not self.columns & (made_of - atoms)

    def vanishes(self, coefficient: sp.Expr) -> bool:
        """Whether a coefficient is zero as a function of the generic symbols."""
        if coefficient == 0:
            return True
        numerator, _ = sp.fraction(sp.together(coefficient))
        return bool(sp.expand(sp.fraction(sp.together(self._reduced(numerator)))[0]) == 0)


def _power_in(expr: sp.Expr, symbol: sp.Symbol) -> int:
    """Return the power of a symbol that divides a rational function."""
    lowest = [min(m for (m,) in sp.Poly(part, symbol).monoms()) for part in sp.fraction(expr)]
    return lowest[0] - lowest[1]


def _reduce_root(expr: sp.Expr, root: sp.Symbol, base: sp.Expr) -> sp.Expr:
    """Replace even powers of a root by powers of its square."""
    poly = sp.Poly(expr, root)
    out = sp.S.Zero
    for (power,), coefficient in poly.terms():
        out += coefficient * base ** (power // 2) * root ** (power % 2)
    return sp.expand(out)


def stands_for_scalars(expr: Let) -> bool:
    """Whether a let is built with named scalars, as ``xhat`` is, and has to be expanded."""
    return any(isinstance(a, ScalarLet) for a in _shallow(expr.definition))


def _is_not_generic(expr: Let) -> bool:
    """Whether a let has to be expanded: it holds named scalars, or nothing that is generic."""
    return stands_for_scalars(expr) or not expr.definition.atoms(State, Vector, Matrix, Apply)


def _shallow(expr: sp.Basic) -> Iterable[sp.Basic]:
    """Walk an expression without looking inside lets and maps."""
    yield expr
    if not isinstance(expr, Let | ScalarLet):
        for arg in expr.args:
            yield from _shallow(arg)


def _transpose(word: Word) -> Word:
    flip = {"row": "col", "col": "row", "mat": "mat'", "mat'": "mat", "mix": "mix'", "mix'": "mix"}
    return tuple((flip.get(kind, kind), v) for kind, v in reversed(word))


def _contraction(word: Word) -> tuple[int, int] | None:
    """Return the first ``row ... column`` with nothing in between that mixes tokens."""
    start = None
    for k, (kind, _) in enumerate(word):
        if kind == "row":
            start = k
        elif kind in ("mix", "mix'", "scalar"):
            start = None
        elif kind == "col" and start is not None:
            return start, k + 1
    return None


def _structure_met(word: Word) -> Word:
    """Carry out what a structured matrix does to its neighbours, until nothing changes."""
    while (changed := _canonical(without_structure(word))) != word:
        word = changed
    return word


def _canonical(word: Word) -> Word:
    """Put each run of diagonals (with the column or row that it meets) into one order."""
    out: list[Letter] = []
    k = 0
    while k < len(word):
        stop = k
        while stop < len(word) and word[stop][0] == "diag":
            stop += 1
        if stop > k:
            run = word[k:stop]
            column = stop < len(word) and word[stop][0] == "col"
            row = bool(out) and out[-1][0] == "row"
            if column:
                out += _canonical_run(run, ("col", word[stop][1]))
                stop += 1
            elif row:
                head = out.pop()
                out += tuple(reversed(_canonical_run(run, ("row", head[1]))))
            else:
                out += _canonical_run(run)
            k = stop
        else:
            out.append(word[k])
            k += 1
    return tuple(out)


def _canonical_run(run: Word, end: Letter | None = None) -> Word:
    """Sort commuting diagonals, cancel inverses; an end vector takes part in the order."""
    vectors = [v for _, v in run]
    if end is None:
        kept = _cancel_inverses([v for v in vectors if not isinstance(v, Ones)])
        return tuple(("diag", v) for v in sorted(kept, key=sp.default_sort_key))
    kept = _cancel_inverses([v for v in (*vectors, end[1]) if not isinstance(v, Ones)])
    if not kept:
        return ((end[0], Ones(end[1].shape[0])),)
    *inner, last = sorted(kept, key=sp.default_sort_key)
    return (*(("diag", v) for v in inner), (end[0], last))


def _cancel_inverses(vectors: list[sp.Basic]) -> list[sp.Basic]:
    kept: list[sp.Basic] = []
    for vector in vectors:
        inverse = Reciprocal(vector) if not isinstance(vector, sp.Tuple) else None
        if inverse in kept:
            kept.remove(inverse)
        else:
            kept.append(vector)
    return kept


def _word_key(word: Word) -> tuple[Any, ...]:
    return tuple((kind, sp.default_sort_key(v)) for kind, v in word)


def _all_vanish(left: sp.Basic, right: sp.Basic, *, expand_lets: bool) -> tuple[bool, bool]:
    """Return whether the sides agree word by word, and whether that settles the question."""
    form = NormalForm(expand_lets)
    if is_scalar(left):
        agree = form.vanishes(form.scalar(left) - form.scalar(right))
    else:
        difference = dict(form.words(left))
        for word, coefficient in form.words(right).items():
            difference[word] = difference.get(word, sp.S.Zero) - coefficient
        agree = all(form.vanishes(c) for c in difference.values())
    return agree, agree or form.decides


def is_zero(expr: sp.Basic) -> bool:
    """Whether an expression is zero for every ``d`` and every value of its atoms.

    Raises
    ------
    UnknownNodeError
        If the expression is outside the fragment that the procedure decides.
    """
    return equal(expr, sp.S.Zero if is_scalar(expr) else sp.ZeroMatrix(*expr.shape))


def equal(left: sp.Basic, right: sp.Basic) -> bool:
    r"""Whether two expressions are equal for every ``d``: proved, not tested.

    Parameters
    ----------
    left, right : expression
        Matrices of one shape, or scalars.

    Returns
    -------
    bool
        True: proved for every ``d``. False: they differ for generic values of their atoms.

    Raises
    ------
    UnknownNodeError
        If an expression carries token or head indices, or a node without a normal form.

    Examples
    --------
    >>> import derive
    >>> from derive.calculus.atoms import Ones
    >>> x = derive.state("x")
    >>> J = derive.jacobian(derive.LayerNorm()(x), x)
    >>> equal(J * Ones(x.shape[0]), 0 * x)
    True
    """
    if is_scalar(left) != is_scalar(right) or (not is_scalar(left) and left.shape != right.shape):
        return False
    agree, settled = _all_vanish(left, right, expand_lets=False)
    if not settled:
        agree, _ = _all_vanish(left, right, expand_lets=True)
    return agree
