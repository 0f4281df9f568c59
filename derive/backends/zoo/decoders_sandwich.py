"""Decoder layers of transformers with a norm on both sides of each sublayer."""

from __future__ import annotations

from typing import Any

import numpy as np

from derive.backends.activation import activation_name
from derive.backends.extras import load_torch
from derive.backends.real_block import RealBlock
from derive.backends.weights import array, linear
from derive.backends.zoo.common import HEADS, configuration, exact
from derive.backends.zoo.decoders_rms import (
    HEAD,
    Decoder,
    Parts,
    attention_of,
    decoder,
    finished,
    gated_ffn,
    norm_eps,
    norms_of,
    settings,
)
from derive.backends.zoo.registry import register
from derive.blocks.activations import activation
from derive.blocks.norms import L2Norm
from derive.blocks.sublayers import GatedFFN

__all__: list[str] = []

SANDWICH = "h = x + N2(A(N1(x))); h + N4(F(N3(h)))"
SCALED_SANDWICH = "h = x + alpha*N2(A(N1(x))); h + alpha*N4(F(N3(h)))"
UNIT_SPHERE = "u = N1(x); h = u + lam1*(N2(A(u)) - u); c = N3(h); c + lam2*(N4(F(c)) - c)"


def _sandwich(
    system: str,
    made: Decoder,
    names: tuple[str, str, str, str],
    ffn: Parts,
    *,
    activation: str = "silu",
    equation: str = SANDWICH,
    zero_centred: bool = False,
    values: dict[str, float] | None = None,
    note: str = "",
    **attention: Any,
) -> RealBlock:
    """Return the real block; `names` are those of the four norms in order of application."""
    norms = [getattr(made.layer, name) for name in names]
    return finished(
        system,
        made,
        equation,
        norms_of(*norms, zero_centred=zero_centred),
        attention_of(made.layer.self_attn, zero_centred=zero_centred, **attention),
        ffn,
        placement="sandwich",
        norms=(norms[0], norms[2]),
        activation=activation,
        values=values,
        note=note,
    )


_GEMMA = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


@register("gemma2", "transformers Gemma2DecoderLayer", 2)
def gemma2(seed: int) -> RealBlock:
    """Build Gemma 2: gain 1 + w, softcap, a window, tanh-gelu."""
    config = configuration(
        "gemma2",
        "Gemma2Config",
        **settings(
            head_dim=HEAD, attn_logit_softcapping=2.0, query_pre_attn_scalar=HEAD, sliding_window=2
        ),
    )
    made = decoder("gemma2", "Gemma2", config, seed, window=2, zero_centred=True)
    layer = made.layer
    return _sandwich(
        "gemma2",
        made,
        _GEMMA,
        gated_ffn(layer.mlp, layer.mlp.act_fn),
        activation=activation_name(layer.mlp.act_fn),
        zero_centred=True,
        softcap=exact(layer.self_attn.attn_logit_softcapping),
        note="the gain is 1 + the module's weight",
    )


@register("gemma3", "transformers Gemma3DecoderLayer", 2)
def gemma3(seed: int) -> RealBlock:
    """Build Gemma 3: gain 1 + w, query and key normed, a window, tanh-gelu."""
    config = configuration(
        "gemma3",
        "Gemma3TextConfig",
        **settings(head_dim=HEAD, query_pre_attn_scalar=HEAD, sliding_window=2),
    )
    made = decoder(
        "gemma3",
        "Gemma3",
        config,
        seed,
        window=2,
        layer_type=config.layer_types[0],
        zero_centred=True,
    )
    layer = made.layer
    return _sandwich(
        "gemma3",
        made,
        _GEMMA,
        gated_ffn(layer.mlp, layer.mlp.act_fn),
        activation=activation_name(layer.mlp.act_fn),
        zero_centred=True,
        heads_norm=True,
        note="the gain is 1 + the module's weight",
    )


@register("glm4", "transformers Glm4DecoderLayer", 2)
def glm4(seed: int) -> RealBlock:
    """Build GLM-4: half of each head is rotated, in interleaved pairs; biases of query to value."""
    config = configuration(
        "glm4",
        "Glm4Config",
        **settings(head_dim=HEAD, attention_bias=True, pad_token_id=0, eos_token_id=1),
    )
    made = decoder("glm4", "Glm4", config, seed)
    mlp = made.layer.mlp
    gate, up = np.split(linear(mlp.gate_up_proj)[0], 2)
    weights = {"W_gate": gate, "W_up": up, "W_down": linear(mlp.down_proj)[0]}
    return _sandwich(
        "glm4",
        made,
        (
            "input_layernorm",
            "post_self_attn_layernorm",
            "post_attention_layernorm",
            "post_mlp_layernorm",
        ),
        ({"F": GatedFFN(activation_name(mlp.activation_fn), bias=False)}, weights),
    )


