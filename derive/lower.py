r"""The one bridge from expressions to numbers: values of a block and operators of its Jacobian.

`evaluate` gives the value of an expression as an array with *named axes* (tokens, heads), `lower`
turns a Jacobian into a structured linear operator that is not materialised. Both read the derived
expression; no formula is written a second time.

Shapes: a state is an array ``(n, d)``; an operator acts on the ``n`` tokens stacked, token after
token. Weights are arrays by name: a vector ``(rows,)``, a matrix ``(rows, cols)``; what carries a
head or token index has that axis in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, singledispatchmethod
from typing import Any

import numpy as np
import sympy as sp
from scipy.special import expit, ndtr

from derive import symbols
from derive.blocks.moe import step
from derive.blocks.paths import paths
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Reciprocal, State, Vector
from derive.calculus.derivation import Derivation
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply, JacobianOf, TokenBlocks
from derive.calculus.pointwise import Activation, Pointwise
from derive.calculus.tensor import Product, Sum, Tensor, Transposed, is_scalar
from derive.calculus.tokens import TOKENS, At, IndexSum, ScalarIndexSum
from derive.errors import DomainError, ShapeError, UnknownNodeError, WeightError
from derive.linalg import (
    Chain,
    Contraction,
    Dense,
    Diagonal,
    Identity,
    LowRank,
    Operator,
    Scaling,
    Zero,
)
from derive.linalg import Sum as OperatorSum
from derive.linalg.arrays import is_finite
from derive.linalg.recording import DepartureError, Recording, record, recorded

__all__ = [
    "AbstractMap",
    "Environment",
    "PerToken",
    "Value",
    "evaluate",
    "evaluator",
    "linearise",
    "lineariser",
    "lower",
    "lower_paths",
    "lower_together",
    "lowerer",
]

RANGES = {
    **dict.fromkeys(("h", "h2", "h3"), symbols.H),
    **dict.fromkeys(("e", "e2", "e3", "e4"), symbols.X),
    **dict.fromkeys(("g", "g2", "g3"), symbols.G),
}
"""The dimension that an index runs over; other indices that are no tokens run over the memory."""

_FUNCTIONS: dict[Any, Callable[[np.ndarray], np.ndarray]] = {
    sp.exp: np.exp,
    sp.log: np.log,
    sp.tanh: np.tanh,
    step: lambda values: np.heaviside(values, 0.0),
}

TOKEN = "token"
"""The axis of a per-token quantity that carries no token index."""


@dataclass(frozen=True)
class Value:
    """An array with named axes: ``data.shape == (*sizes of axes, rows, cols)``."""

    axes: tuple[str, ...]
    data: np.ndarray

    def renamed(self, old: str, new: str) -> Value:
        """Return the value with one axis renamed."""
        return Value(tuple(new if a == old else a for a in self.axes), self.data)

    def aligned(self, axes: tuple[str, ...]) -> np.ndarray:
        """Return the array with its axes in the order of `axes`, broadcast where missing."""
        order = [self.axes.index(a) for a in axes if a in self.axes]
        data = self.data.transpose(*order, -2, -1)
        shape = [data.shape[order_of(axes, self.axes, a)] if a in self.axes else 1 for a in axes]
        return data.reshape(*shape, *self.data.shape[-2:])


def order_of(axes: tuple[str, ...], present: tuple[str, ...], name: str) -> int:
    """Position of `name` among those of `axes` that are present."""
    return [a for a in axes if a in present].index(name)


def _union(values: Iterable[Value]) -> tuple[str, ...]:
    axes: list[str] = []
    for value in values:
        axes += [a for a in value.axes if a not in axes]
    return tuple(axes)


def _combine(function: Callable[..., np.ndarray], *values: Value) -> Value:
    axes = max((v.axes for v in values), key=len)
    if all(not v.axes or v.axes == axes for v in values):  # NumPy aligns these itself
        return Value(axes, function(*(v.data for v in values)))
    axes = _union(values)
    return Value(axes, function(*(v.aligned(axes) for v in values)))


@dataclass(frozen=True)
class AbstractMap:
    """Numbers for an abstract sublayer.

    Attributes
    ----------
    function : callable
        State ``(n, d)`` to output ``(n, d)``.
    jacobian : callable
        State ``(n, d)`` to blocks ``(n, d, d)`` (each token alone) or to an `Operator`.
    """

    function: Callable[[np.ndarray], np.ndarray]
    jacobian: Callable[[np.ndarray], Any]


class PerToken(dict[str, Any]):
    """Weights of which every token has its own: a leading axis of n on each array.

    What acts on each token alone is then evaluated for many layers, or many seeds, at one time:
    their states are the tokens. A scalar, such as ``eps``, may be the same for all. It is for one
    state and blocks that mix no tokens; others are refused.

    Examples
    --------
    >>> import numpy as np
    >>> import derive
    >>> x = derive.state("x")
    >>> J = derive.jacobian(derive.RMSNorm()(x), x)
    >>> gains = np.array([[1.0, 1.0], [2.0, 2.0]])      # of two layers
    >>> lower(J, PerToken(gain=gains, eps=0.0), np.array([[3.0, 4.0], [3.0, 4.0]])).shape
    (4, 4)
    """


class Environment:
    """The numbers that an expression is evaluated with.

    Parameters
    ----------
    weights : mapping from str to array or float
        Weights by name; scalars such as ``eps`` or ``alpha`` as well. ``mask`` is boolean,
        ``(n, n)``, True where token ``i`` sees token ``j``; without it a causal one is made where
        the block asks for one.
    state : array (n, d)
        The state; ``(d,)`` stands for one token. Where an expression has several states (streams),
        the others are given by name among the weights, each ``(n, d)``.
    maps : mapping from str to AbstractMap, optional
        Numbers for the abstract sublayers.

    Raises
    ------
    ShapeError
        If `state` is not one- or two-dimensional.
    WeightError
        If a value is not finite; the message names the weight.
    """

    def __init__(
        self,
        weights: Mapping[str, Any],
        state: np.ndarray,
        maps: Mapping[str, AbstractMap] | None = None,
    ) -> None:
        state = np.asarray(state, dtype=float)
        if state.ndim not in (1, 2) or state.size == 0:
            raise ShapeError(f"state: expected an array (n, d) or (d,), got shape {state.shape}")
        self.state = np.atleast_2d(state)
        if not np.isfinite(self.state).all():
            raise WeightError("state: expected finite numbers, got NaN or infinity")
        self.tokens = self.state.shape[0]
        self.weights = weights
        self.per_token = isinstance(weights, PerToken)
        self.maps = dict(maps or {})
        self.sizes: dict[sp.Basic, int] = {}
        self._memo: dict[sp.Basic, Value] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def prepare(self, expr: sp.Basic) -> None:
        """Give the dimensions in an expression their sizes, from the state and the weights."""
        leaves = _leaves(expr)
        states = [leaf for leaf in leaves if isinstance(leaf, State)]
        unnamed = [leaf.name for leaf in states if leaf.name not in self.weights]
        if len(unnamed) > 1:
            raise WeightError(
                f"state: one array stands for one state, and the expression has "
                f"{', '.join(sorted(unnamed))}; give the others by name among the weights"
            )
        for leaf in leaves:
            if isinstance(leaf, State):
                self.bind(leaf.shape[0], self._state(leaf).shape[1], f"state {leaf.name}")
            elif isinstance(leaf, At):
                self(leaf)
            else:
                self._named(leaf, ())

    def _state(self, expr: State) -> np.ndarray:
        """Return the array of a state: its own, given among the weights, or the one there is."""
        if expr.name not in self.weights:
            return self.state
        found = self.weight(expr.name, 2)
        if found.shape[0] != self.tokens:
            raise ShapeError(
                f"state {expr.name}: expected {self.tokens} tokens, got shape {found.shape}"
            )
        return found

    def weight(self, name: str, ndim: int) -> np.ndarray:
        """Return a weight of the given number of axes.

        Raises
        ------
        WeightError
            If it is missing, not numeric or not finite.
        ShapeError
            If it has another number of axes.
        """
        if name not in self._arrays:
            if name not in self.weights:
                known = ", ".join(sorted(map(str, self.weights))) or "none"
                raise WeightError(f"weight {name}: missing; given are {known}")
            try:
                array = np.asarray(self.weights[name], dtype=float)
            except (TypeError, ValueError) as error:
                raise WeightError(f"weight {name}: expected numbers ({error})") from None
            if not np.isfinite(array).all():
                raise WeightError(f"weight {name}: expected finite numbers, got NaN or infinity")
            self._arrays[name] = array
        array = self._arrays[name]
        if array.ndim != ndim:
            raise ShapeError(f"weight {name}: expected {ndim} axes, got shape {array.shape}")
        return array

    def bind(self, symbol: sp.Expr, size: int, what: str) -> None:
        """Give a dimension its size, or check it.

        Raises
        ------
        ShapeError
            If the dimension already has another size.
        """
        if symbol.is_Integer:
            known = int(symbol)
        elif symbol.is_Symbol:
            known = self.sizes.setdefault(symbol, size)
        else:
            return
        if known != size:
            raise ShapeError(f"{what}: expected {symbol} = {known}, got {size}")

    def size(self, symbol: sp.Expr) -> int:
        """Return the size of a dimension."""
        known = self.sizes.get(symbol)
        if known is None and symbol == symbols.d:  # an expression without a state
            known = self.state.shape[1]
        return int(sp.sympify(symbol).subs(self.sizes)) if known is None else known

    def __call__(self, expr: sp.Basic) -> Value:
        """Return the value of an expression, each one computed once."""
        value = self._memo.get(expr)
        if value is None:
            rule = Environment._scalar if is_scalar(expr) else _rule(Environment, type(expr))
            value = rule(self, expr)
            self._memo[expr] = value
        return value

    # -- vectors and matrices

    @singledispatchmethod
    def _walk(self, expr: sp.Basic) -> Value:
        raise UnknownNodeError(f"evaluate: no rule for {type(expr).__name__} ({expr})")

    @_walk.register
    def _(self, expr: State) -> Value:
        found = self._state(expr)
        self.bind(expr.shape[0], found.shape[1], f"state {expr.name}")
        return Value((TOKEN,), found[..., None])

    @_walk.register
    def _(self, expr: Vector) -> Value:
        return self._named(expr, ())

    @_walk.register
    def _(self, expr: Matrix) -> Value:
        return self._named(expr, ())

    def _named(self, expr: Any, axes: tuple[str, ...]) -> Value:
        column = isinstance(expr, Vector)
        axes = (TOKEN, *axes) if self.per_token else axes
        array = self.weight(expr.name, len(axes) + (1 if column else 2))
        if self.per_token and array.shape[0] != self.tokens:
            raise ShapeError(
                f"weight {expr.name}: expected a leading axis of {self.tokens} tokens, "
                f"got shape {array.shape}"
            )
        array = array[..., None] if column else array
        wanted = [s for s in expr.shape if s is not sp.S.One]
        shape = array.shape[-2 : None if len(wanted) == 2 else -1]
        for symbol, size in zip(wanted, shape, strict=True):
            if self.sizes.get(symbol) != size:
                self.bind(symbol, size, f"weight {expr.name} of shape {shape}")
        return Value(axes, array)

    @_walk.register
    def _(self, expr: At) -> Value:
        axis = str(expr.position)
        if self.per_token and axis in map(str, TOKENS):
            raise DomainError(
                "weights: expected a block of which each token is mapped alone, as each has "
                f"weights of its own, got one that mixes tokens ({expr})"
            )
        if isinstance(expr.family, Vector | Matrix):
            value = self._named(expr.family, (axis,))
            self._check_axis(value, axis, f"weight {expr.family.name}")
        else:
            value = self(expr.family).renamed(TOKEN, axis)
        if expr.position.is_Integer:
            k = value.axes.index(axis)
            kept = tuple(a for a in value.axes if a != axis)
            return Value(kept, np.take(value.data, int(expr.position), axis=k))
        return value

    def _check_axis(self, value: Value, axis: str, what: str) -> None:
        """Give the range of an index its size, or check it."""
        size = value.data.shape[value.axes.index(axis)]
        if axis in map(str, TOKENS):
            if size != self.tokens:
                raise ShapeError(f"{what}: expected {self.tokens} tokens, got {size}")
            return
        self.bind(RANGES.get(axis, symbols.M), size, what)

    @_walk.register
    def _(self, expr: Ones) -> Value:
        return Value((), np.ones((self.size(expr.shape[0]), 1)))

    @_walk.register
    def _(self, expr: sp.Identity) -> Value:
        return Value((), np.eye(self.size(expr.shape[0])))

    @_walk.register
    def _(self, expr: sp.ZeroMatrix) -> Value:
        return Value((), np.zeros([self.size(s) for s in expr.shape]))

    @_walk.register
    def _(self, expr: Diag) -> Value:
        value = self(expr.args[0])
        rows = value.data.shape[-2]
        return Value(value.axes, value.data * np.eye(rows))

    @_walk.register
    def _(self, expr: Reciprocal) -> Value:
        value = self(expr.args[0])
        if not value.data.all():
            raise DomainError(f"{expr}: expected no zero in {expr.args[0]}")
        return Value(value.axes, 1 / value.data)

    @_walk.register
    def _(self, expr: Transposed) -> Value:
        value = self(expr.args[0])
        return Value(value.axes, value.data.swapaxes(-1, -2))

    @_walk.register
    def _(self, expr: Sum) -> Value:
        total = self(expr.args[0])
        for term in expr.args[1:]:
            total = _combine(np.add, total, self(term))
        return total

    @_walk.register
    def _(self, expr: Product) -> Value:
        scalars = [self(a) for a in expr.args if is_scalar(a)]
        matrices = list(expr.matrices)
        out = self(matrices[-1])
        for factor in reversed(matrices[:-1]):
            if isinstance(factor, Diag):
                out = _combine(np.multiply, self(factor.args[0]), out)
            else:
                out = _combine(_matmul, self(factor), out)
        for scalar in scalars:
            out = _combine(np.multiply, scalar, out)
        return out

    @_walk.register
    def _(self, expr: Pointwise) -> Value:
        value = self(expr.vector)
        return Value(value.axes, activation_function(expr.activation, expr.order)(value.data))

    @_walk.register
    def _(self, expr: Let) -> Value:
        return self(expr.definition)

    @_walk.register
    def _(self, expr: IndexSum) -> Value:
        return self._summed(expr)

    def _summed(self, expr: Any) -> Value:
        axis = str(expr.index)
        if isinstance(expr.summand, Product):
            scalars = sp.Mul(*(a for a in expr.summand.args if is_scalar(a)))
            weights, vectors = self(scalars), self(sp.Mul(1) * _word(expr.summand))
            if axis in weights.axes and axis in vectors.axes:  # contract, do not form the product
                return _contract(weights, vectors, axis)
        value = self(expr.summand)
        if axis not in value.axes:
            size = self.tokens if axis in map(str, TOKENS) else self.size(expr.size)
            return Value(value.axes, value.data * size)
        k = value.axes.index(axis)
        return Value(tuple(a for a in value.axes if a != axis), value.data.sum(axis=k))

    @_walk.register
    def _(self, expr: Apply) -> Value:
        mapping, argument = expr.mapping, expr.argument
        if mapping.is_abstract:
            value = self(argument)
            out = np.asarray(self._map(mapping.name).function(self._family(value)), dtype=float)
            expected = (self.tokens, value.data.shape[-2])
            if out.shape != expected:
                raise ShapeError(
                    f"map {mapping.name}: expected an output of shape {expected}, got {out.shape}"
                )
            return Value((TOKEN,), out[..., None])
        body = expr.body
        if body is None:
            raise UnknownNodeError(f"evaluate: the map {mapping.name} has no body")
        self.prepare(body.output)
        value = self(body.output)
        return value.renamed(str(TOKENS[0]), TOKEN) if mapping.mixes_tokens else value

    def _map(self, name: str) -> AbstractMap:
        try:
            return self.maps[name]
        except KeyError:
            raise WeightError(
                f"map {name}: an abstract sublayer needs an AbstractMap in maps"
            ) from None

    def _family(self, value: Value) -> np.ndarray:
        """Return a per-token column vector as an array ``(n, rows)``."""
        if value.axes not in ((), (TOKEN,)):
            raise ShapeError(f"expected one value per token, got axes {value.axes}")
        data = value.data[..., 0] if value.axes else value.data[None, ..., 0]
        shape = (self.tokens, data.shape[-1])
        return data if data.shape == shape else np.broadcast_to(data, shape)

    # -- scalars

    def _scalar(self, expr: sp.Basic) -> Value:
        if expr.is_number:
            return Value((), np.array([[float(expr)]]))
        if isinstance(expr, ScalarLet):
            return self._softmax(expr) or self(expr.definition)
        if isinstance(expr, Inner):
            return _combine(_inner, *(self(a) for a in expr.args))
        if isinstance(expr, ScalarIndexSum):
            return self._summed(expr)
        if isinstance(expr, sp.Indexed):
            return self._indexed(expr)
        if isinstance(expr, sp.Symbol):
            known = self.sizes.get(expr)
            if self.per_token and known is None and np.ndim(self.weights.get(expr.name, 0.0)):
                own = self.weight(expr.name, 1)
                if own.shape[0] != self.tokens:
                    raise ShapeError(
                        f"weight {expr.name}: expected one number, or {self.tokens}, one a token, "
                        f"got {own.shape[0]}"
                    )
                return Value((TOKEN,), np.reshape(own, (self.tokens, 1, 1)))
            size = float(known) if known is not None else self.weight(expr.name, 0)
            return Value((), np.reshape(size, (1, 1)))
        if expr.is_Add:
            return _combine(lambda *a: sum(a[1:], a[0]), *(self(a) for a in expr.args))
        if expr.is_Mul:
            out = self(expr.args[0])
            for factor in expr.args[1:]:
                out = _combine(np.multiply, out, self(factor))
            return out
        if expr.is_Pow:
            return self._power(expr)
        if type(expr) in _FUNCTIONS:
            value = self(expr.args[0])
            return Value(value.axes, _FUNCTIONS[type(expr)](value.data))
        raise UnknownNodeError(f"evaluate: no rule for the scalar {type(expr).__name__} ({expr})")

    def _power(self, expr: sp.Pow) -> Value:
        base, exponent = self(expr.base), self(expr.exp)
        if expr.exp == sp.Rational(1, 2):
            return Value(base.axes, np.sqrt(base.data))
        if expr.exp.is_negative and not base.data.all():
            raise DomainError(
                f"1/{expr.base}: the variance (or mean square) of a token is zero and eps = 0, so "
                "the Jacobian of the norm does not exist there"
            )
        if expr.exp.is_negative and not np.all(np.isfinite(base.data)):
            raise DomainError(
                f"1/{expr.base}: expected a number within double precision, got an overflow; the "
                "state or the weights are too large"
            )
        if exponent.axes == () and exponent.data.item() == -1:
            return Value(base.axes, 1 / base.data)
        return _combine(np.power, base, exponent)

    def _indexed(self, expr: sp.Indexed) -> Value:
        """Return the mask ``m[i, j]`` (``mask``, else causal) or a weight by its indices."""
        axes = tuple(str(i) for i in expr.indices)
        if str(expr.base) != "m":
            array = self.weight(str(expr.base), len(axes))
            value = Value(axes, array[..., None, None])
            for axis in axes:
                self._check_axis(value, axis, f"weight {expr.base}")
            return value
        if "mask" in self.weights:
            mask = np.asarray(self.weights["mask"])
            if mask.shape != (self.tokens, self.tokens):
                raise ShapeError(
                    f"weight mask: expected shape {(self.tokens, self.tokens)}, got {mask.shape}"
                )
            if mask.dtype != bool:
                raise WeightError(
                    f"weight mask: expected booleans (True where i sees j), got {mask.dtype}"
                )
        else:
            mask = np.tri(self.tokens, dtype=bool)
        return Value(axes, mask.astype(float)[..., None, None])

    def _softmax(self, expr: ScalarLet) -> Value | None:
        """Return an exponential over its own sum, shifted by its maximum against overflow.

        A row that sees no token at all is zero.
        """
        numerator, denominator = expr.definition.as_numer_denom()
        if not isinstance(numerator, ScalarLet) or not isinstance(denominator, ScalarLet):
            return None
        exponentials = [e for e in sp.Mul.make_args(numerator.definition) if isinstance(e, sp.exp)]
        parts = sp.Add.make_args(denominator.definition)
        sinks = [p.args[0] for p in parts if isinstance(p, sp.exp)]
        sums = [p for p in parts if isinstance(p, ScalarIndexSum)]
        if len(exponentials) != 1 or len(sums) != 1 or len(sums) + len(sinks) != len(parts):
            return None
        score = self(exponentials[0].args[0])
        rest = self(numerator.definition / exponentials[0])
        axes = _union((score, rest))
        k = axes.index(str(numerator.indices[-1]))
        visible, logits = np.broadcast_arrays(rest.aligned(axes), score.aligned(axes))
        logits = np.where(visible > 0, logits, -np.inf)
        constants = [self(s).aligned(axes) for s in sinks]
        peak = np.max(logits, axis=k, keepdims=True)
        for constant in constants:
            peak = np.maximum(peak, constant)
        shift = np.where(np.isfinite(peak), peak, 0.0)
        weights = visible * np.exp(logits - shift)
        partition = weights.sum(axis=k, keepdims=True)
        for constant in constants:
            partition = partition + np.exp(constant - shift)
        return Value(axes, weights / np.where(partition > 0, partition, 1.0))


def _rule(walker: type, node: type) -> Callable[[Any, sp.Basic], Any]:
    """Return the rule of a walker for a kind of node; no method is bound, which is quicker."""
    return walker.__dict__["_walk"].dispatcher.dispatch(node)


@lru_cache(maxsize=1024)
def _scalar_product(scalars: tuple[sp.Expr, ...]) -> sp.Expr:
    return sp.Mul(*scalars)


@lru_cache(maxsize=1024)
def _leaves(expr: sp.Basic) -> tuple[sp.Basic, ...]:
    """Return the states and weights in an expression, each once."""
    seen: set[sp.Basic] = set()
    found: list[sp.Basic] = []
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, State | Vector | Matrix) or (
            isinstance(node, At) and isinstance(node.family, Vector | Matrix)
        ):
            found.append(node)
        else:
            waiting.extend(node.args)
    return tuple(sorted(found, key=lambda leaf: not isinstance(leaf, State)))


def _matmul(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply; a matrix that all tokens share meets their vectors in one product."""
    if left.ndim == 2 and right.ndim == 3 and right.shape[0] > 1 and right.shape[-1] == 1:
        return np.matmul(right[..., 0], left.T)[..., None]
    return np.matmul(left, right)


