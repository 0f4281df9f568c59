r"""The base of every matrix-valued node, and how sums, products and transposes of nodes are built.

SymPy's own ``MatAdd`` and ``MatMul`` reorder, merge powers and rebuild their operands; these
nodes keep what was written, factored, and check shapes when they are built.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixExpr

from derive.errors import ShapeError

__all__ = [
    "Product",
    "Sum",
    "Tensor",
    "Transposed",
    "as_scalar",
    "is_scalar",
    "own",
    "product",
    "total",
]


def is_scalar(expr: Any) -> bool:
    """Whether `expr` is a scalar SymPy expression (not a matrix)."""
    return isinstance(expr, sp.Expr) and not getattr(expr, "is_Matrix", False)


def as_scalar(value: Any, argument: str) -> sp.Expr:
    """SymPy scalar of `value`, or a `ShapeError` that names `argument`."""
    try:
        expr = sp.sympify(value)
    except (sp.SympifyError, TypeError) as error:
        raise ShapeError(f"{argument}: expected a scalar, got {value!r}") from error
    if not is_scalar(expr):
        raise ShapeError(f"{argument}: expected a scalar, got {_describe(expr)}")
    return expr


def _describe(expr: Any) -> str:
    shape = getattr(expr, "shape", None)
    if shape is None:
        return f"{expr} ({type(expr).__name__})"
    return f"{expr} of shape {shape[0]} x {shape[1]}"


class Tensor(MatrixExpr):
    r"""A matrix-valued SymPy expression with an own, non-expanding algebra.

    Column vectors have shape ``(rows, 1)``. Every subclass satisfies
    ``node.func(*node.args) == node``, so that `subs`, `xreplace` and `srepr` work.

    An operator with ``mixes_tokens`` acts on the stack of all tokens and couples them; every other
    operator acts on each token alone, with the token's own scalars, so a scalar must not be moved
    across an operator that mixes tokens.
    """

    _op_priority = 20.0
    is_commutative = False
    mixes_tokens: bool = False

    @property
    def free_symbols(self) -> set[sp.Basic]:
        """The symbols that are free in it; found once, since a node does not change."""
        return set(self._free_symbols)

    @cached_property
    def _free_symbols(self) -> frozenset[sp.Basic]:
        return frozenset().union(*(a.free_symbols for a in self.args))

    def __add__(self, other: Any) -> sp.Basic:
        return total([self, other])

    def __radd__(self, other: Any) -> sp.Basic:
        return total([other, self])

    def __sub__(self, other: Any) -> sp.Basic:
        return total([self, product([-1, other])])

    def __rsub__(self, other: Any) -> sp.Basic:
        return total([other, product([-1, self])])

    def __neg__(self) -> sp.Basic:
        return product([-1, self])

    def __mul__(self, other: Any) -> sp.Basic:
        return product([self, other])

    def __rmul__(self, other: Any) -> sp.Basic:
        return product([other, self])

    __matmul__ = __mul__
    __rmatmul__ = __rmul__

    def __truediv__(self, other: Any) -> sp.Basic:
        return product([1 / as_scalar(other, "divisor"), self])

    def __pow__(self, other: Any) -> sp.Basic:
        raise ShapeError(f"{self} ** {other}: write powers of a matrix as products")

    @property
    def T(self) -> sp.Basic:
        """The transpose."""
        return Transposed(self)

    def _eval_transpose(self) -> sp.Basic:
        return Transposed(self)

    def doit(self, **hints: Any) -> Tensor:
        """Return the node as it is: nothing is left unevaluated that should be expanded."""
        return self

    @property
    def is_column(self) -> bool:
        """Whether the node is a column vector."""
        return self.shape[1] == 1

    def _sympystr(self, printer: Any) -> str:
        return f"{type(self).__name__}({', '.join(map(printer._print, self.args))})"

    def _latex(self, printer: Any, **_: Any) -> str:
        name = rf"\operatorname{{{type(self).__name__}}}"
        return rf"{name}\left({', '.join(map(printer._print, self.args))}\right)"

    def _entry(self, i: Any, j: Any, **kwargs: Any) -> sp.Expr:
        from derive.calculus.explicit import entry

        return entry(self, i, j)


def _coerce(term: Any) -> sp.Basic:
    expr = sp.sympify(term)
    if not isinstance(expr, sp.Expr):
        raise ShapeError(f"expected a scalar or a matrix expression, got {term!r}")
    return own(expr)


def own(expr: sp.Basic) -> sp.Basic:
    """Return SymPy's sum, product or transpose of matrices as ours: ``2 * eye(d)`` makes one."""
    if isinstance(expr, sp.MatAdd):
        return total(expr.args)
    if isinstance(expr, sp.MatMul):
        return product(expr.args)
    return Transposed(own(expr.arg)) if isinstance(expr, sp.Transpose) else expr


