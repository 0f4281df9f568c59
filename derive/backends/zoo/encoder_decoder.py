"""Layers of encoder-decoder models, with cross-attention to a fixed memory where they have it."""

from __future__ import annotations

from typing import Any

import numpy as np

from derive.backends.extras import load_torch
from derive.backends.real_block import RealBlock
from derive.backends.weights import additive_mask, array
from derive.backends.zoo.common import (
    HEAD_WIDTH,
    HEADS,
    HIDDEN,
    TOKENS,
    WIDTH,
    additive,
    assemble,
    configuration,
    first,
    fresh,
    memory,
    modeling,
)
from derive.backends.zoo.registry import register

__all__: list[str] = []

_CAUSAL = np.tri(TOKENS, dtype=bool)
_CROSS = {"post": "decoder-2017", "pre": "decoder-pre"}


def _torch_decoder(system: str, placement: str, seed: int) -> RealBlock:
    torch = load_torch()
    pre = placement == "pre"
    layer = fresh(
        lambda: torch.nn.TransformerDecoderLayer(
            WIDTH,
            HEADS,
            dim_feedforward=HIDDEN,
            dropout=0.0,
            activation="gelu" if pre else "relu",
            batch_first=True,
            norm_first=pre,
        ),
        seed,
    )
    states = memory(seed)
    encoded, mask = torch.from_numpy(states)[None], additive_mask(_CAUSAL)
    return assemble(
        system,
        layer,
        lambda x: layer(x, encoded, tgt_mask=mask),
        _CROSS[placement],
        norms=[layer.norm1, layer.norm2, layer.norm3],
        attention=_stacked(layer.self_attn),
        cross=_stacked(layer.multihead_attn),
        encoder_states=states,
        feed_forward=[layer.linear1, layer.linear2],
        activation=layer.activation,
        scale=HEAD_WIDTH**-0.5,
        mask=_CAUSAL,
    )


def _stacked(attention: Any) -> list[Any]:
    """Return the projections of ``nn.MultiheadAttention``, which stacks three of them."""
    weights = np.split(array(attention.in_proj_weight), 3)
    biases = np.split(array(attention.in_proj_bias), 3)
    return [*zip(weights, biases, strict=True), attention.out_proj]


@register("torch-decoder-post", "torch.nn TransformerDecoderLayer", 1)
def _torch_decoder_post(seed: int) -> RealBlock:
    return _torch_decoder("torch-decoder-post", "post", seed)


@register("torch-decoder-pre", "torch.nn TransformerDecoderLayer, norm_first", 1)
def _torch_decoder_pre(seed: int) -> RealBlock:
    return _torch_decoder("torch-decoder-pre", "pre", seed)


def _t5(system: str, decoder: bool, seed: int) -> RealBlock:
    torch = load_torch()
    config = configuration(
        "t5",
        "T5Config",
        d_model=WIDTH,
        d_kv=HEAD_WIDTH,
        num_heads=HEADS,
        d_ff=HIDDEN,
        num_layers=1,
        vocab_size=8,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu" if decoder else "relu",
        is_decoder=decoder,
    )
    make = modeling("t5").T5Block
    layer = fresh(lambda: make(config, has_relative_attention_bias=True, layer_idx=0), seed)
    own, *others, last = layer.layer
    states = memory(seed)
    passed: dict[str, Any] = {}
    if decoder:
        passed["attention_mask"] = additive(_CAUSAL)
        passed["encoder_hidden_states"] = torch.from_numpy(states)[None]
    ffn = last.DenseReluDense
    with torch.no_grad():
        bias = array(own.SelfAttention.compute_bias(TOKENS, TOKENS))[0]
    return assemble(
        system,
        layer,
        lambda x: first(layer(x, **passed)),
        "decoder-pre" if decoder else "pre",
        kind="rmsnorm",
        norms=[part.layer_norm for part in layer.layer],
        attention=_t5_projections(own.SelfAttention),
        cross=[p for part in others for p in _t5_projections(part.EncDecAttention)],
        encoder_states=states,
        feed_forward=[ffn.wi_0, ffn.wi_1, ffn.wo] if decoder else [ffn.wi, ffn.wo],
        activation=ffn.act,
        scale=getattr(own.SelfAttention, "scaling", 1.0),
        mask=_CAUSAL if decoder else None,
        score_bias=bias,
    )


