r"""Families indexed by token or head, and sums over an index.

``At(z, i)`` is the member :math:`z_i` of a family; ``index_sum(e, j, n)`` is
:math:`\sum_{j=1}^{n} e`. Scalars and matrices have a sum node of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from derive.calculus.let import indexed_latex, indexed_text
from derive.calculus.tensor import Sum, Tensor, is_scalar, product, total
from derive.errors import UnknownNodeError

__all__ = [
    "FAMILIES",
    "MEMORY",
    "TOKENS",
    "At",
    "IndexSum",
    "ScalarIndexSum",
    "family",
    "index",
    "index_sum",
]


def index(name: str) -> sp.Symbol:
    """Return a token or head index (head indices are named ``h``)."""
    return sp.Symbol(name, integer=True, nonnegative=True)


TOKENS = (index("i"), index("j"), index("k"), index("l"))
"""The token indices: output token, input token, and two for inner sums."""

MEMORY = (index("t"), index("u"), index("w"))
"""Indices over the tokens of a memory (the encoder's output in cross-attention)."""

FAMILIES = (TOKENS, MEMORY)
"""Families whose identities hold at every choice of their indices."""

HEADS = tuple(index(name) for name in ("h", "h2", "h3"))
EXPERTS = tuple(index(name) for name in ("e", "e2", "e3", "e4"))
GROUPS = tuple(index(name) for name in ("g", "g2", "g3"))


def family(position: sp.Basic) -> tuple[sp.Symbol, ...]:
    """Return the indices of the same kind: what a bound index may be renamed to.

    Raises
    ------
    UnknownNodeError
        If the index is of no known kind: renamed to another kind it would run over another range.
    """
    for members in (*FAMILIES, HEADS, EXPERTS, GROUPS):
        if position in members:
            return members
    raise UnknownNodeError(f"index {position}: expected one of a known family, to rename it")


class At(Tensor):
    r"""Member of a family of tensors: token ``i`` of a state, head ``h`` of a weight."""

    def __new__(cls, family: sp.Basic, position: sp.Basic) -> At:
        """Check the arguments and build the node."""
        return sp.Basic.__new__(cls, family, sp.sympify(position))

    @property
    def family(self) -> sp.Basic:
        """The family."""
        return self.args[0]

    @property
    def position(self) -> sp.Basic:
        """The index."""
        return self.args[1]

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of each member."""
        return self.args[0].shape

    def _sympystr(self, printer: Any) -> str:
        return indexed_text(printer._print(self.family), (self.position,))

    def _latex(self, printer: Any, **_: Any) -> str:
        name = getattr(self.family, "name", None)
        if isinstance(name, str):
            return indexed_latex(name, (self.position,))
        return rf"\left[{printer._print(self.family)}\right]_{{{printer._print(self.position)}}}"


class _OverIndex:
    """What the two sum nodes have in common: ``args = (summand, index, size)``."""

    args: tuple[Any, ...]
    func: Any

    @property
    def summand(self) -> sp.Basic:
        """What is summed."""
        return self.args[0]

    @property
    def index(self) -> sp.Symbol:
        """The bound index."""
        return self.args[1]

    @property
    def size(self) -> sp.Expr:
        """How many values the index takes."""
        return self.args[2]

    @property
    def free_symbols(self) -> set[sp.Basic]:
        """Free symbols, without the bound index."""
        return (self.args[0].free_symbols - {self.args[1]}) | self.args[2].free_symbols

    def _xreplace(self, rule: Any) -> tuple[Any, bool]:
        """Replace free occurrences only; a bound index that would be captured is renamed."""
        if self in rule:
            return rule[self], True
        rule = {k: sp.sympify(v) for k, v in rule.items() if k != self.args[1]}
        summand, bound = self._clear_of(rule)
        summand, changed = summand._xreplace(rule)
        size, resized = self.args[2]._xreplace(rule)
        if not (changed or resized or bound != self.args[1]):
            return self, False
        return self.func(summand, bound, size), True

    def _eval_subs(self, old: sp.Basic, new: sp.Basic) -> Any:
        """Substitute under the same two conditions."""
        if old == self.args[1]:
            return self
        summand, bound = self._clear_of({old: new})
        return self.func(summand._subs(old, new), bound, self.args[2]._subs(old, new))

    def _clear_of(self, rule: Mapping[sp.Basic, sp.Basic]) -> tuple[sp.Basic, sp.Symbol]:
        """Return summand and bound index, renamed where a replacement would be captured."""
        summand, bound = self.args[:2]
        if any(bound in v.free_symbols for k, v in rule.items() if summand.has(k)):
            taken = summand.free_symbols.union(*(v.free_symbols for v in rule.values()))
            fresh = next(t for t in family(bound) if t not in taken)
            return summand.xreplace({bound: fresh}), fresh
        return summand, bound

    def _sympystr(self, printer: Any) -> str:
        from derive.calculus.printing import index_sum_text

        return index_sum_text(self, printer)

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import index_sum_latex

        return index_sum_latex(self, printer)


class IndexSum(_OverIndex, Tensor):
    """Sum of tensors over a token or head index."""

    def __new__(cls, summand: sp.Basic, index: sp.Symbol, size: sp.Expr) -> IndexSum:
        """Check the arguments and build the node."""
        return sp.Basic.__new__(cls, summand, index, size)

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of each summand."""
        return self.args[0].shape


class ScalarIndexSum(_OverIndex, sp.Expr):
    """Sum of scalars over a token or head index."""

    is_commutative = True

    def __new__(cls, summand: sp.Basic, index: sp.Symbol, size: sp.Expr) -> ScalarIndexSum:
        """Check the arguments and build the node."""
        return sp.Basic.__new__(cls, summand, index, size)


def index_sum(summand: sp.Basic, index: sp.Symbol, size: sp.Expr) -> sp.Basic:
    r"""Return :math:`\sum_{\text{index}}` of `summand`; factors that do not carry it stand outside.

    A sum of terms is summed term by term.
    """
    if isinstance(summand, Sum | sp.Add):
        return total([index_sum(t, index, size) for t in summand.args])
    factors = summand.args if hasattr(summand, "matrices") or summand.is_Mul else (summand,)
    scalars = [f for f in factors if is_scalar(f)]
    if hasattr(summand, "matrices"):  # split a leading scalar into its own factors
        scalars = [g for f in scalars for g in sp.Mul.make_args(f)]
    outside = [f for f in scalars if index not in f.free_symbols]
    inside = [f for f in scalars if index in f.free_symbols]
    matrices = [f for f in factors if not is_scalar(f)]
    left: list[sp.Basic] = []
    while matrices and index not in matrices[0].free_symbols and len(matrices) > 1:
        left.append(matrices.pop(0))
    right: list[sp.Basic] = []
    while len(matrices) > 1 and index not in matrices[-1].free_symbols:
        right.insert(0, matrices.pop())
    if matrices and index not in matrices[0].free_symbols and not inside:
        return product([size, *scalars, *left, *matrices, *right])
    if not matrices and not inside:
        return product([size, *outside])
    core = product([*inside, *matrices])
    node = (ScalarIndexSum if is_scalar(core) else IndexSum)(core, index, size)
    return product([*outside, *left, node, *right])
