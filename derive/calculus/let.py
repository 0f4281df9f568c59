r"""Named intermediates: a node that prints as its symbol and differentiates through its definition.

``Let`` names a vector, ``ScalarLet`` a scalar. Indices (tokens, heads) are part of the node, so
replacing an index replaces it in the definition too.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import sympy as sp
from sympy.core.symbol import Str

from derive.calculus.tensor import Tensor, is_scalar
from derive.errors import ShapeError
from derive.symbols import latex_name

__all__ = ["Let", "ScalarLet", "let"]


_GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"


def indexed_text(name: str, indices: tuple[sp.Basic, ...]) -> str:
    """``name[i,j]``, or the bare name."""
    return f"{name}[{','.join(map(str, indices))}]" if indices else name


def indexed_latex(name: str, indices: tuple[sp.Basic, ...] = ()) -> str:
    r"""``q^{(h)}_{i}``: head indices above, token indices below, after the name's own subscript."""
    applied = re.fullmatch(r"(\w+)\((.*)\)", name)
    # the output of a map is named by its application, as in F(x)
    body = f"{latex_name(applied[1])}({indexed_latex(applied[2])})" if applied else latex_name(name)
    if not indices:
        return body
    above = [sp.latex(i) for i in indices if str(i).startswith("h")]
    below = [sp.latex(i) for i in indices if not str(i).startswith("h")]
    parts = re.fullmatch(rf"((?:[^_^]|\\_)*)(?:_{_GROUP})?(?:\^{_GROUP})?", body)
    base, own, power = parts.groups() if parts else (body, None, None)
    if applied:
        base, own, power = body, None, None
    superscript = power or ""
    if above:
        superscript += "(" + ",".join(above) + ")"
    single = all(len(i) == 1 and i.isalpha() for i in below)
    subscript = ("" if single else ",").join(below)
    if own:
        subscript = f"{own},{subscript}" if subscript else own
    return (
        base
        + (f"^{{{superscript}}}" if superscript else "")
        + (f"_{{{subscript}}}" if subscript else "")
    )


class _Definition:
    """What vector and scalar lets have in common."""

    args: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The symbol's identifier."""
        return str(self.args[0])

    @property
    def definition(self) -> sp.Basic:
        """What the symbol stands for."""
        return self.args[1]

    @property
    def indices(self) -> tuple[sp.Symbol, ...]:
        """Token and head indices."""
        return self.args[2:]

    def _sympystr(self, printer: Any) -> str:
        return indexed_text(self.name, self.indices)

    def _latex(self, printer: Any, **_: Any) -> str:
        body = indexed_latex(self.name, self.indices)
        powers_need_braces = "^" in body and not getattr(printer, "groups_powers", False)
        return "{" + body + "}" if powers_need_braces else body


class Let(_Definition, Tensor):
    r"""A named column vector with its definition, for example :math:`u = x + F(x)`."""

    def __new__(cls, name: str | Str, definition: sp.Basic, *indices: sp.Basic) -> Let:
        """Check the arguments and build the node."""
        if is_scalar(definition) or definition.shape[1] != 1:
            raise ShapeError(f"definition: expected a column vector, got {definition}")
        return sp.Basic.__new__(cls, Str(str(name)), definition, *indices)

    @cached_property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of the definition."""
        return self.args[1].shape


class ScalarLet(_Definition, sp.Expr):
    r"""A named scalar with its definition, for example :math:`s = \sqrt{\mathrm{var}+\epsilon}`."""

    is_commutative = True
    is_real = True

    def __new__(cls, name: str | Str, definition: Any, *indices: sp.Basic) -> ScalarLet:
        """Check the arguments and build the node."""
        definition = sp.sympify(definition)
        if not is_scalar(definition):
            raise ShapeError(f"definition: expected a scalar, got {definition}")
        return sp.Basic.__new__(cls, Str(str(name)), definition, *indices)

    def _eval_is_zero(self) -> None:
        return None


def let(name: str, definition: Any) -> Let | ScalarLet:
    """Name an intermediate quantity.

    Parameters
    ----------
    name : str
        How it prints.
    definition : expression
        A column vector or a scalar.

    Returns
    -------
    Let or ScalarLet

    Raises
    ------
    ShapeError
        If `definition` is neither a scalar nor a column vector.
    """
    definition = sp.sympify(definition)
    return (ScalarLet if is_scalar(definition) else Let)(name, definition)