def total(terms: Iterable[Any]) -> sp.Basic:
    r"""Sum of `terms` in the order given; equal words are merged, nothing is expanded.

    Raises
    ------
    ShapeError
        If the terms do not all have one shape; the message shows both.
    """
    flat: list[sp.Basic] = []
    for term in map(_coerce, terms):
        flat.extend(term.args if isinstance(term, Sum) else [term])
    flat = [t for t in flat if not (t == 0 or getattr(t, "is_ZeroMatrix", False))] or flat[:1]
    if all(is_scalar(t) for t in flat):
        return sp.Add(*flat)
    shape = None
    for term in flat:
        if is_scalar(term):
            raise ShapeError(
                f"sum: cannot add the scalar {term} to a matrix of shape "
                f"{next(t.shape for t in flat if not is_scalar(t))}"
            )
        if shape is None:
            shape, first = term.shape, term
        elif term.shape != shape:
            raise ShapeError(f"sum: {_describe(first)} and {_describe(term)} do not fit")
    merged: dict[sp.Basic, sp.Expr] = {}
    for term in flat:
        coefficient, word = split_coefficient(term)
        merged[word] = merged.get(word, sp.S.Zero) + coefficient
    kept = [product([c, w]) for w, c in merged.items() if c != 0]
    if not kept:
        return sp.ZeroMatrix(*flat[0].shape)
    if len(kept) == 1:
        return kept[0]
    return sp.Basic.__new__(Sum, *kept)


def split_coefficient(term: sp.Basic) -> tuple[sp.Expr, sp.Basic]:
    """Leading scalar of a term and the rest."""
    if isinstance(term, Product) and is_scalar(term.args[0]):
        return term.args[0], product(term.args[1:])
    return sp.S.One, term


def product(factors: Iterable[Any]) -> sp.Basic:
    r"""Product of `factors` from left to right, kept as a word; scalars stay where they stand.

    Neighbouring scalars are merged, a row that meets a column becomes their inner product, the
    identity disappears.

    Raises
    ------
    ShapeError
        If neighbouring shapes do not fit; the message shows both.
    """
    from derive.calculus.atoms import Inner

    flat: list[sp.Basic] = []
    for factor in map(_coerce, factors):
        flat.extend(factor.args if isinstance(factor, Product) else [factor])
    word: list[sp.Basic] = []
    last: sp.Basic | None = None  # the last matrix factor
    row: int | None = None  # where a row vector that still waits for its column stands
    for factor in flat:
        if is_scalar(factor):
            _append_scalar(word, factor)
            continue
        if last is not None and last.shape[1] != factor.shape[0]:
            raise ShapeError(f"product: {_describe(last)} and {_describe(factor)} do not fit")
        if getattr(factor, "is_ZeroMatrix", False):
            return _zero_product(flat)
        if last is not None and factor.is_Identity:
            continue
        if last is not None and last.is_Identity:
            word.remove(last)
        if factor.shape[0] == 1 and factor.shape[1] != 1:
            row = len(word)
        elif factor.shape[1] == 1 and row is not None:
            scalars = [w for w in word[row:] if is_scalar(w)]
            between = [w for w in word[row + 1 :] if not is_scalar(w)]
            if not any(getattr(w, "mixes_tokens", False) for w in (*word[row:], factor)):
                pairing = Inner(Transposed(word[row]), product([*between, factor]))
                del word[row:]
                row = None
                _append_scalar(word, sp.Mul(*scalars, pairing))
                last = next((w for w in reversed(word) if not is_scalar(w)), None)
                continue
        word.append(factor)
        last = factor
    if any(w == 0 for w in word):
        return _zero_product(flat)
    if not word:
        return sp.S.One
    if all(is_scalar(w) for w in word):
        return sp.Mul(*word)
    if len(word) == 1:
        return word[0]
    if is_scalar(word[-1]) and _is_constant(word[-1]):  # a constant behind everything goes in front
        return product([word[-1], *word[:-1]])
    if word[0] == -1 and len(word) == 2 and isinstance(word[1], Sum):
        return total([product([-1, t]) for t in word[1].args])
    return sp.Basic.__new__(Product, *word)


