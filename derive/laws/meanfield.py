r"""Moments of a block, composed from its expression: no placement has a law of its own.

At wide random weights every vector of a block is a linear combination of *sources* that are
uncorrelated: the states, and the output of every sublayer (its last matrix has mean zero and is
independent of all else). A norm divides by the root of the mean square. So

.. math:: y = \sum_k a_k s_k, \qquad
    \frac{\mathbb E|y|^2}{d} = \sum_{k,m} a_ka_m \operatorname{Cov}(s_k, s_m),

where only states may be correlated with each other. The gradient runs backwards through the same
combination; what comes out of a sublayer's transposed Jacobian is a source of its own. The one or
two directions that a norm removes from a gradient are a share of order 1/d, as are the fluctuations
of the mean square that it divides by: both are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp

from derive.blocks.norms import L2Norm, LayerNorm, RMSNorm
from derive.calculus.atoms import Diag, State, Vector
from derive.calculus.let import Let
from derive.calculus.maps import Apply
from derive.calculus.tensor import Product, Sum, is_scalar
from derive.errors import DomainError, UnknownNodeError, WeightError
from derive.laws.components import Moments, Setting, TokenMoments, backward, forward
from derive.symbols import d

__all__ = ["BlockMoments", "StreamMoments"]

Number = Any
Source = Any

StreamMoments = Mapping[tuple[str, str], Any]
"""The moments of each stream and between each two, by their names: all Moments, or TokenMoments."""


class Signal(dict[Source, Number]):
    """A linear combination: what each source is multiplied by, and its gradient on the way back.

    A multiplier is a number, or an array with one a token behind a norm of tokens that differ.

    Attributes
    ----------
    mean_square : number or None
        Where a norm has set it; otherwise it follows from the sources.
    """

    mean_square: Number = None


class BlockMoments:
    r"""The moments of a block's outputs and gradients, for given moments of its streams.

    Parameters
    ----------
    outputs : mapping from str to expression
        The new value of every stream, by its name; ``{"x": block}`` for one.
    state : mapping from (str, str) to Moments
        The moments of the streams.
    setting : Setting
        Weights and sizes.
    scalars : mapping
        Values of the block's scalars and constant vectors.

    Raises
    ------
    UnknownNodeError
        If a node or a sublayer has no moments.
    WeightError
        If a scalar has no value.
    DomainError
        If a norm gets what is 0.
    """

    def __init__(
        self,
        outputs: Mapping[str, sp.Basic],
        state: StreamMoments,
        setting: Setting,
        scalars: Mapping[str, Number] | None = None,
    ) -> None:
        self.state, self.setting = dict(state), setting
        self.scalars = dict(scalars or {})
        first = next(iter(self.state.values()))
        self.differ = isinstance(first, TokenMoments)
        self._nothing: Any = first.times(0, 0)
        self.branches: dict[Apply, tuple[Signal, Any]] = {}
        self.signals = {name: self._signal(expr) for name, expr in outputs.items()}

    # -- forward

    def forward(self) -> dict[tuple[str, str], Any]:
        """Return the moments of the outputs, of each and between each two."""
        return {
            (a, b): self.between(s, t)
            for a, s in self.signals.items()
            for b, t in self.signals.items()
        }

    def _signal(self, expr: sp.Basic) -> Signal:
        if isinstance(expr, State):
            return Signal({expr.name: 1})
        if isinstance(expr, Let):
            return self._signal(expr.definition)
        if isinstance(expr, Sum):
            out = Signal()
            for term in expr.args:
                for source, a in self._signal(term).items():
                    out[source] = out[source] + a if source in out else a
            return out
        if isinstance(expr, Product):
            factor, rest = self._factor(expr)
            return Signal({s: a * factor for s, a in self._signal(rest).items()})
        if isinstance(expr, Apply) and expr.mapping.family == "norm":
            return self._normed(expr)
        if isinstance(expr, Apply):
            if expr not in self.branches:
                argument = self._signal(expr.argument)
                made = forward(expr.mapping, self.between(argument, argument), self.setting)
                self.branches[expr] = (argument, made)
            return Signal({expr: 1})
        raise UnknownNodeError(f"law: no rule for {type(expr).__name__} ({expr})")

    def _factor(self, expr: Product) -> tuple[Number, sp.Basic]:
        factor: Number = 1
        *fronts, rest = expr.args
        for part in fronts:
            if is_scalar(part):
                factor = factor * self._number(part)
            elif isinstance(part, Diag) and isinstance(part.args[0], Vector):
                factor = factor * self._number(sp.Symbol(part.args[0].name))
            else:
                raise UnknownNodeError(f"law: no rule for the factor {part} in {expr}")
        return factor, rest

    def _number(self, scalar: sp.Expr) -> Number:
        if scalar.is_Symbol and scalar.name in self.scalars:
            return self.setting.number(sp.sympify(self.scalars[scalar.name]))
        values = {s: self.scalars[s.name] for s in scalar.free_symbols if s.name in self.scalars}
        found = scalar.subs(values)
        missing = sorted(s.name for s in scalar.free_symbols - set(values))
        if missing:
            raise WeightError(f"values: no value for the scalar {', '.join(missing)}")
        return self.setting.number(sp.sympify(found))

    def _normed(self, expr: Apply) -> Signal:
        if not isinstance(expr.mapping, LayerNorm | RMSNorm | L2Norm):
            raise UnknownNodeError(
                f"norm: expected LayerNorm, RMSNorm or L2Norm, whose moments are known, got "
                f"{type(expr.mapping).__name__}"
            )
        argument = self._signal(expr.argument)
        v = self.between(argument, argument).squares
        if np.any(v == 0) if self.differ else v == 0:
            raise DomainError(f"norm: expected an argument that is not 0, got {expr}")
        features = self.setting.at.get(d, d) if isinstance(expr.mapping, L2Norm) else 1
        unit = 1 / _root(features * v)
        normed = Signal({s: a * unit for s, a in argument.items()})
        normed.mean_square = self.setting.number(sp.S.One / features)
        return normed

    def between(self, left: Signal, right: Signal) -> Any:
        """Return the moments of two combinations of sources."""
        total = self._nothing
        for s, a in left.items():
            for t, b in right.items():
                found = self._covariance(s, t)
                if found is not None:
                    total = total.plus(found.times(a, b))
        known = left.mean_square if left is right else None
        return total if known is None or self.differ else Moments(known, total.c)

    def _covariance(self, s: Source, t: Source) -> Any:
        if isinstance(s, str) and isinstance(t, str):
            return self.state[s, t]
        return self.branches[s][1] if s == t else None

    # -- backward

    def backward(self, gradient: StreamMoments) -> dict[tuple[str, str], Any]:
        """Return the moments of the gradient at the inputs, from those at the outputs."""
        return self.reverse(gradient)[0]

    def reverse(
        self, gradient: StreamMoments
    ) -> tuple[dict[tuple[str, str], Any], dict[Apply, Any]]:
        """Return the gradient at the inputs as `backward`, and at the output of every sublayer."""
        arriving: dict[Apply, Any] = {}
        sources: dict[Source, Any] = {}
        flows: dict[Source, dict[Source, Number]] = {}

        def send(signal: Signal, source: Source) -> None:
            for target, a in signal.items():
                flow = flows.setdefault(target, {})
                flow[source] = flow.get(source, 0) + a

        def moments(left: Mapping[Source, Number], right: Mapping[Source, Number]) -> Any:
            total = self._nothing
            for s, a in left.items():
                for t, b in right.items():
                    both = isinstance(s, str) and isinstance(t, str)
                    if both or s == t:
                        found = gradient[s, t] if both else sources[s]
                        total = total.plus(found.times(a, b))
            return total

        for name, signal in self.signals.items():
            send(signal, name)
        for branch, (argument, _) in reversed(self.branches.items()):
            flow = flows.get(branch, {})
            arriving[branch] = moments(flow, flow)
            behind = backward(
                branch.mapping,
                arriving[branch],
                self.between(argument, argument),
                self.setting,
            )
            sources[branch] = behind
            send(argument, branch)
        names = list(self.signals)
        inputs = {(a, b): moments(flows.get(a, {}), flows.get(b, {})) for a in names for b in names}
        return inputs, arriving


def _root(value: Number) -> Number:
    if isinstance(value, np.ndarray):
        return np.sqrt(value)
    return math.sqrt(value) if isinstance(value, float) else sp.sqrt(value)