@register("hyperclovax", "transformers HyperCLOVAXDecoderLayer", 2)
def hyperclovax(seed: int) -> RealBlock:
    """Build HyperCLOVA X with its norms after the sublayers: branches times 0.22."""
    config = configuration(
        "hyperclovax",
        "HyperCLOVAXConfig",
        **settings(
            head_dim=HEAD, residual_multiplier=0.22, attention_multiplier=0.3, use_post_norm=True
        ),
    )
    made = decoder("hyperclovax", "HyperCLOVAX", config, seed)
    layer = made.layer
    return _sandwich(
        "hyperclovax",
        made,
        ("input_layernorm", "post_norm1", "post_attention_layernorm", "post_norm2"),
        gated_ffn(layer.mlp, layer.mlp.act_fn),
        equation=SCALED_SANDWICH,
        values={"alpha": layer.residual_multiplier},
        note="both branches are multiplied by alpha",
    )


@register("afmoe", "transformers AfmoeDecoderLayer (dense)", 3)
def afmoe(seed: int) -> RealBlock:
    """Build a dense layer of AFMoE: heads gated by a sigmoid, query and key normed, a window."""
    config = configuration(
        "afmoe", "AfmoeConfig", **settings(head_dim=HEAD, num_dense_layers=2, sliding_window=2)
    )
    made = decoder("afmoe", "Afmoe", config, seed, window=2)
    layer = made.layer
    return _sandwich(
        "afmoe",
        made,
        (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_mlp_layernorm",
            "post_mlp_layernorm",
        ),
        gated_ffn(layer.mlp, layer.mlp.act_fn),
        heads_norm=True,
        gate=activation("sigmoid"),
    )


@register("dory", "transformers DoryDecoderLayer", 3)
def dory(seed: int) -> RealBlock:
    """Build Dory, like nGPT on the unit sphere: h = N(x); h + lam (N(F(h)) - h), twice.

    The learned scales of the hidden features and of the gate are in ``W_gate``, ``W_up`` and
    ``W_G``, that of the queries is ``gain_Q``; all of them are drawn from [0.5, 1.5].
    """
    config = configuration(
        "dory",
        "DoryConfig",
        **settings(head_dim=HEAD, sliding_window=2, initializer_range=1.0, ngpt_alpha_init=0.5),
    )
    made = decoder("dory", "Dory", config, seed, window=2, layer_type=config.layer_types[0])
    layer, attention, mlp = made.layer, made.layer.self_attn, made.layer.mlp
    rng = np.random.default_rng([seed, 1])
    torch = load_torch()
    for scale in (
        attention.sqk,
        attention.s_gate,
        mlp.suv_gate,
        mlp.suv_up,
        layer.lambda_1,
        layer.lambda_2,
    ):
        scale.copy_(torch.from_numpy(rng.uniform(0.5, 1.5, tuple(scale.shape))))
    norms = [
        layer.input_layernorm,
        layer.post_attention_layernorm,
        layer.pre_feedforward_layernorm,
        layer.post_feedforward_layernorm,
    ]
    maps, weights = attention_of(
        attention,
        query_norm=L2Norm("q", eps=exact(norm_eps(attention.q_norm))),
        key_norm=L2Norm("k", eps=exact(norm_eps(attention.k_norm))),
        out_norm=L2Norm("o", eps=exact(norm_eps(attention.attn_sub_norm))),
        query_gain=True,
        gate=activation("sigmoid"),
    )
    shape = (HEADS, HEAD)
    weights["gain_Q"] = ((array(attention.sqk) * attention.sqk_scale) ** 2).reshape(shape)
    rate = ((array(attention.s_gate) * attention.s_gate_scale) ** 2).reshape(*shape, 1)
    weights["W_G"] = rate * weights["W_G"]
    for part in ("gate", "up"):
        scales = array(getattr(mlp, f"suv_{part}")) * mlp.suv_scale
        weights[f"W_{part}"] = scales[:, None] * linear(getattr(mlp, f"{part}_proj"))[0]
    weights["W_down"] = linear(mlp.down_proj)[0]
    for k, rates in enumerate((layer.lambda_1, layer.lambda_2), 1):
        weights[f"lam{k}"] = np.abs(array(rates) * layer.lambda_scale)
    inner = L2Norm("y", eps=exact(norm_eps(mlp.ffn_sub_norm)))
    maps["F"] = GatedFFN(activation_name(mlp.act_fn), bias=False, inner_norm=inner)
    for k, norm in enumerate(norms, 1):
        maps[f"N{k}"] = L2Norm(k, eps=exact(norm_eps(norm)))
    return finished(
        "dory",
        made,
        UNIT_SPHERE,
        (maps, weights),
        placement="ngpt",
        norm="l2norm",
        norms=(norms[0], norms[2]),
        vectors=("lam1", "lam2"),
        note="the norm on the sum is that at the entrance of the next sublayer",
    )
