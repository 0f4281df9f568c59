"""Differentials measured, not derived: the oracle for the steps of a derivation.

Every differential ``dv`` in an expression gets the central difference of the *value* of ``v``
along one direction of the state. No rule of the engine's differential is used.
"""

from __future__ import annotations

import mpmath
import numpy as np

from derive.calculus.differential import Differential, ScalarDifferential
from derive.calculus.instantiate import Instantiation
from derive.calculus.maps import TokenBlocks
from derive.calculus.tensor import Product, Sum

STEP = mpmath.mpf(10) ** -20
TOLERANCE = mpmath.mpf(10) ** -30  # truncation h^2 = 1e-40 times third derivatives, at 60 digits


class MpmathRing:
    """mpmath numbers by name; the abstract sublayer is a quadratic map."""

    def __init__(self, weights, state):
        self.weights, self.state = weights, state

    def number(self, value):
        return mpmath.mpf(int(value.p)) / int(value.q)

    def symbol(self, symbol):
        return self.weights[str(symbol)]

    def entry(self, kind, name, position, row, col):
        if kind == "state":
            return self.state[position[0], row]
        found = self.weights[name][position]
        return found[row] if found.ndim == 1 else found[row, col]

    def root(self, value):
        return mpmath.sqrt(value)

    def function(self, function, value):
        return getattr(mpmath, function.__name__)(value)

    def activation(self, activation, order, value):
        assert activation.name == "tanh"
        return mpmath.diff(mpmath.tanh, value, order) if order else mpmath.tanh(value)

    def map(self, mapping, argument):
        x = np.array(argument, dtype=object)
        return list(self.weights["F.matrix"].dot(x) + x * self.weights["F.slope"].dot(x))

    def map_jacobian(self, mapping, argument):
        x, slope = np.array(argument, dtype=object), self.weights["F.slope"]
        return self.weights["F.matrix"] + np.diag([slope.dot(x)] * len(x)) + np.outer(x, slope)


class Measured(Instantiation):
    """Evaluates expressions in which differentials stand for measured differences."""

    def __init__(self, weights, sizes, direction):
        tokens = len(direction)
        super().__init__(MpmathRing(weights, weights["x"]), sizes, tokens)
        self.ahead, self.behind = (
            Instantiation(MpmathRing(weights, weights["x"] + h * direction), sizes, tokens)
            for h in (STEP, -STEP)
        )

    def _difference(self, expr, at, token):
        of = expr.args[0]
        return (self.ahead(of, at, token) - self.behind(of, at, token)) / (2 * STEP)

    def _tensor(self, expr, at, token):
        if isinstance(expr, Differential):
            return self._difference(expr, at, token)
        if isinstance(expr, Product) and expr.mixes_tokens:
            k = next(k for k, a in enumerate(expr.args) if getattr(a, "mixes_tokens", False))
            left, operator, right = expr.args[:k], expr.args[k], expr.args[k + 1 :]
            out = self._applied(operator, right, at, token)
            for factor in reversed(left):
                value = self(factor, at, token)
                out = value.dot(out) if isinstance(value, np.ndarray) else value * out
            return out
        return super()._tensor(expr, at, token)

    def _applied(self, operator, right, at, token):
        """Return an operator that couples tokens, applied to what stands to its right."""
        if isinstance(operator, Sum):
            return sum(self._tensor(Product(t, *right), at, token) for t in operator.args)
        assert isinstance(operator, TokenBlocks)
        parts = []
        for other in range(self.tokens):
            block = self(operator.block(token, other), at, token)
            parts.append(block.dot(self(Product(*right), at, other)))
        return sum(parts)

    def _scalar(self, expr, at, token):
        if isinstance(expr, ScalarDifferential):
            return self._difference(expr, at, token)
        return super()._scalar(expr, at, token)
