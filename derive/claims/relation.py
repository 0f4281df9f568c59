r"""Relations as text: ``"J*x == x"`` or ``"norm(J) <= 1 + norm(A)"`` is parsed, never evaluated.

The grammar is a small part of Python's expressions: names and numbers, ``+ - * / **``, a transpose
``A.T``, the functions in `FUNCTIONS`, and one of ``==``, ``<=``, ``>=`` between two sides.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from derive.calculus.atoms import Diag, Reciprocal
from derive.calculus.maps import JacobianOf, Map
from derive.calculus.tensor import Transposed, is_scalar, product, total
from derive.errors import DeriveError, ParseError
from derive.proof.size import MaxAbs, SmallestSingular, SpectralNorm

__all__ = ["FUNCTIONS", "Relation", "parse_relation"]

LONGEST = 2_000
RELATIONS: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.LtE: "<=", ast.GtE: ">="}
FUNCTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "norm": ("2-norm of a matrix, length of a vector", SpectralNorm),
    "sigma_min": ("smallest singular value of a square matrix", SmallestSingular),
    "max_abs": ("largest absolute entry of a vector", MaxAbs),
    "diag": ("diagonal matrix of a vector", Diag),
    "inv": (
        "reciprocals of a vector, or of a scalar",
        lambda v: 1 / v if is_scalar(v) else Reciprocal(v),
    ),
    "sqrt": ("root of a scalar", sp.sqrt),
    "exp": ("exponential of a scalar", sp.exp),
    "log": ("logarithm of a scalar", sp.log),
}
"""What a relation may call: meaning, and what it builds."""


@dataclass(frozen=True)
class Relation:
    """Two sides and what is claimed of them: ``==``, or ``<=`` (a ``>=`` is turned round)."""

    left: sp.Basic
    sign: str
    right: sp.Basic


def parse_relation(
    text: str, names: Mapping[str, sp.Basic], maps: Mapping[str, Map] | None = None
) -> Relation:
    """Parse a relation.

    Parameters
    ----------
    text : str
        For example ``"ones.T*diag(inv(gain))*J == 0"``; 0 stands for zero of any shape.
    names : mapping
        What the names mean.
    maps : mapping, optional
        Maps that may be applied, as in ``F(x)``; ``D(F, x)`` is the Jacobian of F at x.

    Raises
    ------
    ParseError
        If the text is no such relation; the message shows the place.
    """
    if not isinstance(text, str) or not text.strip():
        raise ParseError(f"relation: expected a text such as 'J*x == x', got {text!r}")
    if len(text) > LONGEST or not text.isascii():
        raise ParseError(
            f"relation: expected at most {LONGEST} ASCII characters, got {text[:40]!r}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ParseError(f"relation: cannot read {text!r}") from None
    if (
        not isinstance(tree, ast.Compare)
        or len(tree.ops) != 1
        or type(tree.ops[0]) not in RELATIONS
    ):
        signs = ", ".join(RELATIONS.values())
        raise ParseError(f"relation: expected one of {signs} between two sides, got {text!r}")
    reader = _Reader(text.strip(), names, maps or {})
    try:
        left, right = reader.read(tree.left), reader.read(tree.comparators[0])
    except ParseError:
        raise
    except (DeriveError, RecursionError) as error:
        raise ParseError(f"relation {text!r}: {error}") from None
    left, right = _same_shape(left, right, text)
    sign = RELATIONS[type(tree.ops[0])]
    if sign != "==" and not is_scalar(left):
        raise ParseError(
            f"relation: expected scalars on both sides of {sign}, such as norm(J), got {text!r}"
        )
    return Relation(right, "<=", left) if sign == ">=" else Relation(left, sign, right)


def _same_shape(left: sp.Basic, right: sp.Basic, text: str) -> tuple[sp.Basic, sp.Basic]:
    if right == 0 and not is_scalar(left):
        return left, sp.ZeroMatrix(*left.shape)
    if left == 0 and not is_scalar(right):
        return sp.ZeroMatrix(*right.shape), right
    shapes = ["a scalar" if is_scalar(e) else "{} x {}".format(*e.shape) for e in (left, right)]
    if shapes[0] != shapes[1]:
        raise ParseError(
            f"relation: the sides of {text!r} do not have one shape: {' and '.join(shapes)}"
        )
    return left, right


class _Reader:
    def __init__(self, text: str, names: Mapping[str, Any], maps: Mapping[str, Map]) -> None:
        self.text, self.names, self.maps = text, names, maps

    def fail(self, node: ast.AST, expected: str) -> ParseError:
        piece = ast.get_source_segment(self.text, node) or self.text
        return ParseError(f"relation: expected {expected}, got {piece!r} in {self.text!r}")

    def read(self, node: ast.expr) -> sp.Basic:
        match node:
            case ast.Name(id=name):
                if name in self.names:
                    return self.names[name]
                raise self.fail(node, f"one of {', '.join(sorted(self.names))}")
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return sp.Rational(str(value))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return product([-1, self.read(operand)])
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(node, op, self.read(left), self.read(right))
            case ast.Attribute(value=value, attr="T"):
                inside = self.read(value)
                return inside if is_scalar(inside) else Transposed(inside)
            case ast.Call(func=ast.Name(id="D"), args=[ast.Name(id=name), argument], keywords=[]):
                return JacobianOf(self.map(node, name), self.read(argument))
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
                if name in FUNCTIONS:
                    return FUNCTIONS[name][1](self.read(argument))
                return self.map(node, name)(self.read(argument))
        raise self.fail(node, "a sum, a product, a power, a transpose A.T or a call")

    def map(self, node: ast.AST, name: str) -> Map:
        if name in self.maps:
            return self.maps[name]
        known = ", ".join((*FUNCTIONS, *self.maps))
        raise self.fail(node, f"a call of one of {known}")

    def binary(self, node: ast.AST, op: ast.operator, left: sp.Basic, right: sp.Basic) -> sp.Basic:
        match op:
            case ast.Add():
                return total([left, right])
            case ast.Sub():
                return total([left, product([-1, right])])
            case ast.Mult() | ast.MatMult():
                return product([left, right])
            case ast.Div() if is_scalar(right) and right != 0:
                return product([1 / right, left])
            case ast.Pow() if is_scalar(left) and right.is_Rational and abs(right) <= 100:
                return left**right
        raise self.fail(node, "+, -, *, division by a scalar, or a scalar to a rational power")