def _is_constant(scalar: sp.Expr) -> bool:
    """Whether a scalar is made of plain symbols: the same for every token, not a named quantity."""
    return all(
        type(node).__module__.startswith(("sympy.", "derive.symbols"))
        and not isinstance(node, sp.Indexed)
        for node in sp.preorder_traversal(scalar)
    )


def _append_scalar(word: list[sp.Basic], scalar: sp.Expr) -> None:
    if word and is_scalar(word[-1]):
        scalar = word.pop() * scalar
    if scalar != 1:
        word.append(scalar)


def _zero_product(flat: list[sp.Basic]) -> sp.Basic:
    matrices = [f for f in flat if not is_scalar(f)]
    if not matrices:
        return sp.S.Zero
    rows, cols = matrices[0].shape[0], matrices[-1].shape[1]
    return sp.S.Zero if rows == cols == 1 else sp.ZeroMatrix(rows, cols)


class Sum(Tensor):
    """A flat sum of matrices of one shape. Build it with `total` or ``+``."""

    def __new__(cls, *terms: sp.Basic) -> sp.Basic:
        """Check the arguments and build the node."""
        return total(terms)

    @cached_property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of each term."""
        return self.args[0].shape

    @cached_property
    def mixes_tokens(self) -> bool:  # type: ignore[override]
        """Whether any term couples tokens."""
        return any(getattr(t, "mixes_tokens", False) for t in self.args)

    def _sympystr(self, printer: Any) -> str:
        from derive.calculus.printing import sum_text

        return sum_text(self, printer)

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import sum_latex

        return sum_latex(self, printer)


class Product(Tensor):
    """A flat word of scalars and matrices, in order. Build it with `product` or ``*``."""

    def __new__(cls, *factors: sp.Basic) -> sp.Basic:
        """Check the arguments and build the node."""
        return product(factors)

    @property
    def matrices(self) -> tuple[sp.Basic, ...]:
        """The matrix factors, in order."""
        return tuple(a for a in self.args if not is_scalar(a))

    @cached_property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Rows of the first matrix factor, columns of the last."""
        matrices = self.matrices
        return (matrices[0].shape[0], matrices[-1].shape[1])

    @cached_property
    def mixes_tokens(self) -> bool:  # type: ignore[override]
        """Whether any factor couples tokens."""
        return any(getattr(m, "mixes_tokens", False) for m in self.matrices)

    def _sympystr(self, printer: Any) -> str:
        from derive.calculus.printing import product_text

        return product_text(self, printer)

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import product_latex

        return product_latex(self, printer)


class Transposed(Tensor):
    """Transpose of a node; pushed inwards through sums, products and diagonal matrices."""

    def __new__(cls, arg: sp.Basic) -> sp.Basic:
        """Check the arguments and build the node."""
        from derive.calculus.atoms import Diag

        if is_scalar(arg) or arg.is_Identity or isinstance(arg, Diag):
            return arg
        if isinstance(arg, Transposed):
            return arg.args[0]
        if isinstance(arg, sp.ZeroMatrix):
            return sp.ZeroMatrix(*reversed(arg.shape))
        if isinstance(arg, Sum):
            return total([Transposed(t) for t in arg.args])
        if isinstance(arg, Product):
            scalars = [] if arg.mixes_tokens else [a for a in arg.args if is_scalar(a)]
            kept = arg.args if arg.mixes_tokens else arg.matrices
            return product([*scalars, *(Transposed(t) for t in reversed(kept))])
        return sp.Basic.__new__(cls, arg)

    @cached_property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of the argument, reversed."""
        rows, cols = self.args[0].shape
        return (cols, rows)

    @cached_property
    def mixes_tokens(self) -> bool:  # type: ignore[override]
        """Whether the argument couples tokens."""
        return bool(getattr(self.args[0], "mixes_tokens", False))

    def _sympystr(self, printer: Any) -> str:
        from derive.calculus.printing import transposed_text

        return transposed_text(self.args[0], printer)

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import transposed_latex

        return transposed_latex(self.args[0], printer)
