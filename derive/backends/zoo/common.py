"""What the builders of the zoo share: a tiny configuration, random weights, rotations, assembly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import sympy as sp

from derive import symbols
from derive.backends.activation import activation_name
from derive.backends.extras import load_torch, load_transformers
from derive.backends.real_block import RealBlock
from derive.backends.weights import additive_mask, array, heads_of, linear
from derive.blocks.attention import Attention, CrossAttention
from derive.blocks.build import state
from derive.blocks.norms import norm as norm_of
from derive.blocks.parse import parse_block
from derive.blocks.sublayers import FFN, GatedFFN
from derive.calculus.maps import Map
from derive.calculus.pointwise import Activation

__all__ = [
    "EQUATIONS",
    "HEADS",
    "HEAD_WIDTH",
    "HIDDEN",
    "MEMORY",
    "TOKENS",
    "WIDTH",
    "additive",
    "assemble",
    "configuration",
    "exact",
    "first",
    "fresh",
    "memory",
    "modeling",
    "projection",
    "rotations",
    "split_rows",
]

WIDTH, HEADS, TOKENS, HIDDEN, MEMORY = 16, 4, 4, 24, 3
"""d, H, n, f and M of every layer, unless a layer fixes one of them itself."""
HEAD_WIDTH = WIDTH // HEADS

EQUATIONS = {
    "post": "h = N1(x + A(x)); N2(h + F(h))",
    "pre": "h = x + A(N1(x)); h + F(N2(h))",
    "parallel": "x + A(N1(x)) + F(N1(x))",
    "parallel-two-norms": "x + A(N1(x)) + F(N2(x))",
    "res-post": "h = x + N1(A(x)); h + N2(F(h))",
    "layerscale": "h = x + lam1*A(N1(x)); h + lam2*F(N2(h))",
    "normed-residual": "c = N1(x); h = c + A(c); m = N2(h); m + F(m)",
    "pre-mlp": "h = x + A(x); h + F(N2(h))",
    "deepnorm": "h = N1(alpha*x + A(x)); N2(alpha*h + F(h))",
    "sub-ln": "h = x + A(N1(x)); h + F(N2(h))",
    "decoder-2017": "h = N1(x + A(x)); c = N2(h + C(h)); N3(c + F(c))",
    "decoder-pre": "h = x + A(N1(x)); c = h + C(N2(h)); c + F(N3(c))",
}
"""The layers by the word for their placement.