def _t5_projections(attention: Any) -> list[Any]:
    return [attention.q, attention.k, attention.v, attention.o]


@register("t5-encoder", "transformers T5Block", 2)
def _t5_encoder(seed: int) -> RealBlock:
    return _t5("t5-encoder", False, seed)


@register("t5-decoder", "transformers T5Block, decoder", 2)
def _t5_decoder(seed: int) -> RealBlock:
    return _t5("t5-decoder", True, seed)


def _bart_projections(attention: Any) -> list[Any]:
    return [attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj]


def _bart_like(system: str, layer: Any, placement: str, seed: int) -> RealBlock:
    """Read a layer that names its parts as BART does."""
    torch = load_torch()
    decoder = hasattr(layer, "encoder_attn")
    states = memory(seed)
    passed: dict[str, Any] = {"attention_mask": additive(_CAUSAL) if decoder else None}
    if decoder:
        passed["encoder_hidden_states"] = torch.from_numpy(states)[None]
    cross_norm = [layer.encoder_attn_layer_norm] if decoder else []
    return assemble(
        system,
        layer,
        lambda x: first(layer(x, **passed)),
        _CROSS[placement] if decoder else placement,
        norms=[layer.self_attn_layer_norm, *cross_norm, layer.final_layer_norm],
        attention=_bart_projections(layer.self_attn),
        cross=_bart_projections(layer.encoder_attn) if decoder else [],
        encoder_states=states,
        feed_forward=[layer.fc1, layer.fc2],
        activation=layer.activation_fn,
        scale=layer.self_attn.scaling,
        mask=_CAUSAL if decoder else None,
    )


def _bart_family(system: str, prefix: str, part: str, placement: str, seed: int) -> RealBlock:
    model = prefix.lower()
    config = configuration(
        model,
        f"{prefix}Config",
        d_model=WIDTH,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=HIDDEN,
        decoder_ffn_dim=HIDDEN,
        encoder_layers=1,
        decoder_layers=1,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
    )
    make = getattr(modeling(model), f"{prefix}{part}Layer")
    number = {"layer_idx": 0} if part == "Decoder" else {}
    return _bart_like(system, fresh(lambda: make(config, **number), seed), placement, seed)


@register("bart-encoder", "transformers BartEncoderLayer", 1)
def _bart_encoder(seed: int) -> RealBlock:
    return _bart_family("bart-encoder", "Bart", "Encoder", "post", seed)


@register("bart-decoder", "transformers BartDecoderLayer", 2)
def _bart_decoder(seed: int) -> RealBlock:
    return _bart_family("bart-decoder", "Bart", "Decoder", "post", seed)


@register("marian", "transformers MarianEncoderLayer", 1)
def _marian(seed: int) -> RealBlock:
    return _bart_family("marian", "Marian", "Encoder", "post", seed)


@register("marian-decoder", "transformers MarianDecoderLayer", 2)
def _marian_decoder(seed: int) -> RealBlock:
    return _bart_family("marian-decoder", "Marian", "Decoder", "post", seed)


@register("mbart", "transformers MBartEncoderLayer", 1)
def _mbart(seed: int) -> RealBlock:
    return _bart_family("mbart", "MBart", "Encoder", "pre", seed)


@register("mbart-decoder", "transformers MBartDecoderLayer", 2)
def _mbart_decoder(seed: int) -> RealBlock:
    return _bart_family("mbart-decoder", "MBart", "Decoder", "pre", seed)


@register("pegasus", "transformers PegasusEncoderLayer", 1)
def _pegasus(seed: int) -> RealBlock:
    return _bart_family("pegasus", "Pegasus", "Encoder", "pre", seed)


@register("pegasus-decoder", "transformers PegasusDecoderLayer", 2)
def _pegasus_decoder(seed: int) -> RealBlock:
    return _bart_family("pegasus-decoder", "Pegasus", "Decoder", "pre", seed)


@register("musicgen", "transformers MusicgenDecoderLayer", 2)
def _musicgen(seed: int) -> RealBlock:
    config = configuration(
        "musicgen",
        "MusicgenDecoderConfig",
        hidden_size=WIDTH,
        ffn_dim=HIDDEN,
        num_attention_heads=HEADS,
        num_hidden_layers=1,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
    )
    layer = fresh(lambda: modeling("musicgen").MusicgenDecoderLayer(config, layer_idx=0), seed)
    return _bart_like("musicgen", layer, "pre", seed)
