"""Blocks of timm and of torchscale: the one published code of DeepNorm and of Sub-LN."""

from __future__ import annotations

from typing import Any

import numpy as np

from derive.backends.real_block import RealBlock
from derive.backends.weights import array
from derive.backends.zoo.common import (
    HEADS,
    HIDDEN,
    WIDTH,
    assemble,
    exact,
    first,
    fresh,
    projection,
    split_rows,
)
from derive.backends.zoo.registry import register
from derive.backends.zoo.stand_ins import import_beside_torch
from derive.blocks.norms import LayerNorm

__all__: list[str] = []

DEPTH = 6
"""Layers of the encoder that DeepNorm's alpha is for."""


def _torchscale(system: str, placement: str, seed: int, **flags: Any) -> RealBlock:
    settings = import_beside_torch("torchscale.architecture.config").EncoderConfig(
        encoder_embed_dim=WIDTH,
        encoder_attention_heads=HEADS,
        encoder_ffn_embed_dim=HIDDEN,
        encoder_layers=DEPTH,
        vocab_size=8,
        **flags,
    )
    make = import_beside_torch("torchscale.architecture.encoder").EncoderLayer
    layer = fresh(lambda: make(settings, 0), seed)
    attention = layer.self_attn
    options: dict[str, Any] = {}
    further: dict[str, Any] = {}
    if attention.inner_attn_ln is not None:
        norm = attention.inner_attn_ln
        options["out_norm"] = LayerNorm("o", eps=exact(norm.eps))
        for stem, values in (("gain", norm.weight), ("bias", norm.bias)):
            further[f"{stem}_o"] = array(values).reshape(HEADS, -1)
    if placement == "deepnorm":
        further["alpha"] = np.array(float(layer.alpha))
    return assemble(
        system,
        layer,
        lambda x: first(layer(x, encoder_padding_mask=None)),
        placement,
        norms=[layer.self_attn_layer_norm, layer.final_layer_norm],
        attention=[attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj],
        feed_forward=[layer.ffn.fc1, layer.ffn.fc2],
        activation=layer.ffn.activation_fn,
        scale=attention.scaling,
        attention_options=options,
        inner_norm=layer.ffn.ffn_layernorm,
        further_weights=further,
    )


@register("torchscale-deepnorm", "torchscale EncoderLayer, deepnorm", 1)
def _deepnorm(seed: int) -> RealBlock:
    return _torchscale("torchscale-deepnorm", "deepnorm", seed, deepnorm=True)


@register("torchscale-sub-ln", "torchscale EncoderLayer, subln", 3)
def _sub_ln(seed: int) -> RealBlock:
    return _torchscale("torchscale-sub-ln", "sub-ln", seed, subln=True)


@register("torchscale-pre", "torchscale EncoderLayer, encoder_normalize_before", 1)
def _pre(seed: int) -> RealBlock:
    flags = {"subln": False, "encoder_normalize_before": True}
    return _torchscale("torchscale-pre", "pre", seed, **flags)


def _timm(name: str, seed: int, **settings: Any) -> Any:
    make = getattr(import_beside_torch("timm.models.vision_transformer"), name)
    settings = {"qkv_bias": True, "mlp_ratio": HIDDEN / WIDTH, **settings}
    return fresh(lambda: make(WIDTH, HEADS, **settings), seed)


def _timm_block(
    system: str, name: str, placement: str, seed: int, settings: Any = (), **options: Any
) -> RealBlock:
    layer = _timm(name, seed, **dict(settings))
    vectors = {
        f"lam{k}": getattr(layer, f"ls{k}").gamma
        for k in (1, 2)
        if hasattr(getattr(layer, f"ls{k}", None), "gamma")
    }
    return assemble(
        system,
        layer,
        layer,
        placement,
        norms=[layer.norm1, layer.norm2],
        attention=[*split_rows(layer.attn.qkv, np.arange(3 * WIDTH)), layer.attn.proj],
        feed_forward=[layer.mlp.fc1, layer.mlp.fc2],
        activation=layer.mlp.act,
        scale=layer.attn.scale,
        vectors=vectors,
        **options,
    )


@register("timm-block", "timm Block of vision_transformer", 2)
def _block(seed: int) -> RealBlock:
    return _timm_block("timm-block", "Block", "pre", seed)


@register("timm-layerscale", "timm Block of vision_transformer, init_values", 2)
def _layerscale(seed: int) -> RealBlock:
    return _timm_block("timm-layerscale", "Block", "layerscale", seed, {"init_values": 0.1})


@register("timm-res-post", "timm ResPostBlock", 2)
def _res_post(seed: int) -> RealBlock:
    return _timm_block("timm-res-post", "ResPostBlock", "res-post", seed)


@register("timm-parallel", "timm ParallelScalingBlock", 2)
def _parallel(seed: int) -> RealBlock:
    layer = _timm("ParallelScalingBlock", seed, qkv_bias=False)
    weight, _ = projection(layer.in_proj)
    hidden, *rest = np.split(weight, np.cumsum(layer.in_split)[:-1])
    return assemble(
        "timm-parallel",
        layer,
        layer,
        "parallel",
        norms=[layer.in_norm],
        attention=[*((w, None) for w in rest), layer.attn_out_proj],
        feed_forward=[(hidden, array(layer.mlp_bias)), layer.mlp_out_proj],
        activation=layer.mlp_act,
        scale=layer.scale,
    )
