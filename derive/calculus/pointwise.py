r"""Functions applied to every entry of a vector, and their derivatives of any order.

The derivative of :math:`\phi(a)` is :math:`\operatorname{diag}(\phi'(a))`, with :math:`\phi'`
obtained by SymPy from the one formula that defines :math:`\phi`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sympy as sp
from sympy.core.symbol import Str

from derive.calculus.tensor import Tensor, is_scalar
from derive.errors import ShapeError

__all__ = ["Activation", "Pointwise", "normal_cdf", "sigmoid"]

_t = sp.Symbol("t", real=True)


class sigmoid(sp.Function):
    r"""Logistic function :math:`1/(1+e^{-t})`, a name of its own so that it does not overflow."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        r""":math:`\sigma'(t) = \sigma(t)\,\sigma(-t)`."""
        return sigmoid(self.args[0]) * sigmoid(-self.args[0])

    def _eval_rewrite_as_exp(self, arg: sp.Expr, **_: Any) -> sp.Expr:
        return 1 / (1 + sp.exp(-arg))

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.rewrite(sp.exp)._eval_evalf(prec)

    def _latex(self, printer: Any, exp: Any = None, **_: Any) -> str:
        from derive.calculus.printing import call_latex

        body = call_latex(r"\sigma", printer._print(self.args[0]))
        return body if exp is None else rf"{body}^{{{exp}}}"


class normal_cdf(sp.Function):
    r"""Distribution function of the standard normal, :math:`\Phi(t)`.

    A name of its own: SymPy turns ``erfc(-t)`` into ``2 - erfc(t)``, which is exactly zero far on
    the left, where the function is small but not zero.
    """

    nargs = 1

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        r""":math:`\Phi'(t) = e^{-t^2/2}/\sqrt{2\pi}`."""
        return sp.exp(-(self.args[0] ** 2) / 2) / sp.sqrt(2 * sp.pi)

    def _eval_rewrite_as_erf(self, arg: sp.Expr, **_: Any) -> sp.Expr:
        return (1 + sp.erf(arg / sp.sqrt(2))) / 2

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.rewrite(sp.erf)._eval_evalf(prec)

    def _latex(self, printer: Any, exp: Any = None, **_: Any) -> str:
        from derive.calculus.printing import call_latex

        body = call_latex(r"\Phi", printer._print(self.args[0]))
        return body if exp is None else rf"{body}^{{{exp}}}"


class Activation(sp.Basic):
    r"""A scalar function with a name and (unless abstract) a formula.

    Parameters
    ----------
    name : str
        How it prints.
    formula : sympy.Lambda, optional
        The function of one variable; without it the activation is abstract: its derivatives have
        names but no values.
    """

    def __new__(cls, name: str | Str, formula: sp.Lambda | None = None) -> Activation:
        """Check the arguments and build the node."""
        args: list[sp.Basic] = [Str(str(name))]
        if formula is not None:
            args.append(formula)
        return sp.Basic.__new__(cls, *args)

    @property
    def name(self) -> str:
        """The name."""
        return str(self.args[0])

    @property
    def is_abstract(self) -> bool:
        """Whether there is no formula."""
        return len(self.args) == 1

    def derivative(self, order: int = 0) -> sp.Lambda:
        """Return the formula of the derivative of the given order.

        Raises
        ------
        ShapeError
            If the activation is abstract.
        """
        if self.is_abstract:
            raise ShapeError(f"activation {self.name} is abstract: it has no formula")
        return _derivative(self.args[1], order)

    def least_order(self, order: int) -> int:
        """Return the least order with the same derivative: 0 for every derivative of exp."""
        while (
            order and not self.is_abstract and self.derivative(order) == self.derivative(order - 1)
        ):
            order -= 1
        return order

    def __call__(self, vector: sp.Basic) -> Pointwise:
        """Apply to every entry of a column vector."""
        return Pointwise(self, 0, vector)

    def text(self, order: int) -> str:
        """Name of the derivative of the given order."""
        return self.name + "'" * order

    def latex(self, order: int) -> str:
        """LaTeX of the name of the derivative of the given order."""
        name = (
            "\\" + self.name
            if self.name in ("phi", "psi", "tanh")
            else r"\operatorname{" + self.name.replace("_", r"\_") + "}"
        )
        return name + "'" * order


@lru_cache(maxsize=256)
def _derivative(formula: sp.Lambda, order: int) -> sp.Lambda:
    body = formula(_t)
    for _ in range(order):
        body = sp.diff(body, _t)
    return sp.Lambda(_t, body)


class Pointwise(Tensor):
    r"""An activation or a derivative of it at every entry of a vector: :math:`\phi^{(k)}(a)`."""

    def __new__(cls, activation: Activation, order: Any, vector: sp.Basic) -> Pointwise:
        """Check the arguments and build the node."""
        if is_scalar(vector) or vector.shape[1] != 1:
            raise ShapeError(f"{activation.name}: expected a column vector, got {vector}")
        order = activation.least_order(int(order))
        return sp.Basic.__new__(cls, activation, sp.Integer(order), vector)

    @property
    def activation(self) -> Activation:
        """The function."""
        return self.args[0]

    @property
    def order(self) -> int:
        """The order of the derivative."""
        return int(self.args[1])

    @property
    def vector(self) -> sp.Basic:
        """The argument."""
        return self.args[2]

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of the argument."""
        return self.args[2].shape

    def _sympystr(self, printer: Any) -> str:
        return f"{self.activation.text(self.order)}({printer._print(self.vector)})"

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import call_latex

        return call_latex(self.activation.latex(self.order), printer._print(self.vector))
