"""Decoder layers of transformers with RMSNorm, before or after the sublayers, and rotary positions.

The tables of cosines and sines come from the model's own rotary module at positions 0..n-1, in
float32 as in the model, widened to float64; ``R[i]`` is the module's own rotation applied to the
columns of the identity.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from derive import symbols
from derive.backends.activation import activation_name
from derive.backends.extras import load_torch
from derive.backends.real_block import RealBlock
from derive.backends.weights import array, causal_mask, heads_of, linear
from derive.backends.zoo.common import (
    HEADS,
    HIDDEN,
    TOKENS,
    WIDTH,
    additive,
    configuration,
    exact,
    first,
    fresh,
    modeling,
    rotations,
)
from derive.backends.zoo.registry import register
from derive.blocks.activations import activation, xielu
from derive.blocks.attention import Attention
from derive.blocks.build import state
from derive.blocks.norms import RMSNorm
from derive.blocks.parse import parse_block
from derive.blocks.sublayers import FFN, GatedFFN
from derive.calculus.maps import Map

__all__ = [
    "GROUPS",
    "HEAD",
    "PRE",
    "Decoder",
    "Parts",
    "Weights",
    "attention_of",
    "decoder",
    "finished",
    "gain_of",
    "gated_ffn",
    "linears",
    "norm_eps",
    "norms_of",
    "settings",
]

GROUPS, HEAD = 2, WIDTH // HEADS
"""Query heads that share a key and value head, and the width of a head."""

PRE = "h = x + A(N1(x)); h + F(N2(h))"
RES_POST = "h = x + N1(A(x)); h + N2(F(h))"
SCALED = "h = x + alpha*A(N1(x)); h + alpha*F(N2(h))"

Weights: TypeAlias = dict[str, npt.NDArray[Any]]
Parts: TypeAlias = tuple[dict[str, Map], Weights]


@dataclass(frozen=True)
class Decoder:
    """A decoder layer with random weights.

    Attributes
    ----------
    layer : torch.nn.Module
        The layer.
    call : callable
        The layer with mask, positions and rotary tables filled in.
    weights : dict of str to ndarray
        ``mask`` and ``R``.
    """

    layer: Any
    call: Callable[[Any], Any]
    weights: Weights


def settings(**more: Any) -> dict[str, Any]:
    """Return what every configuration here has in common, and more; None drops a setting."""
    common = {
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // GROUPS,
        "vocab_size": 32,
        "max_position_embeddings": 64,
        "attention_dropout": 0.0,
        **more,
    }
    return {name: value for name, value in common.items() if value is not None}


def decoder(
    model: str,
    name: str,
    config: Any,
    seed: int,
    *,
    index: int = 0,
    rotary_width: int = HEAD,
    rotate: str = "apply_rotary_pos_emb",
    window: int | None = None,
    layer_type: str | None = None,
    zero_centred: bool = False,
) -> Decoder:
    """Return a decoder layer of transformers with random weights.

    Parameters
    ----------
    model, name : str
        Module and class name without ``DecoderLayer``, for example ``"gemma2", "Gemma2"``.
    config : transformers configuration
        Its configuration.
    seed : int
        Seed of the weights.
    index : int
        Which layer of the model.
    rotary_width : int
        Features of a query that the rotation takes.
    rotate : str
        Name of the model's function that rotates query and key.
    window : int, optional
        How many tokens, itself included, a query sees: a sliding window.
    layer_type : str, optional
        For a rotary module that has one table a type of layer.
    zero_centred : bool
        Whether the norms multiply by 1 + weight.
    """
    torch = load_torch()
    module = modeling(model)
    made = getattr(module, f"{name}DecoderLayer")
    layer = fresh(lambda: made(config, index), seed, zero_centred=zero_centred)
    positions = torch.arange(TOKENS)[None]
    rotary = getattr(module, f"{name}RotaryEmbedding")(config)
    kind = () if layer_type is None else (layer_type,)
    tables = tuple(t.double() for t in rotary(torch.zeros(1), positions, *kind))
    rotation = getattr(module, rotate)
    mask = causal_mask(TOKENS)
    if window is not None:
        mask = mask & ~np.tri(TOKENS, k=-window, dtype=np.bool_)
    bias = additive(mask)

    def call(x: Any) -> Any:
        return first(
            layer(x, attention_mask=bias, position_ids=positions, position_embeddings=tables)
        )

    turned = rotations(lambda basis: rotation(basis, basis, *tables)[0], rotary_width)
    return Decoder(layer, call, {"mask": mask, "R": turned})


def norm_eps(norm: Any) -> float:
    """Return eps of an RMSNorm of transformers."""
    return float(norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps)


def gain_of(norm: Any, *, zero_centred: bool = False) -> npt.NDArray[np.float64]:
    """Return what a norm multiplies by."""
    return array(norm.weight) + (1.0 if zero_centred else 0.0)


def norms_of(*norms: Any, zero_centred: bool = False) -> Parts:
    """Return the maps ``N1``, ``N2``, ... of norms and their gains ``gain_1``, ``gain_2``, ..."""
    maps: dict[str, Map] = {}
    weights: Weights = {}
    for k, norm in enumerate(norms, 1):
        learned = hasattr(norm, "weight")
        maps[f"N{k}"] = RMSNorm(k, eps=exact(norm_eps(norm)), gain=learned)
        if learned:
            weights[f"gain_{k}"] = gain_of(norm, zero_centred=zero_centred)
    return maps, weights


def attention_of(
    attention: Any,
    *,
    heads_norm: bool = False,
    full_norm: bool = False,
    zero_centred: bool = False,
    groups: int = GROUPS,
    **options: Any,
) -> Parts:
    """Return the map ``A`` of an attention and its weights.

    Parameters
    ----------
    attention : torch.nn.Module
        With ``q_proj``, ``k_proj``, ``v_proj``, ``o_proj`` and ``scaling``.
    heads_norm : bool
        Whether each head's query and key are normed by ``q_norm`` and ``k_norm``.
    full_norm : bool
        Whether these two norms are over all heads together.
    zero_centred : bool
        Whether these norms multiply by 1 + weight.
    groups : int
        Query heads that share a key and value head.
    **options
        Passed to the map.
    """
    projections = [getattr(attention, f"{letter}_proj") for letter in "qkvo"]
    bias = any(p.bias is not None for p in projections)
    query, key, value, out = (linear(p) for p in projections)
    split = heads_of(query=query, key=key, value=value, out=out, heads=HEADS, groups=groups)
    weights: Weights = {k: v for k, v in split.items() if bias or k.startswith("W")}
    weights["scale"] = np.array(float(attention.scaling))
    for letter, side in (("q", "query"), ("k", "key")) if heads_norm or full_norm else ():
        norm = getattr(attention, f"{letter}_norm")
        learned = hasattr(norm, "weight")
        options[f"{side}_norm"] = RMSNorm(letter, eps=exact(norm_eps(norm)), gain=learned)
        if learned:
            gain = gain_of(norm, zero_centred=zero_centred)
            if full_norm:
                shared = 1 if letter == "q" else groups
                gain = np.repeat(gain.reshape(HEADS // shared, HEAD), shared, axis=0)
            weights[f"gain_{letter}"] = gain
    if "gate" in options:
        gate = attention.gate_proj
        weights["W_G"] = array(gate.weight).reshape(HEADS, HEAD, WIDTH)
        if bias:
            shift = np.zeros(WIDTH) if gate.bias is None else array(gate.bias)
            weights["b_G"] = shift.reshape(HEADS, HEAD)
    found = Attention(
        rotary=True,
        bias=bias,
        masked=True,
        scale=symbols.scale,
        full_norm=full_norm,
        **options,
    )
    return {"A": found}, weights


def linears(bias: bool, **layers: Any) -> Weights:
    """Return ``W_<name>`` (and ``b_<name>``) of linear layers, ``W_1`` of one called ``_1``."""
    weights: Weights = {}
    for name, layer in layers.items():
        matrix, shift = linear(layer)
        weights[f"W_{name.lstrip('_')}"] = matrix
        if bias:
            weights[f"b_{name.lstrip('_')}"] = shift
    return weights


def gated_ffn(mlp: Any, phi: Any, *, name: str = "F", label: str = "") -> Parts:
    """Return the map of a gated FFN whose activation module is `phi`, and its weights."""
    bias = mlp.down_proj.bias is not None
    suffix = f"_{label}" if label else ""
    layers = {f"{part}{suffix}": getattr(mlp, f"{part}_proj") for part in ("gate", "up", "down")}
    ffn = GatedFFN(activation_name(phi), bias=bias, label=label)
    return {name: ffn}, linears(bias, **layers)


def finished(
    system: str,
    made: Decoder,
    equation: str,
    *parts: Parts,
    placement: str,
    norms: tuple[Any, Any],
    activation: str = "silu",
    gated: bool = True,
    norm: str = "rmsnorm",
    values: Mapping[str, float] | None = None,
    vectors: Iterable[str] = (),
    note: str = "",
) -> RealBlock:
    """Return the real block of a decoder from its equation and its parts.

    Parameters
    ----------
    system : str
        Its name.
    made : Decoder
        The layer.
    equation : str
        The layer's equation.
    *parts
        Maps and weights.
    placement, activation, gated, norm
        As in `RealBlock`.
    norms : tuple of two modules
        The norms of the attention and the FFN side whose eps is reported.
    values : mapping, optional
        Values of the scalars in the equation.
    vectors : iterable of str
        Names of the constant vectors in the equation.
    note : str
        As in `RealBlock`.
    """
    maps: dict[str, Map] = {}
    weights: Weights = dict(made.weights)
    for more_maps, more_weights in parts:
        maps |= more_maps
        weights |= more_weights
    scalars = {name: np.array(float(value)) for name, value in (values or {}).items()}
    named = [s for s in scalars if s not in ("alpha", "beta")]
    return RealBlock(
        system=system,
        module=made.layer,
        call=made.call,
        placement=placement,
        norm=norm,
        eps=(norm_eps(norms[0]), norm_eps(norms[1])),
        activation=activation,
        gated=gated,
        causal=True,
        heads=HEADS,
        width=WIDTH,
        tokens=TOKENS,
        weights={**weights, **scalars},
        expression=parse_block(equation, maps, state("x"), vectors=vectors, scalars=named),
        note=note,
    )


def _pre(
    system: str,
    made: Decoder,
    *,
    equation: str = PRE,
    placement: str = "pre",
    values: Mapping[str, float] | None = None,
    note: str = "",
    **attention: Any,
) -> RealBlock:
    """Return the real block of a layer with the part names of Llama."""
    layer = made.layer
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    return finished(
        system,
        made,
        equation,
        norms_of(*norms),
        attention_of(layer.self_attn, **attention),
        gated_ffn(layer.mlp, layer.mlp.act_fn),
        placement=placement,
        norms=norms,
        values=values,
        note=note,
    )


@register("mistral", "transformers MistralDecoderLayer", 1)
def mistral(seed: int) -> RealBlock:
    """Build Mistral: Llama with a sliding window, which the mask carries."""
    config = configuration("mistral", "MistralConfig", **settings(sliding_window=2))
    return _pre("mistral", decoder("mistral", "Mistral", config, seed, window=2))


@register("qwen2", "transformers Qwen2DecoderLayer", 1)
def qwen2(seed: int) -> RealBlock:
    """Build Qwen2: Llama with biases of query, key and value."""
    config = configuration("qwen2", "Qwen2Config", **settings())
    return _pre("qwen2", decoder("qwen2", "Qwen2", config, seed))


@register("qwen3", "transformers Qwen3DecoderLayer", 2)
def qwen3(seed: int) -> RealBlock:
    """Build Qwen3: each head's query and key are normed before the rotation."""
    config = configuration("qwen3", "Qwen3Config", **settings(head_dim=HEAD))
    return _pre("qwen3", decoder("qwen3", "Qwen3", config, seed), heads_norm=True)


