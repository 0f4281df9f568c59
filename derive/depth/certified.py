r"""A certified run of a small stack: how far its float64 answer is from the exact one, proved.

The float64 weights and the input are taken as the exact numbers that they are. The block, the
states and the end-to-end Jacobian are evaluated in balls, through the derived expressions that the
float64 answer is lowered from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp

from derive.blocks.moe import step
from derive.calculus.instantiate import Instantiation, token_blocks
from derive.calculus.maps import Map
from derive.calculus.pointwise import Activation, normal_cdf, sigmoid
from derive.depth.stack import Stack
from derive.depth.streams import StreamStack
from derive.errors import DomainError, UnknownNodeError, WeightError
from derive.linalg.certified import (
    Interval,
    balls,
    entry_error,
    flint,
    frobenius_error,
    singular_value_enclosures,
)
from derive.lower import Environment

__all__ = ["BallRing", "Certified", "certified_row", "certify", "formula_ball"]

LARGEST = 96
"""The largest n d of a certified run."""


def formula_ball(expr: sp.Expr, values: Mapping[sp.Symbol, Any]) -> Any:
    """Return a ball that contains a scalar formula at every point of the given balls.

    Parameters
    ----------
    expr : expression
        A formula in numbers, symbols, powers, exponentials and the functions of the activations. A
        case that cannot be decided, since the ball lies on both sides, gives the union of both.
    values : mapping from symbol to ball
        The balls of its symbols.

    Raises
    ------
    UnknownNodeError
        If there is no rule for a node.
    """
    arb = flint().arb
    if expr in values:
        return values[expr]
    if expr.is_Rational or expr.is_Float:
        exact = sp.Rational(expr)
        return arb(flint().fmpq(int(exact.p), int(exact.q)))
    if expr is sp.pi:
        return arb.pi()
    if isinstance(expr, sp.Piecewise):
        return _piecewise(expr, values)
    args = [formula_ball(a, values) for a in expr.args]
    if expr.is_Add:
        return sum(args[1:], args[0])
    if expr.is_Mul:
        out = args[0]
        for factor in args[1:]:
            out = out * factor
        return out
    if expr.is_Pow and expr.exp.is_Integer:
        return args[0] ** int(expr.exp)
    if expr.is_Pow and expr.exp.is_Rational and expr.exp.q == 2:
        return args[0].sqrt() ** int(expr.exp.p)
    functions = {
        sp.exp: lambda t: t.exp(),
        sp.log: lambda t: t.log(),
        sp.tanh: lambda t: t.tanh(),
        sp.erf: lambda t: t.erf(),
        sigmoid: lambda t: 1 / (1 + (-t).exp()),
        normal_cdf: lambda t: (-t / arb(2).sqrt()).erfc() / 2,
        step: _step,
    }
    if expr.func in functions:
        return functions[expr.func](*args)
    raise UnknownNodeError(f"certify: no rule for {type(expr).__name__} ({expr})")


def _step(value: Any) -> Any:
    arb = flint().arb
    if value > 0:
        return arb(1)
    return arb(0) if value <= 0 else arb(0).union(arb(1))


def _piecewise(expr: sp.Piecewise, values: Mapping[sp.Symbol, Any]) -> Any:
    found = None
    for piece, condition in expr.args:
        holds = _decide(condition, values)
        if holds is False:
            continue
        here = formula_ball(piece, values)
        found = here if found is None else found.union(here)
        if holds:
            break
    if found is None:
        raise DomainError(f"certify: no case of {expr} applies")
    return found


def _decide(condition: Any, values: Mapping[sp.Symbol, Any]) -> bool | None:
    """Return whether a condition holds at every point (True), at none (False), or neither."""
    if condition in (sp.true, sp.false):
        return bool(condition)
    if isinstance(condition, sp.And | sp.Or):
        parts = [_decide(part, values) for part in condition.args]
        decisive = isinstance(condition, sp.Or)  # one part that settles it
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    relations = {
        sp.StrictGreaterThan: lambda t: (t > 0, t <= 0),
        sp.GreaterThan: lambda t: (t >= 0, t < 0),
        sp.StrictLessThan: lambda t: (t < 0, t >= 0),
        sp.LessThan: lambda t: (t <= 0, t > 0),
    }
    if type(condition) not in relations:
        raise UnknownNodeError(f"certify: no rule for the condition {condition}")
    gap = formula_ball(condition.lhs - condition.rhs, values)
    always, never = relations[type(condition)](gap)
    return True if always else (False if never else None)


class BallRing:
    """Entries are balls: exact weights, and a state that may be known only to a radius."""

    def __init__(self, weights: Mapping[str, Any], state: np.ndarray) -> None:
        self.state = state
        self.weights = weights
        self._balls: dict[str, np.ndarray] = {}
        self._argument = sp.Dummy("t", real=True)

    def number(self, value: sp.Expr) -> Any:
        """Return the ball of a constant."""
        return formula_ball(value, {})

    def symbol(self, symbol: sp.Basic) -> Any:
        """Return the value of a scalar, or an entry of the mask (causal unless given)."""
        arb = flint().arb
        if isinstance(symbol, sp.Indexed):
            place = tuple(int(i) for i in symbol.indices)
            if str(symbol.base) != "m":
                return self._weight(str(symbol.base))[place]
            mask = self.weights.get("mask")
            seen = place[1] <= place[0] if mask is None else bool(np.asarray(mask)[place])
            return arb(int(seen))
        return self._weight(str(symbol))[()]

    def entry(self, kind: str, name: str, position: tuple[int, ...], row: int, col: int) -> Any:
        """Return an entry of the state or of a weight."""
        if kind == "state":
            return self.state[position[0], row]
        array = self._weight(name)
        place = (*position, row, col)
        return array[place[: array.ndim]]

    def _weight(self, name: str) -> np.ndarray:
        if name not in self._balls:
            if name not in self.weights:
                raise WeightError(f"weight {name}: missing")
            self._balls[name] = balls(self.weights[name])
        return self._balls[name]

    def root(self, value: Any) -> Any:
        """Return the square root."""
        return value.sqrt()

    def function(self, kind: Any, value: Any) -> Any:
        """Return a function of one variable."""
        return formula_ball(kind(self._argument), {self._argument: value})

    def activation(self, activation: Activation, order: int, value: Any) -> Any:
        """Return a derivative of an activation, from its formula."""
        formula = activation.derivative(order)
        return formula_ball(formula.expr, {formula.variables[0]: value})

    def map(self, mapping: Map, argument: list[Any]) -> list[Any]:
        """Refuse: an abstract sublayer has numbers and no formula."""
        raise UnknownNodeError(
            f"certify: the sublayer {mapping.name} is abstract; give one with a formula"
        )

    def map_jacobian(self, mapping: Map, argument: list[Any]) -> np.ndarray:
        """Refuse, as for `map`."""
        raise UnknownNodeError(
            f"certify: the sublayer {mapping.name} is abstract; give one with a formula"
        )


@dataclass(frozen=True)
class Certified:
    r"""What is proved about a stack's end-to-end Jacobian M and the float64 answer.

    Attributes
    ----------
    layers, bits : int
        L, and the working precision of the balls.
    answer : ndarray, shape (n d, n d)
        The float64 answer.
    entry_error : Interval
        Encloses :math:`\max_{ij}|\hat M_{ij}-M_{ij}|` of the answer.
    relative_error : float
        Upper bound on :math:`\lVert\hat M-M\rVert_F/\lVert M\rVert_F`.
    singular_values : list of Interval
        Of M, the largest first; the first encloses the spectral norm.
    answer_singular_values : list of float
        What float64 gives.
    singular_value_errors : list of float
        Upper bounds on the errors of these.
    state_error : float
        Upper bound on the largest error of an entry of the float64 output state.
    jacobian : array of balls
        Contains M.
    """

    layers: int
    bits: int
    answer: np.ndarray = field(repr=False)
    entry_error: Interval
    relative_error: float
    singular_values: list[Interval] = field(repr=False)
    answer_singular_values: list[float] = field(repr=False)
    singular_value_errors: list[float] = field(repr=False)
    state_error: float
    jacobian: np.ndarray = field(repr=False)

    def error_of(self, answer: Any) -> Interval:
        """Enclose the largest error of an entry of any other answer."""
        return entry_error(self.jacobian, answer)


def certify(stack: Stack, x: Any, *, bits: int = 128, max_bits: int = 2048) -> Certified:
    r"""Bound the error of the float64 end-to-end Jacobian of a small stack, rigorously.

    Parameters
    ----------
    stack : Stack
        The stack, its sublayers concrete. Cost grows as L (n d)^3 in ball operations, a fraction of
        a microsecond each.
    x : array (n, d)
        Its input; n d at most 96.
    bits : int
        Working precision to begin with; doubled until the balls are far narrower than the error
        that they are to bound.
    max_bits : int
        The last one to try.

    Returns
    -------
    Certified

    Raises
    ------
    DomainError
        If `bits` is out of range, or the enclosure stays too wide: where a state may sit on a
        corner of an activation, the Jacobian has no one value.
    UnknownNodeError
        If a sublayer is abstract, or a function has no rule.
    MissingExtraError
        If python-flint is not installed.
    """
    if not 64 <= bits <= max_bits:
        raise DomainError(f"bits: expected 64 to {max_bits}, got {bits}")
    if isinstance(stack, StreamStack):
        raise UnknownNodeError(
            f"stack: expected a stack of one stream, got the streams {', '.join(stack.names)}"
        )
    start = np.atleast_2d(np.asarray(x, dtype=float))
    if start.size > LARGEST:
        raise DomainError(
            f"x: expected at most {LARGEST} entries, tokens times width, for a certified run, got "
            f"{start.size}"
        )
    answer = stack.end_to_end(start).value()
    last = stack.states(start)[-1]
    precision = bits
    while True:
        with flint().ctx.workprec(precision):
            state, product = _run(stack, start)
            if _narrow(product) and _narrow(state):
                return _certified(stack.layers, precision, answer, last, state, product)
        if 2 * precision > max_bits:
            raise DomainError(
                f"max_bits: expected a narrow enclosure within {max_bits} bits, got a wide one; a "
                "number may sit on a corner of an activation (relu at 0), where the Jacobian jumps"
            )
        precision *= 2


def _run(stack: Stack, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the last state and the end-to-end Jacobian in balls."""
    state = balls(start)
    size = start.size
    product = balls(np.eye(size))
    for found, weights, near in zip(
        stack.derivations, stack.weights, stack.states(start)[:-1], strict=True
    ):
        env = Environment(weights, near, stack.maps)
        for expr in (found.block, found.jacobian):
            env.prepare(expr)
        env(found.block)  # gives every dimension its size, bodies of maps included
        instance = Instantiation(BallRing(weights, state), env.sizes, len(start))
        grid = token_blocks(instance, found.jacobian)
        matrix = grid.transpose(0, 2, 1, 3).reshape(size, size)
        moved = flint().arb_mat(matrix.tolist()) * flint().arb_mat(product.tolist())
        product = np.array(moved.tolist(), dtype=object)
        rows = [instance(found.block, token=token)[:, 0] for token in range(len(start))]
        state = np.array(rows, dtype=object)
    return state, product