def _inner(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    if left.shape[-1] == 1:
        return np.matmul(left.swapaxes(-1, -2), right)
    return np.einsum("...ab,...ab->...", left, right)[..., None, None]


def _word(expr: Product) -> sp.Basic:
    from derive.calculus.tensor import product

    return product(expr.matrices)


def _contract(weights: Value, vectors: Value, axis: str) -> Value:
    """Sum weights times vectors over one axis without forming their product."""
    names = {a: k for k, a in enumerate(_union((weights, vectors)))}
    row, col = len(names), len(names) + 1
    kept = [a for a in names if a != axis]
    data = np.einsum(
        weights.data[..., 0, 0],
        [names[a] for a in weights.axes],
        vectors.data,
        [*(names[a] for a in vectors.axes), row, col],
        [*(names[a] for a in kept), row, col],
        optimize=True,
    )
    return Value(tuple(kept), data)


@lru_cache(maxsize=256)
def activation_function(activation: Activation, order: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a NumPy function of the derivative of an activation, from its one formula."""
    formula = activation.derivative(order)
    (t,) = formula.variables
    compiled = sp.lambdify(
        t, formula.expr, modules=[{"sigmoid": expit, "normal_cdf": ndtr}, "scipy", "numpy"]
    )

    @recorded
    def function(values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):
            found = np.asarray(compiled(values), dtype=float)
        return found if found.shape == values.shape else np.broadcast_to(found, values.shape)

    return function


def evaluate(
    expr: sp.Basic,
    weights: Mapping[str, Any],
    state: np.ndarray,
    maps: Mapping[str, AbstractMap] | None = None,
) -> np.ndarray:
    r"""Return the value of a per-token vector, for example of a block itself.

    Parameters
    ----------
    expr : expression
        A column vector.
    weights : mapping
        As for `Environment`.
    state : array (n, d) or (d,)
        The state.
    maps : mapping, optional
        Numbers for abstract sublayers.

    Returns
    -------
    array (n, rows), or (rows,) where `state` was one-dimensional

    Raises
    ------
    ShapeError, WeightError, DomainError
        As the message says.
    """
    out = _finite(np.array(_run(_evaluated, expr, weights, state, maps)))
    return out[0] if np.ndim(state) == 1 else out


def _finite(value: np.ndarray) -> np.ndarray:
    if not np.isfinite(value).all():
        raise DomainError(
            "state: expected a block whose value is within double precision, got an overflow (or "
            "an abstract sublayer that returned NaN or infinity)"
        )
    return value


def lower(
    expr: sp.Basic,
    weights: Mapping[str, Any],
    state: np.ndarray,
    maps: Mapping[str, AbstractMap] | None = None,
) -> Operator:
    r"""Lower a Jacobian to a linear operator on the stacked tokens; nothing is materialised.

    The structure of the expression becomes the structure of the operator: diagonals stay diagonal,
    :math:`\hat x\hat x^\top/d` is a rank-one term, attention is a contraction over heads.

    Parameters
    ----------
    expr : expression
        A Jacobian, from `derive.derivation`.
    weights, state, maps
        As for `evaluate`.

    Returns
    -------
    Operator
        Of shape ``(n rows, n cols)``.

    Raises
    ------
    ShapeError, WeightError, DomainError, UnknownNodeError
        As the message says.
    """
    return _run(_lowered, expr, weights, state, maps)


def linearise(
    found: Derivation,
    weights: Mapping[str, Any],
    state: np.ndarray,
    maps: Mapping[str, AbstractMap] | None = None,
) -> tuple[np.ndarray, Operator]:
    r"""Return a block's value and its Jacobian at a state, what they share computed once.

    Parameters
    ----------
    found : Derivation
        The derived block.
    weights, state, maps
        As for `evaluate`.

    Returns
    -------
    tuple of array (n, rows) and Operator
        :math:`B(x)` and :math:`dB/dx`.

    Raises
    ------
    ShapeError, WeightError, DomainError, UnknownNodeError
        As the message says.
    """
    operators, values = lower_together((found.jacobian,), (found.output,), weights, state, maps)
    return values[0], operators[0]


def lower_together(
    jacobians: tuple[sp.Basic, ...],
    vectors: tuple[sp.Basic, ...],
    weights: Mapping[str, Any],
    state: np.ndarray,
    maps: Mapping[str, AbstractMap] | None = None,
) -> tuple[tuple[Operator, ...], tuple[np.ndarray, ...]]:
    """Lower several Jacobians and evaluate several vectors, what they share computed once.

    Parameters
    ----------
    jacobians, vectors : tuple of expressions
        Jacobians as for `lower` (rows of one as well), per-token column vectors as for `evaluate`.
    weights, state, maps
        As for `evaluate`.

    Returns
    -------
    tuple of a tuple of Operator and a tuple of arrays (n, rows)

    Raises
    ------
    ShapeError, WeightError, DomainError, UnknownNodeError
        As the message says.
    """
    operators, values = _run(_together, (jacobians, vectors), weights, state, maps)
    return operators, tuple(_finite(np.array(value)) for value in values)


def _evaluated(env: Environment, expr: sp.Basic) -> np.ndarray:
    env.prepare(expr)
    return env._family(env(expr))


def _lowered(env: Environment, expr: sp.Basic) -> Operator:
    env.prepare(expr)
    return Lowering(env)(expr)


def _together(
    env: Environment, exprs: tuple[tuple[sp.Basic, ...], tuple[sp.Basic, ...]]
) -> tuple[tuple[Operator, ...], tuple[np.ndarray, ...]]:
    jacobians, vectors = exprs
    return tuple(_lowered(env, j) for j in jacobians), tuple(_evaluated(env, v) for v in vectors)


class _RecordedEnvironment(Environment):
    """An environment whose weights and state write down what is done with them."""

    def __init__(self, recording: Recording, weights: Mapping[str, Any], state: np.ndarray) -> None:
        super().__init__(weights, state)
        self.recording = recording
        recorded_state: Any = recording.input(_STATE, self.state)
        self.state = recorded_state

    def weight(self, name: str, ndim: int) -> np.ndarray:
        found: Any = self.recording.input(name, super().weight(name, ndim))
        return found


_STATE = "the state"


@lru_cache(maxsize=512)
def _recordings(*key: Any) -> list[Recording | None]:
    """Return the place that keeps the recording for an expression and the shapes of its inputs."""
    return []


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # found by the result, and raised
def _run(
    compute: Callable[[Any, Any], Any],
    expr: Any,
    weights: Mapping[str, Any],
    state: np.ndarray,
    maps: Mapping[str, AbstractMap] | None,
) -> Any:
    """Evaluate or lower; for shapes seen before, by replaying the array operations alone.

    The walk over the expression costs more than the arithmetic of a narrow layer. It is recorded
    once; what the recording cannot do again is walked, errors included.
    """
    key = None if maps else _shapes(weights, state)
    if key is None:
        return compute(Environment(weights, state, maps), expr)
    kept = _recordings(compute, expr, *key)
    try:
        if not kept:
            recording, result = record(
                lambda recording: compute(_RecordedEnvironment(recording, weights, state), expr)
            )
            kept.append(recording)
            return result
        if kept[0] is not None:
            return kept[0].replay(_inputs(kept[0].inputs, weights, state))
    except DepartureError:
        if not kept:
            kept.append(None)
    return compute(Environment(weights, state, maps), expr)


def _shapes(weights: Mapping[str, Any], state: np.ndarray) -> tuple[Any, ...] | None:
    """Return what the array operations depend on besides the entries."""
    try:
        shapes = [
            (name, value.shape if isinstance(value, np.ndarray) else np.shape(value))
            for name, value in weights.items()
        ]
        mask = weights.get("mask")
        seen = None if mask is None else (mask.dtype.str, mask.tobytes())
    except (AttributeError, TypeError, ValueError):
        return None
    return (np.shape(state), tuple(shapes), seen, type(weights) is PerToken)


def _inputs(
    names: Iterable[str], weights: Mapping[str, Any], state: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the inputs of a recording by name, checked."""
    try:
        found = {name: np.asarray(weights[name], dtype=float) for name in names if name != _STATE}
        found[_STATE] = np.atleast_2d(np.asarray(state, dtype=float))
    except (TypeError, ValueError):
        raise DepartureError from None
    if not all(map(is_finite, found.values())):
        raise DepartureError
    return found


def evaluator(
    expr: sp.Basic, weights: Mapping[str, Any], state: np.ndarray
) -> Callable[[Mapping[str, Any], np.ndarray], np.ndarray]:
    """Return a quick `evaluate` for weights and states of these shapes that are known as finite.

    Parameters
    ----------
    expr, weights, state
        As for `evaluate`; `state` is (n, d).

    Returns
    -------
    callable
        Weights and state to the value (n, rows), which is not checked for overflow.

    Raises
    ------
    ShapeError, WeightError, DomainError
        As the message says.
    """
    return _replayed(_evaluated, expr, weights, state)


def lowerer(
    expr: sp.Basic, weights: Mapping[str, Any], state: np.ndarray
) -> Callable[[Mapping[str, Any], np.ndarray], Operator]:
    """Return a quick `lower` for weights and states of these shapes that are known as finite.

    Parameters, returns and raises as `evaluator`, with an operator for the value.
    """
    return _replayed(_lowered, expr, weights, state)


def lineariser(
    jacobian: sp.Basic, output: sp.Basic, weights: Mapping[str, Any], state: np.ndarray
) -> Callable[[Mapping[str, Any], np.ndarray], tuple[Operator, np.ndarray]]:
    """Return a quick `lower` and `evaluate` in one, what they share computed once.

    Parameters, returns and raises as `evaluator`, with an operator and the value.
    """
    run = _replayed(_together, ((jacobian,), (output,)), weights, state)

    def quick(weights: Mapping[str, Any], state: np.ndarray) -> tuple[Operator, np.ndarray]:
        (operator,), (value,) = run(weights, state)
        return operator, value

    return quick


def _replayed(
    compute: Callable[[Any, Any], Any],
    expr: Any,
    weights: Mapping[str, Any],
    state: np.ndarray,
) -> Callable[[Mapping[str, Any], np.ndarray], Any]:
    kept = _recordings(compute, expr, *(_shapes(weights, state) or ()))
    if not kept:
        _run(compute, expr, weights, state, None)
    recording = kept[0] if kept else None
    names = [name for name in recording.inputs if name != _STATE] if recording else []

    def quick(weights: Mapping[str, Any], state: np.ndarray) -> Any:
        if recording is not None:
            try:
                named = {name: np.asarray(weights[name], dtype=float) for name in names}
                return recording.replay({**named, _STATE: state})
            except DepartureError:
                pass
        return _run(compute, expr, weights, state, None)

    return quick


def lower_paths(
    node: TokenBlocks,
    weights: Mapping[str, Any],
    state: np.ndarray,
    maps: Mapping[str, AbstractMap] | None = None,
) -> dict[str, Operator]:
    r"""Lower the value, key and query path of an attention's Jacobian, each on its own.

    Their sum is the Jacobian of the attention at its argument, so that one sees which path carries
    a gradient: compare the norms of ``operator.H @ g``.

    Parameters
    ----------
    node : TokenBlocks
        The attention's Jacobian, from ``derivation(...).definitions``.
    weights, state, maps
        As for `lower`; `state` is that of the whole block.

    Returns
    -------
    dict from str to Operator
        ``"value path"``, ``"key path"``, ``"query path"``, and what else there is.
    """
    env = Environment(weights, state, maps)
    env.prepare(node)
    lowering = Lowering(env)
    rows, cols = (lowering._size(s) for s in node.shape)
    grouped: dict[str, list[Any]] = {}
    for term, name in paths(node):
        grouped.setdefault(name or "other", []).append(lowering._term(term))
    return {k: Contraction(terms, env.tokens, rows, cols) for k, terms in grouped.items()}


class Lowering:
    """Turns a Jacobian into an operator, node by node."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def __call__(self, expr: sp.Basic) -> Operator:
        """Return the operator of a matrix expression."""
        return _rule(Lowering, type(expr))(self, expr)

    @singledispatchmethod
    def _walk(self, expr: sp.Basic) -> Operator:
        raise UnknownNodeError(f"lower: no rule for {type(expr).__name__} ({expr})")

    @_walk.register
    def _(self, expr: sp.Identity) -> Operator:
        return Identity(self.env.tokens, self._size(expr.shape[0]))

    @_walk.register
    def _(self, expr: sp.ZeroMatrix) -> Operator:
        return Zero(self.env.tokens, *(self._size(s) for s in expr.shape))

    def _size(self, symbol: sp.Expr) -> int:
        if symbol.is_Symbol and symbol not in self.env.sizes:  # an identity without a state
            self.env.bind(symbol, self.env.state.shape[1], "state")
        return self.env.size(symbol)

    @_walk.register
    def _(self, expr: Sum) -> Operator:
        return OperatorSum(*(self(t) for t in expr.args))

    @_walk.register
    def _(self, expr: Product) -> Operator:
        factors: list[Operator] = []
        scalars: list[sp.Expr] = []
        column: sp.Basic | None = None
        for factor in expr.args:
            if is_scalar(factor):
                scalars.append(factor)
            elif factor.shape[1] == 1:
                column = factor
            elif column is not None:  # column times row: a rank-one operator
                factors += self._scaling(scalars, self._columns(column).shape[1])
                factors.append(
                    LowRank(self._columns(column), self._columns(factor.T), self.env.tokens)
                )
                column, scalars = None, []
            else:
                operator = self(factor)
                factors += [*self._scaling(scalars, operator.rows), operator]
                scalars = []
        if column is not None:
            raise UnknownNodeError(f"lower: {expr} is a vector, not an operator")
        if scalars:
            factors += self._scaling(scalars, factors[-1].cols)
        return factors[0] if len(factors) == 1 else Chain(*factors)

    def _scaling(self, scalars: list[sp.Expr], width: int) -> list[Operator]:
        if not scalars:
            return []
        value = self.env(_scalar_product(tuple(scalars)))
        if value.axes not in ((), (TOKEN,)):
            raise ShapeError(f"expected one scalar per token, got axes {value.axes}")
        return [Scaling(value.data.reshape(-1), self.env.tokens, width)]

    def _columns(self, vector: sp.Basic) -> np.ndarray:
        """Return a per-token vector as ``(n or 1, rows, 1)``."""
        value = self.env(vector)
        return value.data if value.axes else value.data[None]

    @_walk.register
    def _(self, expr: Diag) -> Operator:
        return Diagonal(self._columns(expr.args[0])[..., 0], self.env.tokens)

    @_walk.register(Matrix)
    @_walk.register(Transposed)
    def _(self, expr: Tensor) -> Operator:
        value = self.env(expr)
        return Dense(value.data, self.env.tokens)

    @_walk.register
    def _(self, expr: IndexSum) -> Operator:
        return Dense(self._columns(expr), self.env.tokens)

    @_walk.register
    def _(self, expr: JacobianOf) -> Operator:
        state = self.env._family(self.env(expr.argument))
        found = self.env._map(expr.mapping.name).jacobian(state)
        if isinstance(found, Operator):
            return found
        blocks = np.asarray(found, dtype=float)
        expected = (self.env.tokens, state.shape[1], state.shape[1])
        if blocks.shape != expected:
            raise ShapeError(
                f"map {expr.mapping.name}: expected Jacobian blocks of shape {expected}, got "
                f"{blocks.shape}"
            )
        return Dense(blocks, self.env.tokens)

    @_walk.register
    def _(self, expr: TokenBlocks) -> Operator:
        block = expr.block(*TOKENS[:2])
        terms = block.args if isinstance(block, Sum) else (block,)
        contracted = [self._term(t) for t in terms]
        rows, cols = (self._size(s) for s in expr.shape)
        return Contraction(contracted, self.env.tokens, rows, cols)

    def _term(self, term: sp.Basic) -> tuple[tuple[np.ndarray, tuple[str, ...]], ...]:
        """Return one path of a token-mixing Jacobian as the factors of an einsum."""
        scalars, matrices = _flatten(term)
        factors = []
        delta = sp.KroneckerDelta(*TOKENS[:2])  # without the input token a term is block diagonal
        weight = sp.Mul(*(s for s in scalars if s != delta))
        if weight != 1:
            value = self.env(weight)
            factors.append((value.data[..., 0, 0], value.axes))
        labels = ["r", *(f"m{k}" for k in range(1, len(matrices))), "c"]
        for k, matrix in enumerate(matrices):
            value = self.env(matrix)
            data, names = value.data, list(value.axes)
            if matrix.shape[0] == 1:
                data, names = data[..., 0, :], [*names, labels[k + 1]]
            elif matrix.shape[1] == 1:
                data, names = data[..., 0], [*names, labels[k]]
            else:
                names = [*names, labels[k], labels[k + 1]]
            factors.append((data, tuple(names)))
        return tuple(factors)


@lru_cache(maxsize=1024)
def _flatten(term: sp.Basic) -> tuple[list[sp.Expr], list[sp.Basic]]:
    """Return the scalars and the matrix word of a nest of products and index sums."""
    if is_scalar(term):
        return list(sp.Mul.make_args(term)), []
    if isinstance(term, IndexSum):
        return _flatten(term.summand)
    if isinstance(term, Product):
        scalars: list[sp.Expr] = []
        matrices: list[sp.Basic] = []
        for factor in term.args:
            inner_scalars, inner_matrices = _flatten(factor)
            scalars += inner_scalars
            matrices += inner_matrices
        return scalars, matrices
    return [], [term]