@register("granite", "transformers GraniteDecoderLayer", 1)
def granite(seed: int) -> RealBlock:
    """Build Granite: branches times 0.22, scores times a multiplier of their own."""
    config = configuration(
        "granite",
        "GraniteConfig",
        **settings(residual_multiplier=0.22, attention_multiplier=0.3),
    )
    made = decoder("granite", "Granite", config, seed)
    multiplier = made.layer.residual_multiplier
    return _pre(
        "granite",
        made,
        equation=SCALED,
        placement="scaled-residual",
        values={"alpha": multiplier},
    )


@register("hrm", "transformers HrmTextDecoderLayer", 1)
def hrm(seed: int) -> RealBlock:
    """Build the layer of HRM: norms without gain, heads gated by a sigmoid."""
    config = configuration(
        "hrm_text", "HrmTextConfig", **settings(head_dim=HEAD, attention_bias=True, mlp_bias=True)
    )
    made = decoder("hrm_text", "HrmText", config, seed)
    return _pre("hrm", made, groups=1, gate=activation("sigmoid"))


@register("nanochat", "transformers NanoChatDecoderLayer", 1)
def nanochat(seed: int) -> RealBlock:
    """Build nanochat: norms without gain, squared relu, query and key normed after the rotation."""
    config = configuration("nanochat", "NanoChatConfig", **settings(head_dim=HEAD))
    made = decoder("nanochat", "NanoChat", config, seed)
    layer = made.layer
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    return finished(
        "nanochat",
        made,
        PRE,
        norms_of(*norms),
        attention_of(layer.self_attn, heads_norm=True, norm_last=True),
        ({"F": FFN("relu2", bias=False)}, linears(False, _1=layer.mlp.fc1, _2=layer.mlp.fc2)),
        placement="pre",
        norms=norms,
        activation="relu2",
        gated=False,
    )


