r"""The trace of a square matrix, as a scalar."""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.calculus.tensor import is_scalar, own
from derive.errors import ShapeError

__all__ = ["Trace"]


class Trace(sp.Expr):
    r"""The trace :math:`\operatorname{tr} A`; of :math:`J^\top J`, the squared Frobenius norm of J.

    It is linear and invariant to rotations of a product, :math:`\operatorname{tr} I = d` and
    :math:`\operatorname{tr}(uv^\top) = v^\top u`; the normal form uses these rules.
    """

    is_commutative = True
    is_real = True

    def __new__(cls, matrix: sp.Basic) -> sp.Expr:
        """Check the argument and build the node."""
        matrix = own(sp.sympify(matrix))
        if is_scalar(matrix) or matrix.shape[0] != matrix.shape[1]:
            raise ShapeError(f"trace: expected a square matrix, got {matrix}")
        if matrix.is_Identity:
            return matrix.shape[0]
        if getattr(matrix, "is_ZeroMatrix", False):
            return sp.S.Zero
        if getattr(matrix, "mixes_tokens", False):
            raise ShapeError(f"trace: expected an operator on one token, got {matrix}")
        return sp.Basic.__new__(cls, matrix)

    def _sympystr(self, printer: Any) -> str:
        return f"tr({printer._print(self.args[0])})"

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import call_latex

        return call_latex(r"\operatorname{tr}", printer._print(self.args[0]))
