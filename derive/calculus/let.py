r"""Named intermediates: a node that prints as its symbol and differentiates through its definition.

``Let`` names a vector, ``ScalarLet`` a scalar. Indices (tokens, heads) are part of the node, so
replacing an index replaces it in the definition too.
"""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.core.symbol import Str

from derive.calculus.tensor import Tensor, is_scalar
from derive.errors import ShapeError
from derive.symbols import latex_name

__all__ = ["Let", "ScalarLet", "let"]


def indexed_text(name: str, indices: tuple[sp.Basic, ...]) -> str:
    """``name[i,j]``, or the bare name."""
    return f"{name}[{','.join(map(str, indices))}]" if indices else name


def indexed_latex(name: str, indices: tuple[sp.Basic, ...]) -> str:
    r"""``q^{(h)}_{i}``: head indices above, token indices below."""
    body = latex_name(name)
    above = [i for i in indices if str(i).startswith("h")]
    below = [i for i in indices if i not in above]
    if below:
        subscript = " ".join(sp.latex(i) for i in below)
        if "_{" in body:
            head, _, tail = body.partition("_{")
            body = f"{head}_{{{subscript},{tail}" if not tail.startswith("\\mathrm") else (
                f"{body[:-1]},{subscript}}}"
            )
        elif "^" in body:
            base, _, power = body.partition("^")
            body = f"{base}_{{{subscript}}}^{power}"
        else:
            body = f"{body}_{{{subscript}}}"
    if above:
        body += "^{(" + ",".join(sp.latex(i) for i in above) + ")}"
    return body


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
        return "{" + body + "}" if "^" in body and isinstance(self, sp.Expr) else body


class Let(_Definition, Tensor):
    r"""A named column vector with its definition, for example :math:`u = x + F(x)`."""

    def __new__(cls, name: str | Str, definition: sp.Basic, *indices: sp.Basic) -> Let:
        if is_scalar(definition) or definition.shape[1] != 1:
            raise ShapeError(f"definition: expected a column vector, got {definition}")
        return sp.Basic.__new__(cls, Str(str(name)), definition, *indices)

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of the definition."""
        return self.args[1].shape


class ScalarLet(_Definition, sp.Expr):
    r"""A named scalar with its definition, for example :math:`s = \sqrt{\mathrm{var}+\epsilon}`."""

    is_commutative = True
    is_real = True

    def __new__(cls, name: str | Str, definition: Any, *indices: sp.Basic) -> ScalarLet:
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
