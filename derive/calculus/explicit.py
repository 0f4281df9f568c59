r"""Explicit entries: an expression at a concrete size as a plain SymPy matrix.

This is the way from the factored expression to everything that SymPy does with entries; it is
meant for small sizes, since entries grow quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp
from mpmath.libmp import prec_to_dps

from derive.calculus.instantiate import Instantiation, token_blocks
from derive.calculus.maps import Map
from derive.calculus.pointwise import Activation
from derive.errors import ShapeError

__all__ = ["entry", "explicit"]


class SymPyRing:
    """Entries are SymPy expressions; names may be given values."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.values = dict(values or {})

    def number(self, value: sp.Expr) -> sp.Expr:
        """Return the number itself."""
        return value

    def symbol(self, symbol: sp.Basic) -> sp.Basic:
        """Return the given value, or the symbol itself."""
        return sp.sympify(self.values.get(str(symbol), symbol))

    def entry(self, kind: str, name: str, position: tuple[int, ...], row: int, col: int) -> sp.Expr:
        """Return the given value, or a symbol such as ``x_2`` or ``W_1_2_3`` (counted from 1)."""
        given = self.values.get(name)
        if given is not None:
            array = np.asarray(given, dtype=object)
            index = (*position, row, col) if kind == "weight" else (position[0], row)
            if kind == "weight" and array.ndim == len(index) - 1:
                index = index[:-1]  # a vector without its column axis
            if kind == "state" and array.ndim == 1:
                index = (row,)
            return sp.sympify(array[index])
        place = [str(p + 1) for p in position] if kind == "weight" or position != (0,) else []
        place += [str(row + 1)] if kind == "state" else [str(row + 1), str(col + 1)]
        return sp.Symbol("_".join([name, *place]), real=True)

    def root(self, value: sp.Expr) -> sp.Expr:
        """Return the square root."""
        return sp.sqrt(value)

    def function(self, kind: Any, value: sp.Expr) -> sp.Expr:
        """Return the function of the entry."""
        return kind(value)

    def activation(self, activation: Activation, order: int, value: sp.Expr) -> sp.Expr:
        """Return the formula, or a named function where the activation is abstract.

        At a floating-point number the formula is evaluated to its digits.
        """
        if activation.is_abstract:
            t = sp.Dummy("t", real=True)
            return sp.Function(activation.name)(t).diff(t, order).subs(t, value)
        result = activation.derivative(order)(value)
        return result.evalf(prec_to_dps(value._prec)) if value.is_Float else result

    def map(self, mapping: Map, argument: list[sp.Expr]) -> list[sp.Expr]:
        """Return the named functions ``F_0(u), F_1(u), ...``."""
        return [self._component(mapping, k)(*argument) for k in range(len(argument))]

    def _component(self, mapping: Map, k: int) -> Any:
        return sp.Function(f"{mapping.name}_{k}")

    def map_jacobian(self, mapping: Map, argument: list[sp.Expr]) -> np.ndarray:
        """Return their partial derivatives."""
        size = range(len(argument))
        out = np.empty((len(argument),) * 2, dtype=object)
        for k in size:
            for slot in size:
                out[k, slot] = self._component(mapping, k)(*argument).fdiff(slot + 1)
        return out


def explicit(
    expr: sp.Basic,
    sizes: Mapping[Any, int],
    *,
    tokens: int = 1,
    values: Mapping[str, Any] | None = None,
) -> sp.Matrix:
    r"""Return a matrix expression entry by entry, as a plain SymPy matrix.

    Parameters
    ----------
    expr : expression
        A vector or a Jacobian.
    sizes : mapping from symbol (or its name) to int
        Sizes of the dimensions, for example ``{"d": 3}``.
    tokens : int
        Number of tokens; a Jacobian that mixes tokens becomes one ``(n rows, n cols)`` matrix.
    values : mapping from str to array or number, optional
        Values of named atoms (rationals keep everything exact); others stay symbols.

    Returns
    -------
    sympy.Matrix

    Raises
    ------
    DomainError
        If a dimension has no size.
    ShapeError
        If a scalar is asked for.

    Examples
    --------
    >>> import derive
    >>> x = derive.state("x")
    >>> J = derive.jacobian(derive.RMSNorm(eps=0, gain=False)(x), x)
    >>> explicit(J, {"d": 2}, values={"x": [1, 1]})
    Matrix([
    [ 1/2, -1/2],
    [-1/2,  1/2]])
    """
    if getattr(expr, "shape", None) is None:
        raise ShapeError(f"explicit: expected a matrix expression, got {expr}")
    named = {s.name: s for s in expr.free_symbols if isinstance(s, sp.Symbol)}
    bound = {named.get(k, sp.Symbol(k)) if isinstance(k, str) else k: v for k, v in sizes.items()}
    instance = Instantiation(SymPyRing(values), bound, tokens)
    if not getattr(expr, "mixes_tokens", False):
        return sp.Matrix(instance(expr).tolist())
    blocks = token_blocks(instance, expr)
    n, _, rows, cols = blocks.shape
    return sp.Matrix(blocks.swapaxes(1, 2).reshape(n * rows, n * cols).tolist())


def entry(expr: sp.Basic, i: Any, j: Any) -> sp.Expr:
    """Return one entry of an expression whose sizes are numbers."""
    return explicit(expr, {})[int(i), int(j)]
