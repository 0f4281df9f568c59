r"""Evaluation of a block under rounding: what a layer computes in a narrow format.

Every operation on the expression is rounded, each one once: sums term by term, products factor by
factor, dot products, matrix products and sums over tokens as one operation each, a softmax and an
activation as one operation each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from derive.calculus.atoms import Diag
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply
from derive.calculus.tensor import Product, Sum, is_scalar
from derive.depth.opaque import OpaqueBlock, is_norm
from derive.errors import DomainError
from derive.linalg import Operator
from derive.linalg.rounded import Format, Rounded, number_format, rounded
from derive.lower import AbstractMap, Environment, Lowering, Value, _combine

__all__ = ["Precision", "RoundedEnvironment", "RoundedLayer", "round_weights"]


@dataclass(frozen=True)
class Precision:
    """The formats that the parts of a layer run in.

    Attributes
    ----------
    dtype : str
        Of the weights and of the sublayers.
    statistics : str
        Of what happens inside a norm, whose result is rounded to `dtype`; the same format forwards
        and backwards. Implementations in bfloat16 keep mean and variance in float32.
    residual : str
        Of the residual stream: its additions, and the states and gradients between layers.
    """

    dtype: str = "bfloat16"
    statistics: str = "float32"
    residual: str = "bfloat16"

    def __post_init__(self) -> None:
        for name in (self.dtype, self.statistics, self.residual):
            number_format(name)

    @classmethod
    def of(
        cls, dtype: str, statistics: str | None = None, residual: str | None = None
    ) -> Precision:
        """Return the usual formats around a `dtype`: statistics in float32 or better.

        Raises
        ------
        UnknownNameError
            If a format is not known.
        """
        wide = "float32" if number_format(dtype).digits < 24 else dtype
        return cls(dtype, statistics or wide, residual or dtype)


class RoundedEnvironment(Environment):
    """An environment in which the result of every operation is rounded; constants are not."""

    def __init__(
        self,
        weights: Mapping[str, Any],
        state: np.ndarray,
        maps: Mapping[str, AbstractMap] | None,
        rounding: Format,
    ) -> None:
        super().__init__(weights, state, maps)
        self.rounding = rounding

    def __call__(self, expr: sp.Basic) -> Value:
        """Return the rounded value of an expression, each one computed once."""
        if expr in self._memo:
            return self._memo[expr]
        if is_scalar(expr) and _is_constant(expr):
            return super().__call__(expr)
        value = self._by_steps(expr)
        if value is None:
            value = self._rounded(super().__call__(expr))
        self._memo[expr] = value
        return value

    def _rounded(self, value: Value) -> Value:
        return Value(value.axes, self.rounding(value.data))

    def _by_steps(self, expr: sp.Basic) -> Value | None:
        """Return what takes several operations, rounded after each; None for one operation."""
        if isinstance(expr, Let | ScalarLet | Apply):
            # a name; the definition is rounded (an exponential over its sum is one operation)
            return None
        if isinstance(expr, Product):
            matrices = list(expr.matrices)
            out = self(matrices[-1])
            for factor in reversed(matrices[:-1]):
                diagonal = isinstance(factor, Diag)
                left = self(factor.args[0]) if diagonal else self(factor)
                out = self._rounded(_combine(np.multiply if diagonal else np.matmul, left, out))
            for scalar in (a for a in expr.args if is_scalar(a)):
                out = self._rounded(_combine(np.multiply, self(scalar), out))
            return out
        if isinstance(expr, Sum) or (is_scalar(expr) and (expr.is_Add or expr.is_Mul)):
            function = np.multiply if is_scalar(expr) and expr.is_Mul else np.add
            out = self(expr.args[0])
            for term in expr.args[1:]:
                out = self._rounded(_combine(function, out, self(term)))
            return out
        return None


@lru_cache(maxsize=4096)
def _is_constant(expr: sp.Basic) -> bool:
    """Whether a scalar holds numbers, sizes and scalars of the block only, as 1/sqrt(d_h) does."""
    if expr.is_number or isinstance(expr, sp.Symbol):
        return True
    return (expr.is_Add or expr.is_Mul or expr.is_Pow) and all(map(_is_constant, expr.args))


def round_weights(weights: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Return the weights rounded to a format; a mask and scalars such as ``eps`` stay.

    Raises
    ------
    DomainError
        If a weight is beyond the largest number of the format.
    UnknownNameError
        If the format is not known.
    """
    chosen, out = number_format(dtype), {}
    for name, value in weights.items():
        array = np.asarray(value)
        narrow = array.ndim > 0 and array.dtype != bool
        out[name] = chosen(array) if narrow else value
        if narrow and not np.isfinite(out[name]).all():
            raise DomainError(
                f"weight {name}: expected entries up to {chosen.largest:.4g}, the largest of "
                f"{dtype}, got {np.abs(array).max():.4g}"
            )
    return out


