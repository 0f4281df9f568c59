"""Decoder layers of transformers with latent attention or a mixture of experts.

The Jacobian of a mixture of experts is that of the routing cell of the state: which experts a token
goes to does not change in the neighbourhood.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from derive import symbols
from derive.backends.activation import activation_name
from derive.backends.extras import load_torch
from derive.backends.real_block import RealBlock
from derive.backends.weights import array, linear
from derive.backends.zoo.common import HEADS, TOKENS, WIDTH, configuration, exact
from derive.backends.zoo.decoders_rms import (
    HEAD,
    PRE,
    SCALED,
    Decoder,
    Parts,
    Weights,
    attention_of,
    decoder,
    finished,
    gain_of,
    gated_ffn,
    norm_eps,
    norms_of,
    settings,
)
from derive.backends.zoo.registry import register
from derive.blocks.activations import clamped_shift, clamped_swish
from derive.blocks.mla import LatentAttention
from derive.blocks.moe import MoE
from derive.blocks.norms import RMSNorm

__all__: list[str] = []

EXPERTS, SELECTED, INTERMEDIATE = 6, 2, 8
"""Experts of a layer, how many of them a token goes to, and their hidden width."""

EXPERTS_PRE = "h = x + A(N1(x)); h + M(N2(h))"
NORMED_RESIDUAL = (
    "c = N1(x); h = attn_alpha*c + attn_beta*A(c); u = N2(h); mlp_alpha*u + mlp_beta*M(u)"
)
SHARED_EXPERT = "h = x + A(N1(x)); c = N2(h); h + route_scale*M(c) + F(c)"

ROUTING_NOTE = "one-sided at a tie of two experts: which of them a token goes to jumps there"


def _latent_attention(attention: Any) -> Parts:
    """Return the map ``A`` of a latent attention and its weights.

    The rotary features come last in a query and a key, as in the module; the rotation is widened by
    the identity on the others.
    """
    plain, turned = attention.qk_nope_head_dim, attention.qk_rope_head_dim
    rank, width = attention.kv_lora_rank, plain + turned
    query = linear(attention.q_b_proj)[0].reshape(HEADS, width, -1)
    expand = linear(attention.kv_b_proj)[0].reshape(HEADS, -1, rank)
    down, down_bias = linear(attention.kv_a_proj_with_mqa)
    latent_q, latent_q_bias = linear(attention.q_a_proj)
    out, out_bias = linear(attention.o_proj)
    zeros = np.zeros((HEADS, turned, rank))
    weights: Weights = {
        "W_DQ": latent_q,
        "b_DQ": latent_q_bias,
        "W_Q": query,
        "W_DK": down[:rank],
        "b_DK": down_bias[:rank],
        "W_K": np.concatenate([expand[:, :plain], zeros], axis=1),
        "W_KR": np.concatenate([np.zeros((plain, WIDTH)), down[rank:]]),
        "b_KR": np.concatenate([np.zeros(plain), down_bias[rank:]]),
        "W_V": expand[:, plain:],
        "W_O": out.reshape(WIDTH, HEADS, -1).transpose(1, 0, 2),
        "b_O": out_bias,
        "gain_q": gain_of(attention.q_a_layernorm),
        "gain_k": gain_of(attention.kv_a_layernorm),
        "scale": np.array(float(attention.scaling)),
    }
    found = LatentAttention(
        bias=True,
        masked=True,
        scale=symbols.scale,
        query_norm=RMSNorm("q", eps=exact(norm_eps(attention.q_a_layernorm))),
        key_norm=RMSNorm("k", eps=exact(norm_eps(attention.kv_a_layernorm))),
    )
    return {"A": found}, weights


def _widened(made: Decoder, plain: int) -> Decoder:
    """Return the decoder with its rotation preceded by the identity on `plain` features."""
    rotation = made.weights["R"]
    size = plain + rotation.shape[-1]
    wide = np.tile(np.eye(size), (TOKENS, 1, 1))
    wide[:, plain:, plain:] = rotation
    return dataclasses.replace(made, weights={**made.weights, "R": wide})


_LATENT: dict[str, Any] = {
    "num_key_value_heads": HEADS,
    "q_lora_rank": 10,
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 2,
    "qk_rope_head_dim": 4,
    "v_head_dim": 3,
    "attention_bias": True,
}


def _deepseek(seed: int, index: int) -> Decoder:
    config = configuration(
        "deepseek_v3",
        "DeepseekV3Config",
        **settings(
            **_LATENT,
            moe_intermediate_size=INTERMEDIATE,
            n_routed_experts=EXPERTS,
            num_experts_per_tok=SELECTED,
            n_shared_experts=1,
            n_group=1,
            topk_group=1,
            first_k_dense_replace=1,
            rope_interleave=True,
        ),
    )
    config._experts_implementation = "eager"
    made = decoder(
        "deepseek_v3",
        "DeepseekV3",
        config,
        seed,
        index=index,
        rotary_width=_LATENT["qk_rope_head_dim"],
        rotate="apply_rotary_pos_emb_interleave",
    )
    return _widened(made, _LATENT["qk_nope_head_dim"])


@register("deepseek-v3", "transformers DeepseekV3DecoderLayer (dense)", 3)
def deepseek_v3(seed: int) -> RealBlock:
    """Build a dense layer of DeepSeek-V3: latent attention with an interleaved rotation."""
    made = _deepseek(seed, 0)
    layer = made.layer
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    return finished(
        "deepseek-v3",
        made,
        PRE,
        norms_of(*norms),
        _latent_attention(layer.self_attn),
        gated_ffn(layer.mlp, layer.mlp.act_fn),
        placement="pre",
        norms=norms,
    )


@register("minicpm3", "transformers MiniCPM3DecoderLayer", 3)
def minicpm3(seed: int) -> RealBlock:
    """Build MiniCPM3: latent attention, branches times a constant of the depth."""
    config = configuration("minicpm3", "MiniCPM3Config", **settings(**_LATENT))
    made = decoder("minicpm3", "MiniCPM3", config, seed, rotary_width=_LATENT["qk_rope_head_dim"])
    made = _widened(made, _LATENT["qk_nope_head_dim"])
    layer = made.layer
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    return finished(
        "minicpm3",
        made,
        SCALED,
        norms_of(*norms),
        _latent_attention(layer.self_attn),
        gated_ffn(layer.mlp, layer.mlp.act_fn),
        placement="scaled-residual",
        norms=norms,
        values={"alpha": layer.residual_scale},
    )


def _experts(moe: Any, **options: Any) -> Parts:
    """Return the map ``M`` of experts that store gate and up in one tensor (X, 2 f, d)."""
    experts = moe.experts
    gate, up = np.split(array(experts.gate_up_proj), 2, axis=1)
    weights: Weights = {
        "W_R": array(moe.gate.weight),
        "W_gate": gate,
        "W_up": up,
        "W_down": array(experts.down_proj),
    }
    return {"M": MoE(SELECTED, activation_name(experts.act_fn), **options)}, weights


@register("mixtral", "transformers MixtralDecoderLayer", 3)
def mixtral(seed: int) -> RealBlock:
    """Build Mixtral: two of six experts a token, weights renormalised over the two."""
    config = configuration(
        "mixtral",
        "MixtralConfig",
        **settings(num_local_experts=EXPERTS, num_experts_per_tok=SELECTED),
    )
    config._experts_implementation = "eager"
    made = decoder("mixtral", "Mixtral", config, seed)
    layer = made.layer
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    return finished(
        "mixtral",
        made,
        EXPERTS_PRE,
        norms_of(*norms),
        attention_of(layer.self_attn),
        _experts(layer.mlp),
        placement="pre",
        norms=norms,
        note=ROUTING_NOTE,
    )


@register("deepseek-v3-moe", "transformers DeepseekV3DecoderLayer (mixture of experts)", 3)
def deepseek_v3_moe(seed: int) -> RealBlock:
    """Build a mixture layer of DeepSeek-V3: sigmoid router, one shared expert."""
    made = _deepseek(seed, 1)
    layer = made.layer
    moe = layer.mlp
    rng = np.random.default_rng([seed, 1])
    torch = load_torch()
    # The correction only changes which experts are selected.
    moe.gate.e_score_correction_bias.copy_(torch.from_numpy(0.1 * rng.standard_normal(EXPERTS)))
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    maps, weights = _experts(moe, router="sigmoid", correction=True)
    weights["b_C"] = array(moe.gate.e_score_correction_bias)
    return finished(
        "deepseek-v3-moe",
        made,
        SHARED_EXPERT,
        norms_of(*norms),
        _latent_attention(layer.self_attn),
        (maps, weights),
        gated_ffn(moe.shared_experts, moe.shared_experts.act_fn, label="S"),
        placement="pre",
        norms=norms,
        values={"route_scale": moe.gate.routed_scaling_factor},
        note=ROUTING_NOTE,
    )


@register("gpt-oss", "transformers GptOssDecoderLayer", 3)
def gpt_oss(seed: int) -> RealBlock:
    """Build gpt-oss: sinks, a window, experts with biases and a clamped gate."""
    config = configuration(
        "gpt_oss",
        "GptOssConfig",
        **settings(
            head_dim=HEAD,
            num_local_experts=EXPERTS,
            num_experts_per_tok=SELECTED,
            sliding_window=2,
            swiglu_limit=0.5,
            max_position_embeddings=131072,
        ),
    )
    config._experts_implementation = "eager"
    made = decoder("gpt_oss", "GptOss", config, seed, window=2)
    layer = made.layer
    attention, router, experts = layer.self_attn, layer.mlp.router, layer.mlp.experts
    maps, weights = attention_of(attention, sinks=True)
    weights["sinks"] = array(attention.sinks)
    stacked = array(experts.gate_up_proj).transpose(0, 2, 1)
    bias = array(experts.gate_up_proj_bias)
    weights |= {
        "W_R": array(router.weight),
        "b_R": array(router.bias),
        "W_gate": stacked[:, ::2],
        "b_gate": bias[:, ::2],
        "W_up": stacked[:, 1::2],
        "b_up": bias[:, 1::2],
        "W_down": array(experts.down_proj).transpose(0, 2, 1),
        "b_down": array(experts.down_proj_bias),
    }
    maps["M"] = MoE(
        SELECTED,
        clamped_swish(experts.alpha, experts.limit),
        bias=True,
        up_activation=clamped_shift(experts.limit),
    )
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    return finished(
        "gpt-oss",
        made,
        EXPERTS_PRE,
        norms_of(*norms),
        (maps, weights),
        placement="pre",
        norms=norms,
        activation="clamped_swish",
        note=ROUTING_NOTE,
    )


@register("minimax", "transformers MiniMaxDecoderLayer (full attention)", 3)
def minimax(seed: int) -> RealBlock:
    """Build a full-attention layer of MiniMax: the residual is the normed stream, scaled."""
    config = configuration(
        "minimax",
        "MiniMaxConfig",
        **settings(
            head_dim=HEAD,
            num_local_experts=EXPERTS,
            num_experts_per_tok=SELECTED,
            layer_types=["linear_attention", "full_attention"],
            full_attn_alpha_factor=1.7,
            full_attn_beta_factor=0.8,
            mlp_alpha_factor=1.3,
            mlp_beta_factor=0.9,
            block_size=4,
        ),
    )
    config._experts_implementation = "eager"
    made = decoder("minimax", "MiniMax", config, seed, index=1)
    layer = made.layer
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    return finished(
        "minimax",
        made,
        NORMED_RESIDUAL,
        norms_of(*norms),
        attention_of(layer.self_attn),
        _experts(layer.mlp),
        placement="scaled-normed-residual",
        norms=norms,
        values={
            "attn_alpha": layer.attn_alpha_factor,
            "attn_beta": layer.attn_beta_factor,
            "mlp_alpha": layer.mlp_alpha_factor,
            "mlp_beta": layer.mlp_beta_factor,
        },
        note=ROUTING_NOTE,
    )
