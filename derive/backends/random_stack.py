r"""Stacks of PyTorch's own modules, built from the expressions of their blocks.

A layer is put together from ``torch.nn`` (Linear, LayerNorm, RMSNorm, ReLU, GELU, ...) and
``scaled_dot_product_attention``; gradients come from autograd. Nothing is shared with the derived
Jacobians but the block's expression and the names of its weights. One layer is held at a time: its
weights are drawn for the pass forward, and again for the pass back, which starts from the state
that was kept (checkpointing: Griewank and Walther, *Evaluating Derivatives*, 2nd ed., chapter 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from derive.backends.extras import load_torch
from derive.blocks.attention import INVERSE_ROOT, Attention, CrossAttention
from derive.blocks.norms import L2Norm, LayerNorm, RMSNorm
from derive.blocks.sublayers import FFN, GatedFFN
from derive.calculus.atoms import Diag, State, Vector
from derive.calculus.let import Let
from derive.calculus.maps import Apply, Map
from derive.calculus.tensor import Product, Sum, is_scalar
from derive.errors import DomainError, ShapeError, UnknownNameError, UnknownNodeError, WeightError

__all__ = ["RandomStack", "StackGradients"]

KEPT = 2**28
"""Bytes of weights up to which the layers of a stack are kept from one pass to the next."""
UNKNOWN = (
    *("full_norm", "softcap", "score_bias", "sinks", "gate", "norm_last", "query_gain"),
    "out_norm",
)
"""Options of attention that ``scaled_dot_product_attention`` does not have."""


@dataclass(frozen=True, eq=False)
class StackGradients:
    r"""What one pass forward and one back through a stack give.

    Attributes
    ----------
    states : list of array (S, n, d)
        The streams at l = 0..L.
    gradient_log_norms : array
        :math:`\log\lVert\partial\mathcal L/\partial x_l\rVert_2` over all streams, l = 0..L.
    weight_log_norms : list of dict from str to float
        :math:`\log\lVert\partial\mathcal L/\partial W\rVert_F` of every matrix of block l = 1..L;
        -inf where it is 0.
    """

    states: list[np.ndarray]
    gradient_log_norms: np.ndarray
    weight_log_norms: list[dict[str, float]]


class RandomStack:
    r"""A stack of torch modules, one layer after the other.

    Parameters
    ----------
    blocks : sequence of mappings from str to expression
        The new value of every stream, one mapping a layer; ``{"x": block}`` for a single stream.
    draw : callable
        From the number of a layer, from 0, to its weights by name, as for
        `derive.lower.Environment`; the same weights whenever it is asked.
    dtype : str
        ``"float64"`` or ``"float32"``.

    Raises
    ------
    MissingExtraError
        If torch is not installed.
    ShapeError
        If there is no layer.
    UnknownNameError
        If the dtype is another.
    """

    def __init__(
        self,
        blocks: Sequence[Mapping[str, sp.Basic]],
        draw: Callable[[int], Mapping[str, Any]],
        *,
        dtype: str = "float64",
    ) -> None:
        torch = load_torch()
        if not blocks:
            raise ShapeError("blocks: expected at least one layer, got none")
        if dtype not in ("float64", "float32"):
            raise UnknownNameError(f"dtype: expected float64 or float32, got {dtype!r}")
        self.blocks, self.draw = tuple(blocks), draw
        self.dtype = getattr(torch, dtype)
        self._kept: dict[int, _Layer] = {}

    def _layer(self, number: int) -> _Layer:
        if number in self._kept:
            return self._kept[number]
        layer = _Layer(self.blocks[number], self.draw(number), self.dtype)
        if layer.size * len(self.blocks) <= KEPT:
            self._kept[number] = layer
        return layer

    def gradients(self, x: Any, cotangent: Any) -> StackGradients:
        r"""Run the stack forward and a cotangent back.

        Parameters
        ----------
        x : array (n, d)
            The input of every stream, or ``(S, n, d)``.
        cotangent : array
            Gradient :math:`\partial\mathcal L/\partial x_L`, of the shape of the streams.

        Raises
        ------
        ShapeError
            If a shape does not fit.
        DomainError
            If a state or a gradient is not finite.
        WeightError
            If a weight or a scalar is missing.
        UnknownNodeError
            If a node has no module here.
        """
        torch = load_torch()
        names = tuple(self.blocks[0])
        start = torch.as_tensor(np.array(x, dtype=float), dtype=self.dtype)
        if start.ndim == 2:
            start = start.expand(len(names), *start.shape)
        gradient = torch.as_tensor(np.array(cotangent, dtype=float), dtype=torch.float64)
        if start.ndim != 3 or len(start) != len(names) or gradient.numel() != start.numel():
            raise ShapeError(
                f"x, cotangent: expected {len(names)} streams of one shape (n, d), got "
                f"{tuple(np.shape(x))} and {tuple(np.shape(cotangent))}"
            )
        gradient = gradient.reshape(start.shape)
        states = [start]
        with torch.no_grad():
            for number in range(len(self.blocks)):
                states.append(self._layer(number)(states[-1]))
                _finite(states[-1], f"the state after block {number + 1}")
        scale, logs = _unit(gradient)
        norms, weights = [logs], []
        for number in range(len(self.blocks) - 1, -1, -1):
            layer = self._layer(number)
            state = states[number].clone().requires_grad_()
            matrices = layer.matrices
            found = torch.autograd.grad(
                layer(state),
                [state, *matrices.values()],
                scale.to(self.dtype),
                allow_unused=True,
            )
            weights.append(
                {
                    name: logs + _log_norm(torch.zeros(1) if one is None else one)
                    for name, one in zip(matrices, found[1:], strict=True)
                }
            )
            _finite(found[0], f"the gradient before block {number + 1}")
            scale, more = _unit(found[0].double())
            logs += more
            norms.append(logs)
        return StackGradients(
            [one.double().numpy() for one in states], np.array(norms[::-1]), weights[::-1]
        )


def _finite(value: Any, what: str) -> None:
    if not bool(value.isfinite().all()):
        raise DomainError(f"layers: expected fewer, {what} is not finite in {value.dtype}")


def _log_norm(value: Any) -> float:
    """Return the logarithm of a Frobenius norm, whose squares may not fit into float32."""
    norm = float(value.detach().double().norm())
    return math.log(norm) if norm > 0 else -math.inf


def _unit(value: Any) -> tuple[Any, float]:
    """Return a gradient of length 1 and the logarithm of its length."""
    log = _log_norm(value)
    return (value, log) if log == -math.inf else (value / math.exp(log), log)


class _Layer:
    """One layer of torch modules."""

    def __init__(
        self, outputs: Mapping[str, sp.Basic], weights: Mapping[str, Any], dtype: Any
    ) -> None:
        self.outputs, self.dtype = dict(outputs), dtype
        self.weights: dict[str, Any] = {}
        self.scalars: dict[str, float] = {}
        torch = load_torch()
        for name, value in weights.items():
            if np.ndim(value) == 0:
                self.scalars[name] = float(value)
            else:
                self.weights[name] = torch.as_tensor(np.asarray(value), dtype=dtype)
        self.matrices: dict[str, Any] = {}
        self.size = sum(one.numel() * one.element_size() for one in self.weights.values())
        self.maps: dict[Map, Callable[[Any], Any]] = {}

    def __call__(self, state: Any) -> Any:
        """Return the streams after the layer, each (n, d)."""
        torch = load_torch()
        done: dict[sp.Basic, Any] = {}
        self.streams = dict(zip(self.outputs, state, strict=True))
        return torch.stack([self._value(expr, done) for expr in self.outputs.values()])

    def _value(self, expr: sp.Basic, done: dict[sp.Basic, Any]) -> Any:
        if expr not in done:
            done[expr] = self._evaluate(expr, done)
        return done[expr]

    def _evaluate(self, expr: sp.Basic, done: dict[sp.Basic, Any]) -> Any:
        if isinstance(expr, State):
            return self.streams[expr.name]
        if isinstance(expr, Let):
            return self._value(expr.definition, done)
        if isinstance(expr, Sum):
            first, *others = (self._value(term, done) for term in expr.args)
            return sum(others, start=first)
        if isinstance(expr, Product):
            *fronts, rest = expr.args
            value = self._value(rest, done)
            for part in fronts:
                value = self._factor(part, expr) * value
            return value
        if isinstance(expr, Apply):
            if expr.mapping not in self.maps:
                self.maps[expr.mapping] = self._module(expr.mapping)
            return self.maps[expr.mapping](self._value(expr.argument, done))
        raise UnknownNodeError(f"torch: no module for {type(expr).__name__} ({expr})")

    def _factor(self, part: sp.Basic, expr: sp.Basic) -> Any:
        if isinstance(part, Diag) and isinstance(part.args[0], Vector):
            return self._weight(part.args[0].name)
        if is_scalar(part):
            missing = sorted(s.name for s in part.free_symbols if s.name not in self.scalars)
            if missing:
                raise WeightError(f"values: no value for the scalar {', '.join(missing)}")
            return float(part.subs({s: self.scalars[s.name] for s in part.free_symbols}))
        raise UnknownNodeError(f"torch: no module for the factor {part} in {expr}")

    def _weight(self, name: str) -> Any:
        try:
            return self.weights[name]
        except KeyError:
            raise WeightError(f"weight {name}: missing; given are {sorted(self.weights)}") from None

    # -- modules

    def _module(self, mapping: Map) -> Callable[[Any], Any]:
        if isinstance(mapping, LayerNorm | RMSNorm | L2Norm):
            return self._norm(mapping)
        if isinstance(mapping, FFN | GatedFFN):
            return self._feed_forward(mapping)
        if isinstance(mapping, Attention | CrossAttention):
            return self._attention(mapping)
        raise UnknownNodeError(
            f"torch: no module for {type(mapping).__name__} {mapping.name}; expected LayerNorm, "
            "RMSNorm, L2Norm, ffn, gated, attention or cross-attention"
        )

    def _norm(self, norm: Any, name: str | None = None) -> Callable[[Any], Any]:
        torch = load_torch()
        suffix = f"_{norm.label}" if norm.label else ""
        eps = float(norm.eps.subs({s: self.scalars[s.name] for s in norm.eps.free_symbols}))
        if type(norm) is L2Norm and not (norm.has_gain or norm.has_bias):
            return lambda z: torch.nn.functional.normalize(z, dim=-1, eps=eps)
        if type(norm) not in (LayerNorm, RMSNorm) or norm.has_offset or norm.eps_outside:
            raise UnknownNodeError(
                f"torch: no module for the norm {type(norm).__name__} with these options"
            )
        gain = self._weight(f"gain{suffix}") if norm.has_gain else None
        bias = self._weight(f"bias{suffix}") if norm.has_bias else None
        made: Any = None

        def apply(z: Any) -> Any:
            nonlocal made
            if made is None:
                kind = torch.nn.LayerNorm if type(norm) is LayerNorm else torch.nn.RMSNorm
                shape = z.shape[-1]
                made = kind(shape, eps=eps, elementwise_affine=gain is not None, dtype=self.dtype)
                if gain is not None:
                    made.weight = _fixed(gain)
                if bias is not None:
                    made.bias = _fixed(bias)
            return made(z)

        return apply

    def _linear(self, name: str, matrix: Any = None, bias: Any = None) -> Any:
        """Return ``torch.nn.Linear`` with a weight of the layer, whose gradient is asked for."""
        torch = load_torch()
        matrix = self._weight(name) if matrix is None else matrix
        made = torch.nn.Linear(1, 1, bias=bias is not None, dtype=self.dtype)
        made.out_features, made.in_features = matrix.shape
        made.weight = torch.nn.Parameter(matrix)
        if bias is not None:
            made.bias = _fixed(bias)
        self.matrices[name] = made.weight
        return made

    def _feed_forward(self, mapping: Any) -> Callable[[Any], Any]:
        torch = load_torch()
        label = f"_{mapping.label}" if mapping.label else ""
        activation = _activation(mapping.activation.name)
        inner = (
            torch.nn.Identity() if mapping.inner_norm is None else self._norm(mapping.inner_norm)
        )

        def linear(suffix: str) -> Any:
            bias = self._weight(f"b_{suffix}{label}") if mapping.has_bias else None
            return self._linear(f"W_{suffix}{label}", bias=bias)

        if isinstance(mapping, FFN):
            first, last = linear("1"), linear("2")
            return lambda z: last(inner(activation(first(z))))
        gate, up, down = linear("gate"), linear("up"), linear("down")
        return lambda z: down(inner(activation(gate(z)) * up(z)))

    def _attention(self, mapping: Any) -> Callable[[Any], Any]:
        torch = load_torch()
        other = [k for k in UNKNOWN if mapping._option(k) not in (None, sp.false, "")]
        if other or mapping.scale != INVERSE_ROOT or mapping.masked != mapping.causal:
            raise UnknownNodeError(
                f"torch: no attention with {', '.join(other) or 'this scale or mask'}"
            )
        sides = {}
        for side, letter in (("query", "Q"), ("key", "K"), ("value", "V")):
            name = mapping.weight(f"W_{letter}")
            heads, size, width = self._weight(name).shape
            bias = (
                self._weight(mapping.weight(f"b_{letter}")).reshape(-1)
                if mapping.has_bias
                else None
            )
            linear = self._linear(name, self._weight(name).reshape(heads * size, width), bias)
            norm = mapping._option(f"{side}_norm")
            after = torch.nn.Identity() if norm is None else self._norm(norm)
            sides[letter] = (linear, heads, size, after)
        name = mapping.weight("W_O")
        out = self._weight(name).permute(1, 0, 2).flatten(1)
        bias = self._weight(mapping.weight("b_O")) if mapping.has_bias else None
        project = self._linear(name, out.contiguous(), bias)
        memory = (
            self._weight(mapping.weight("mem")) if isinstance(mapping, CrossAttention) else None
        )

        def projected(letter: str, z: Any) -> Any:
            linear, heads, size, after = sides[letter]
            split = after(linear(z).reshape(len(z), heads, size)).transpose(0, 1)
            if mapping.rotary and letter in "QK" and memory is None:
                split = torch.einsum("nab,hnb->hna", self._weight("R"), split)
            return split

        def attend(z: Any) -> Any:
            read = z if memory is None else memory
            mixed = torch.nn.functional.scaled_dot_product_attention(
                projected("Q", z)[None],
                projected("K", read)[None],
                projected("V", read)[None],
                is_causal=mapping.causal and memory is None,
            )[0]
            return project(mixed.transpose(0, 1).flatten(1))

        return attend


def _fixed(value: Any) -> Any:
    """Return a parameter whose gradient is not asked for."""
    return load_torch().nn.Parameter(value, requires_grad=False)


def _activation(name: str) -> Any:
    nn = load_torch().nn
    made = {
        "relu": nn.ReLU,
        "gelu": nn.GELU,
        "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
        "silu": nn.SiLU,
        "tanh": nn.Tanh,
        "sigmoid": nn.Sigmoid,
    }
    if name == "relu2":
        return lambda z: nn.functional.relu(z).square()
    if name not in made:
        raise UnknownNodeError(f"torch: no module for the activation {name}")
    return made[name]()