class RoundedLayer:
    """One layer under rounding: its value and its Jacobian, norm by norm, sublayer by sublayer.

    Parameters
    ----------
    opaque : OpaqueBlock
        The block with all its maps opaque, norms as well.
    weights : mapping
        Weights of the layer, rounded already.
    state : array (n, d)
        The state that enters.
    precision : Precision
        The formats.

    Raises
    ------
    ShapeError, WeightError, DomainError, UnknownNodeError
        As for `derive.lower.evaluate`; DomainError also where a number overflows its format.
    """

    def __init__(
        self,
        opaque: OpaqueBlock,
        weights: Mapping[str, Any],
        state: np.ndarray,
        precision: Precision,
    ) -> None:
        self.opaque, self.weights, self.precision = opaque, weights, precision
        self._inside: dict[tuple[str, bytes], RoundedEnvironment] = {}
        maps = opaque.maps(weights, self._map_value, self._map_slope)
        self._env = RoundedEnvironment(weights, state, maps, number_format(precision.residual))
        self._env.prepare(opaque.block)

    def _environment(self, name: str, z: np.ndarray) -> RoundedEnvironment:
        """Return the environment of one map at a state, the same forwards and backwards."""
        key = (name, z.tobytes())
        if key not in self._inside:
            norm = is_norm(self.opaque.concrete[name])
            dtype = self.precision.statistics if norm else self.precision.dtype
            self._inside[key] = RoundedEnvironment(self.weights, z, None, number_format(dtype))
        return self._inside[key]

    def _map_value(self, name: str, z: np.ndarray) -> np.ndarray:
        if not is_norm(self.opaque.concrete[name]):
            z = number_format(self.precision.dtype)(z)  # a wider stream is rounded at the entrance
        env = self._environment(name, z)
        value, _ = self.opaque.alone(name)
        env.prepare(value)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = number_format(self.precision.dtype)(env._family(env(value)))
        return _finite(found, f"the value of {name}", self.precision.dtype)

    def _map_slope(self, name: str, z: np.ndarray) -> Operator:
        dtype = number_format(self.precision.dtype)
        norm = is_norm(self.opaque.concrete[name])
        env = self._environment(name, z if norm else dtype(z))
        _, slope = self.opaque.alone(name)
        env.prepare(slope)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            op = rounded(Lowering(env)(slope), env.rounding)
        return Rounded(op, dtype)

    @property
    def value(self) -> np.ndarray:
        """The state that leaves, (n, d)."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._env._family(self._env(self.opaque.block))
        return _finite(np.array(found), "the state", self.precision.residual)

    @property
    def jacobian(self) -> Operator:
        """The Jacobian, which rounds the result of every map and every addition."""
        op = Lowering(self._env)(self.opaque.jacobian)
        return rounded(op, number_format(self.precision.residual))


def _finite(values: np.ndarray, what: str, dtype: str) -> np.ndarray:
    if not np.isfinite(values).all():
        raise DomainError(f"{what}: expected numbers within {dtype}, got an overflow")
    return values