@register("apertus", "transformers ApertusDecoderLayer", 1)
def apertus(seed: int) -> RealBlock:
    """Build Apertus: xIELU with parameters of its own, query and key normed."""
    config = configuration(
        "apertus",
        "ApertusConfig",
        **settings(head_dim=HEAD, max_position_embeddings=65536, eos_token_id=1),
    )
    logger = logging.getLogger("transformers.activations")
    level = logger.level
    logger.setLevel(logging.ERROR)  # that the CUDA version of xIELU is missing is of no concern
    try:
        made = decoder("apertus", "Apertus", config, seed)
    finally:
        logger.setLevel(level)
    layer = made.layer
    norms = (layer.attention_layernorm, layer.feedforward_layernorm)
    phi = layer.mlp.act_fn
    softplus = load_torch().nn.functional.softplus
    beta = float(phi.beta)
    rates = float(softplus(phi.alpha_p)), beta + float(softplus(phi.alpha_n))
    ffn = FFN(xielu(*rates, beta, float(phi.eps)), bias=False)
    return finished(
        "apertus",
        made,
        PRE,
        norms_of(*norms),
        attention_of(layer.self_attn, heads_norm=True),
        ({"F": ffn}, linears(False, _1=layer.mlp.up_proj, _2=layer.mlp.down_proj)),
        placement="pre",
        norms=norms,
        activation="xielu",
        gated=False,
    )