A is attention to the tokens themselves, C to a memory; ``pre-mlp`` has no norm for the attention.
"""

Array: TypeAlias = npt.NDArray[Any]
Projection: TypeAlias = tuple[Array, Array | None]


def modeling(model: str) -> Any:
    """Return the module ``modeling_<model>`` of transformers."""
    return load_transformers(f"models.{model}.modeling_{model}")


def configuration(model: str, name: str, **settings: Any) -> Any:
    """Return a configuration of transformers that asks for eager attention."""
    module = load_transformers(f"models.{model}.configuration_{model}")
    config = getattr(module, name)(**settings)
    config._attn_implementation = "eager"
    return config


def fresh(make: Callable[[], Any], seed: int, *, zero_centred: bool = False) -> Any:
    """Make a module and give it random weights: float64, eval mode, parameters frozen.

    Matrices are N(0, 1 / fan-in), gains and layer scales uniform on [0.5, 1.5], everything else
    N(0, 0.1^2), drawn by NumPy.

    Parameters
    ----------
    make : callable
        Returns the module.
    seed : int
        Seed of the weights; with one seed, each class has weights of its own.
    zero_centred : bool
        Whether the norms multiply by 1 + weight; the weight is then uniform on [-0.5, 0.5].
    """
    torch = load_torch()
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        module = make().to(torch.float64).eval()
    rng = np.random.default_rng([seed, crc32(type(module).__name__.encode())])
    for part in module.modules():
        kind = type(part).__name__
        for name, parameter in part.named_parameters(recurse=False):
            shape = tuple(parameter.shape)
            if ("Norm" in kind and name == "weight") or "LayerScale" in kind:
                values = rng.uniform(0.5, 1.5, shape) - (1 if zero_centred else 0)
            elif len(shape) >= 2:
                # Conv1D stores W as (in, out), a linear layer as (out, in).
                fan_in = shape[0] if kind == "Conv1D" else shape[-1]
                values = rng.standard_normal(shape) / np.sqrt(fan_in)
            else:
                values = 0.1 * rng.standard_normal(shape)
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(np.asarray(values)))
            parameter.requires_grad_(False)
    return module


def first(result: Any) -> Any:
    """Return the hidden states of what a layer returned."""
    return result[0] if isinstance(result, tuple | list) else result


def additive(mask: npt.NDArray[np.bool_]) -> Any:
    """Return a mask as a layer of transformers takes it, (1, 1, n, n)."""
    return additive_mask(mask)[None, None]


def memory(seed: int) -> Array:
    """Return random encoder states, (M, d)."""
    return np.random.default_rng([seed, MEMORY]).standard_normal((MEMORY, WIDTH))


def exact(eps: float) -> sp.Float:
    """Return a float64 as a SymPy number of the same value."""
    return sp.Float(float(eps), 17)


def projection(layer: Any) -> Projection:
    """Return (W, b) of a linear layer, b None where it has none; a pair is returned as it is."""
    if isinstance(layer, tuple):
        return layer
    weight, bias = linear(layer, transposed=type(layer).__name__ == "Conv1D")
    return weight, None if layer.bias is None else bias


def split_rows(layer: Any, order: Array, parts: int = 3) -> list[Projection]:
    """Split a fused projection into equal parts.

    Parameters
    ----------
    layer : linear layer
        The fused projection.
    order : array
        Row numbers of the projection, any shape; flattened, part after part.
    parts : int
        How many parts.
    """
    weight, bias = projection(layer)
    rows = np.split(np.asarray(order).reshape(-1), parts)
    return [(weight[r], None if bias is None else bias[r]) for r in rows]


def rotations(rotate: Callable[[Any], Any], head_width: int = HEAD_WIDTH) -> Array:
    """Return the rotary matrices (n, dh, dh) of a function on queries (1, heads, n, dh).

    It is applied to the columns of the identity, so whatever convention it has is in the result.
    """
    torch = load_torch()
    shape = (1, head_width, TOKENS, head_width)
    basis = torch.eye(head_width, dtype=torch.float64).reshape(1, head_width, 1, head_width)
    rotated = array(rotate(basis.expand(shape).clone()))
    # Entry [b, i] of the rotated basis is column b of R_i.
    return np.ascontiguousarray(rotated[0].transpose(1, 2, 0))


def assemble(
    system: str,
    module: Any,
    call: Callable[[Any], Any],
    placement: str,
    *,
    norms: Sequence[Any],
    attention: Sequence[Any],
    feed_forward: Sequence[Any],
    activation: Any,
    scale: float,
    cross: Sequence[Any] = (),
    encoder_states: Array | None = None,
    kind: str = "layernorm",
    eps: float | None = None,
    groups: int = 1,
    mask: npt.NDArray[np.bool_] | None = None,
    rotary: Array | None = None,
    score_bias: Array | None = None,
    vectors: Mapping[str, Any] | None = None,
    attention_options: Mapping[str, Any] | None = None,
    inner_norm: Any = None,
    further_weights: Mapping[str, Array] | None = None,
    equation: str | None = None,
    tokens: int = TOKENS,
    **options: Any,
) -> RealBlock:
    """Return the real block of a layer with one self-attention and one feed-forward sublayer.

    Parameters
    ----------
    system, module, call, placement
        As for `RealBlock`.
    norms : sequence of modules
        N1, N2 and so on; None for one that the equation does not use.
    attention : sequence
        Query, key, value and output projection: linear layers, or (W, b) of them.
    feed_forward : sequence
        The two linear layers, or gate, up and down of a gated one.
    activation : module or Activation
        The activation; a module is told by its values.
    scale : float
        Factor of the scores.
    cross : sequence, optional
        The projections of a cross-attention, C in the equation.
    encoder_states : array (M, d), optional
        What it attends to.
    kind : {"layernorm", "rmsnorm"}
        Kind of the norms.
    eps : float, optional
        eps of norms that do not carry it as an attribute.
    groups : int
        How many query heads share a key and value head.
    mask : array (n, n) of bool, optional
        True where token i may attend to token j.
    rotary : array (n, dh, dh), optional
        Rotary matrices.
    score_bias : array (H, n, n), optional
        Added to the scores.
    vectors : mapping, optional
        Constant vectors of the equation.
    attention_options : mapping, optional
        Further options of the attention.
    inner_norm : module, optional
        The LayerNorm before the output projection of the feed-forward sublayer.
    further_weights : mapping, optional
        Weights that these options name.
    equation : str, optional
        The layer, by its placement if it is not given.
    tokens : int
        Number of tokens.
    **options
        Further fields of `RealBlock`.
    """
    attention_options = {"scale": symbols.scale, **(attention_options or {})}
    weights: dict[str, Array] = dict(further_weights or {})
    if cross or attention_options["scale"] == symbols.scale:
        weights["scale"] = np.array(float(scale))
    maps: dict[str, Map] = {}
    found = []
    for index, part in enumerate(norms, 1):
        if part is None:
            continue
        own: Any = getattr(part, "eps", getattr(part, "variance_epsilon", eps))
        found.append(float(own))
        gain, bias = (getattr(part, name, None) for name in ("weight", "bias"))
        maps[f"N{index}"] = norm_of(
            kind, label=index, eps=exact(found[-1]), gain=gain is not None, bias=bias is not None
        )
        for stem, values in (("gain", gain), ("bias", bias)):
            if values is not None:
                weights[f"{stem}_{index}"] = array(values)

    weights |= _attention_weights(attention, "", groups)
    maps["A"] = Attention(
        bias="b_O" in weights,
        causal=mask is not None and not np.triu(mask, 1).any(),
        masked=mask is not None,
        rotary=rotary is not None,
        score_bias=score_bias is not None,
        **attention_options,
    )
    for name, values in (("mask", mask), ("R", rotary), ("B", score_bias)):
        if values is not None:
            weights[name] = values
    if cross:
        weights |= _attention_weights(cross, "_c", 1)
        weights["mem_c"] = np.array(encoder_states)
        maps["C"] = CrossAttention(
            label="c", name="C", bias="b_O_c" in weights, scale=symbols.scale
        )

    gated = len(feed_forward) == 3
    name = activation.name if isinstance(activation, Activation) else activation_name(activation)
    pairs = [projection(layer) for layer in feed_forward]
    biased = any(bias is not None for _, bias in pairs)
    hidden_norm: Any = ""
    if inner_norm is not None:
        hidden_norm = norm_of("layernorm", label="f", eps=exact(inner_norm.eps), bias=True)
        weights |= {"gain_f": array(inner_norm.weight), "bias_f": array(inner_norm.bias)}
    maps["F"] = (GatedFFN if gated else FFN)(
        activation if isinstance(activation, Activation) else name,
        bias=biased,
        inner_norm=hidden_norm,
    )
    for stem, pair in zip(("gate", "up", "down") if gated else "12", pairs, strict=True):
        weights[f"W_{stem}"], weights[f"b_{stem}"] = _with_zeros(pair)
        if not biased:
            del weights[f"b_{stem}"]

    vectors = {k: array(v) for k, v in (vectors or {}).items()}
    text = equation or EQUATIONS[placement]
    return RealBlock(
        system=system,
        module=module,
        call=call,
        placement=placement,
        norm=kind,
        eps=(found[0], found[-1]),
        activation=name,
        gated=gated,
        causal=bool(maps["A"].causal),
        heads=HEADS,
        width=WIDTH,
        tokens=tokens,
        weights={**weights, **vectors},
        expression=parse_block(text, maps, state("x"), vectors=vectors),
        **options,
    )


def _with_zeros(pair: Projection) -> tuple[Array, Array]:
    weight, bias = pair
    return weight, np.zeros(len(weight)) if bias is None else bias


def _attention_weights(layers: Sequence[Any], suffix: str, groups: int) -> dict[str, Array]:
    """Return the weights by head; without any bias in the layers there is none in the result."""
    pairs = [projection(layer) for layer in layers]
    query, key, value, out = (_with_zeros(pair) for pair in pairs)
    found = heads_of(query=query, key=key, value=value, out=out, heads=HEADS, groups=groups)
    biased = any(bias is not None for _, bias in pairs)
    return {k + suffix: v for k, v in found.items() if biased or k.startswith("W")}