def _narrow(values: np.ndarray) -> bool:
    """Whether every radius is below 2^-70 of the largest entry."""
    entries = list(values.ravel())
    if not all(e.is_finite() for e in entries):
        return False
    largest = max(e.abs_upper() for e in entries)
    widest = max(e.rad() for e in entries)
    return bool(widest <= largest * flint().arb(2) ** -70)


def _certified(
    layers: int,
    bits: int,
    answer: np.ndarray,
    last: np.ndarray,
    state: np.ndarray,
    product: np.ndarray,
) -> Certified:
    values = singular_value_enclosures(product)
    plain = np.linalg.svd(answer, compute_uv=False).tolist()
    error = frobenius_error(product, answer).upper
    size = frobenius_error(product, np.zeros_like(answer)).lower
    relative = float(np.nextafter(error / size, np.inf)) if size else float("inf")
    return Certified(
        layers=layers,
        bits=bits,
        answer=answer,
        entry_error=entry_error(product, answer),
        relative_error=relative if error else 0.0,
        singular_values=values,
        answer_singular_values=plain,
        singular_value_errors=[i.error_of(v) for i, v in zip(values, plain, strict=True)],
        state_error=entry_error(state, last).upper,
        jacobian=product,
    )


def certified_row(found: Certified) -> dict[str, Any]:
    """Return what is proved as plain numbers, as `derive precision --certified --json` has it."""
    return {
        "layers": found.layers,
        "bits": found.bits,
        "entry_error": {"lower": found.entry_error.lower, "upper": found.entry_error.upper},
        "relative_error": found.relative_error,
        "state_error": found.state_error,
        "singular_values": [
            {"answer": answer, "lower": i.lower, "upper": i.upper, "error": error}
            for answer, i, error in zip(
                found.answer_singular_values,
                found.singular_values,
                found.singular_value_errors,
                strict=True,
            )
        ],
    }