def _res_post(system: str, made: Decoder, **attention: Any) -> RealBlock:
    layer = made.layer
    norms = (layer.post_attention_layernorm, layer.post_feedforward_layernorm)
    return finished(
        system,
        made,
        RES_POST,
        norms_of(*norms),
        attention_of(layer.self_attn, **attention),
        gated_ffn(layer.mlp, layer.mlp.act_fn),
        placement="res-post",
        norms=norms,
    )


@register("olmo2", "transformers Olmo2DecoderLayer", 2)
def olmo2(seed: int) -> RealBlock:
    """Build OLMo 2: norms after the sublayers, query and key normed over all heads together."""
    config = configuration("olmo2", "Olmo2Config", **settings(eos_token_id=1))
    return _res_post("olmo2", decoder("olmo2", "Olmo2", config, seed), full_norm=True)


@register("exaone4", "transformers Exaone4DecoderLayer", 2)
def exaone4(seed: int) -> RealBlock:
    """Build EXAONE 4: norms after the sublayers, each head's query and key normed, a window."""
    config = configuration("exaone4", "Exaone4Config", **settings(head_dim=HEAD, sliding_window=2))
    made = decoder("exaone4", "Exaone4", config, seed, window=2)
    return _res_post("exaone4", made, heads_norm=True)
