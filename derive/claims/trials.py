"""Many random inputs at once, in floating point: every entry is a batch of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp
from scipy import special

from derive.calculus.instantiate import Instantiation, token_blocks
from derive.calculus.maps import Map
from derive.calculus.pointwise import Activation, normal_cdf, sigmoid
from derive.calculus.tensor import is_scalar
from derive.errors import UnknownNodeError
from derive.proof.size import MaxAbs, SmallestSingular, SpectralNorm

__all__ = ["Batch", "BatchRing", "batch_scalar", "batch_values"]

MODULES = [
    {"sigmoid": special.expit, "normal_cdf": special.ndtr, "Heaviside": lambda t, *_: t > 0},
    "numpy",
]


class Batch:
    """One entry at many inputs."""

    __slots__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values, dtype=float)

    def __add__(self, other: Any) -> Batch:
        return NotImplemented if isinstance(other, np.ndarray) else Batch(self.values + _raw(other))

    def __mul__(self, other: Any) -> Batch:
        return NotImplemented if isinstance(other, np.ndarray) else Batch(self.values * _raw(other))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rtruediv__(self, other: Any) -> Batch:
        return Batch(_raw(other) / self.values)

    def __pow__(self, power: int) -> Batch:
        return Batch(self.values ** float(power))


def _raw(value: Any) -> Any:
    return value.values if isinstance(value, Batch) else float(value)


class BatchRing:
    """Random entries of sizes from 1e-2 to 1e2.

    Parameters
    ----------
    count : int
        Number of inputs.
    seed : int
        Of the generator.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self._rng = np.random.default_rng(seed)
        self._table: dict[Any, np.ndarray] = {}
        self._sizes: dict[str, np.ndarray] = {}

    def _drawn(self, key: Any, name: str, positive: bool = False) -> Batch:
        if key not in self._table:
            if name not in self._sizes:
                self._sizes[name] = 10 ** self._rng.uniform(-2, 2, self.count)
            values = self._rng.standard_normal(self.count) * self._sizes[name]
            self._table[key] = np.abs(values) if positive else values
        return Batch(self._table[key])

    def number(self, value: sp.Expr) -> Batch:
        """Return a constant."""
        return Batch(np.full(self.count, float(value)))

    def symbol(self, symbol: sp.Basic) -> Batch:
        """Return the values of a scalar: positive unless the symbol may be negative."""
        return self._drawn(("symbol", symbol), str(symbol), bool(symbol.is_nonnegative))

    def entry(self, kind: str, name: str, position: tuple[int, ...], row: int, col: int) -> Batch:
        """Return the values of one entry of a vector, a matrix or a state."""
        return self._drawn((kind, name, position, row, col), name)

    def root(self, value: Batch) -> Batch:
        """Return the square root."""
        return Batch(np.sqrt(value.values))

    def function(self, kind: Any, value: Batch) -> Batch:
        """Return a function of one variable."""
        return Batch(_numeric(kind)(value.values))

    def activation(self, activation: Activation, order: int, value: Batch) -> Batch:
        """Return a derivative of an activation; an abstract one has values of its own."""
        if activation.is_abstract:
            return self._drawn((activation, order, value.values.tobytes()), activation.name)
        formula = activation.derivative(order)
        compiled = sp.lambdify(formula.variables, formula.expr, MODULES)
        return Batch(np.broadcast_to(compiled(value.values), value.values.shape))

    def map(self, mapping: Map, argument: list[Batch]) -> list[Batch]:
        """Return the value of an abstract sublayer."""
        at = b"".join(a.values.tobytes() for a in argument)
        return [self._drawn((mapping, at, k), mapping.name) for k in range(len(argument))]

    def map_jacobian(self, mapping: Map, argument: list[Batch]) -> np.ndarray:
        """Return the Jacobian of an abstract sublayer."""
        at = b"".join(a.values.tobytes() for a in argument)
        size = range(len(argument))
        rows = [[self._drawn((mapping, at, i, j), mapping.name) for j in size] for i in size]
        return np.array(rows, dtype=object)


def _numeric(kind: Any) -> Callable[[np.ndarray], np.ndarray]:
    known = {sigmoid: special.expit, normal_cdf: special.ndtr, sp.exp: np.exp, sp.log: np.log}
    known |= {sp.tanh: np.tanh, sp.Abs: np.abs}
    if kind not in known:
        raise UnknownNodeError(f"trials: no values of the function {kind.__name__}")
    return known[kind]


def batch_values(expr: sp.Basic, ring: BatchRing, sizes: Mapping[Any, int], n: int) -> np.ndarray:
    """Return all entries of an expression at all inputs, as an array (count, rows, columns)."""
    instance = Instantiation(ring, sizes, n)
    if is_scalar(expr):
        return batch_scalar(expr, instance)[:, None, None]
    if getattr(expr, "mixes_tokens", False):
        blocks = token_blocks(instance, expr)
        array = np.block([[blocks[i, j] for j in range(n)] for i in range(n)])
    else:
        array = np.atleast_2d(instance(expr))
    out = np.empty((ring.count, *array.shape))
    for i, j in np.ndindex(*array.shape):
        out[:, i, j] = _raw(array[i, j])
    return out


def batch_scalar(expr: sp.Expr, instance: Instantiation) -> np.ndarray:
    """Return a scalar made of sizes, powers and functions at all inputs."""
    ring: Any = instance.ring
    if isinstance(expr, SpectralNorm | SmallestSingular | MaxAbs):
        array = batch_values(expr.args[0], ring, instance.sizes, instance.tokens)
        if isinstance(expr, MaxAbs):
            return np.abs(array).max(axis=(1, 2))
        values = np.linalg.svd(array, compute_uv=False)
        return values[:, 0] if isinstance(expr, SpectralNorm) else values[:, -1]
    if expr.has(SpectralNorm, SmallestSingular, MaxAbs):
        parts = [batch_scalar(a, instance) for a in expr.args]
        symbols = sp.symbols(f"p:{len(parts)}", real=True)
        return np.asarray(sp.lambdify(symbols, expr.func(*symbols), "numpy")(*parts))
    return np.broadcast_to(_raw(instance(expr)), (ring.count,))
