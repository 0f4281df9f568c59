r"""Blocks as text: ``"x + N(F(N(x)))"`` is parsed into an expression, never evaluated.

The grammar is a small part of Python's expressions: names, numbers, ``+ - * /`` and calls of the
maps in scope with one argument. Intermediate quantities are named by statements in front of the
result, ``"h = x + A(N1(x)); h + F(N2(h))"``. A product with a constant vector is entry by entry.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Mapping

import sympy as sp

from derive import symbols
from derive.calculus.atoms import Diag, State, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Map
from derive.calculus.tensor import is_scalar, product, total
from derive.errors import ParseError, ShapeError

__all__ = ["parse_block"]

SCALARS = {name: getattr(symbols, name) for name in ("alpha", "beta", "d", "L", "l")}
LONGEST = 2_000
LARGEST = 1e300


def parse_block(
    text: str,
    maps: Mapping[str, Map],
    state: State | Let | None = None,
    name: str | None = None,
    vectors: Iterable[str] = (),
    scalars: Iterable[str] = (),
    others: Mapping[str, sp.Basic] | None = None,
) -> sp.Basic:
    r"""Parse a block equation.

    Parameters
    ----------
    text : str
        For example ``"N(alpha*x + F(x))"``.
    maps : mapping from str to Map
        The norms and sublayers that the text may apply.
    state : State or Let, optional
        The variable, ``x`` by default.
    name : str, optional
        What the text calls the variable: its own name by default.
    vectors, scalars : iterable of str, optional
        Names of constant vectors (``lam * F(x)`` is :math:`\operatorname{diag}(\lambda)F(x)`) and
        of constant scalars besides ``alpha`` and ``beta``.
    others : mapping, optional
        Further states, by name.

    Returns
    -------
    expression
        A column vector.

    Raises
    ------
    ParseError
        If the text is not such an equation; the message shows the place.
    """
    state = State("x", symbols.d) if state is None else state
    if not isinstance(text, str) or not text.strip():
        raise ParseError(f"block: expected an equation such as 'x + F(N(x))', got {text!r}")
    if len(text) > LONGEST:
        raise ParseError(f"block: expected at most {LONGEST} characters, got {len(text)}")
    if not text.isascii():  # Python reads some other characters as if they were these
        raise ParseError(f"block: expected ASCII characters only, got {text!r}")
    constants: dict[str, sp.Basic] = {v: Vector(v, state.shape[0]) for v in vectors}
    constants |= {v: sp.Symbol(v, real=True) for v in scalars}
    scope: dict[str, sp.Basic] = {**constants, **(others or {}), (name or state.name): state}
    *statements, result = text.split(";")
    for statement in statements:
        match = _ASSIGNMENT.fullmatch(statement.strip())
        if match is None:
            raise ParseError(f"block: expected 'name = expression' before ';', got {statement!r}")
        left, right = match.groups()
        if left in scope or left in maps or left in SCALARS:
            raise ParseError(f"block: the name {left!r} in {statement!r} is taken")
        definition = _read(right, maps, scope)
        scope[left] = (
            ScalarLet(left, definition) if is_scalar(definition) else Let(left, definition)
        )
    block = _read(result, maps, scope)
    if is_scalar(block):
        raise ParseError(f"block: expected a vector, got the scalar {block}")
    return block


_ASSIGNMENT = re.compile(r"([A-Za-z]\w*)\s*=(?!=)(.*)", re.DOTALL)


def _read(text: str, maps: Mapping[str, Map], scope: Mapping[str, sp.Basic]) -> sp.Basic:
    text = text.strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = getattr(error, "offset", None)
        where = f" at column {column}" if column else " at its end"
        raise ParseError(f"block: cannot read {text!r}{where}") from None
    try:
        return _Reader(text, maps, scope).read(tree)
    except ShapeError as error:
        raise ParseError(f"block {text!r}: {error}") from None
    except RecursionError:
        raise ParseError("block: nested too deeply") from None


class _Reader:
    def __init__(self, text: str, maps: Mapping[str, Map], scope: Mapping[str, sp.Basic]) -> None:
        self.text = text
        self.maps = maps
        self.scope = scope

    def fail(self, node: ast.AST, expected: str) -> ParseError:
        piece = ast.get_source_segment(self.text, node) or self.text
        return ParseError(f"block: expected {expected}, got {piece!r} in {self.text!r}")

    def read(self, node: ast.expr) -> sp.Basic:
        match node:
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return self.number(node, value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return product([-1, self.read(operand)])
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(node, op, self.read(left), self.read(right))
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
                return self.call(node, name, argument)
        raise self.fail(node, "a sum, a product or the application of a map to one argument")

    def number(self, node: ast.expr, value: float) -> sp.Rational:
        digits = (ast.get_source_segment(self.text, node) or "").lower().partition("e")[0]
        lost = value == 0 and re.search("[1-9]", digits)
        if lost or not value < LARGEST:
            raise self.fail(node, f"a number below {LARGEST:g} that is not rounded to zero")
        return sp.Rational(str(value))

    def name(self, node: ast.expr, name: str) -> sp.Basic:
        if name in self.scope:
            return self.scope[name]
        if name in SCALARS:
            return SCALARS[name]
        known = ", ".join((*self.scope, *SCALARS))
        if name in self.maps:
            raise self.fail(node, f"the map {name} applied to something, as in {name}(x)")
        raise self.fail(node, f"one of {known}")

    def binary(self, node: ast.expr, op: ast.operator, left: sp.Basic, right: sp.Basic) -> sp.Basic:
        match op:
            case ast.Add():
                return total([left, right])
            case ast.Sub():
                return total([left, product([-1, right])])
            case ast.Mult() if is_scalar(left) or is_scalar(right):
                return product([left, right] if is_scalar(left) else [right, left])
            case ast.Mult() if isinstance(left, Vector):
                return product([Diag(left), right])
            case ast.Mult() if isinstance(right, Vector):
                return product([Diag(right), left])
            case ast.Div() if is_scalar(right) and right != 0:
                return product([1 / right, left])
        raise self.fail(node, "+, -, or a product or quotient with a non-zero scalar")

    def call(self, node: ast.expr, name: str, argument: ast.expr) -> sp.Basic:
        if name not in self.maps:
            raise self.fail(node, f"one of the maps {', '.join(sorted(self.maps))}")
        inner = self.read(argument)
        if is_scalar(inner):
            raise self.fail(node, f"a vector as argument of {name}")
        return self.maps[name](inner)
