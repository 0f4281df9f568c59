"""Decoder layers with LayerNorm: sequential, parallel, and with a normed residual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

from derive.backends.extras import load_torch
from derive.backends.real_block import RealBlock
from derive.backends.weights import array
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
    modeling,
    rotations,
    split_rows,
)
from derive.backends.zoo.registry import register
from derive.calculus.pointwise import Activation

__all__: list[str] = []

_CAUSAL = np.tri(TOKENS, dtype=bool)
_DECODER = {
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "max_position_embeddings": TOKENS,
    "attention_dropout": 0.0,
    "vocab_size": 8,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def _projections(attention: Any) -> list[Any]:
    names = [n for n in ("o_proj", "out_proj", "dense") if hasattr(attention, n)]
    return [attention.q_proj, attention.k_proj, attention.v_proj, getattr(attention, names[0])]


def _by_head(layer: Any, parts: int = 3) -> list[Any]:
    """Split a fused projection whose rows are head by head, query, key and value within each."""
    rows = np.arange(HEADS * parts * HEAD_WIDTH).reshape(HEADS, parts, HEAD_WIDTH)
    return split_rows(layer, rows.swapaxes(0, 1), parts)


def _tables(rotary: Any) -> tuple[Any, Any]:
    """Return cosines and sines at positions 0 to n-1, made in float32 as in the model."""
    torch = load_torch()
    cos, sin = rotary(torch.zeros(1, dtype=torch.float32), torch.arange(TOKENS)[None])
    return cos.double(), sin.double()


def _partly(rotate: Callable[[Any], Any], width: int) -> Callable[[Any], Any]:
    """Rotate the first features of a head only."""
    torch = load_torch()
    return lambda q: torch.cat([rotate(q[..., :width]), q[..., width:]], dim=-1)


def _opt_layer(system: str, before: bool, seed: int) -> RealBlock:
    config = configuration(
        "opt",
        "OPTConfig",
        hidden_size=WIDTH,
        ffn_dim=HIDDEN,
        num_attention_heads=HEADS,
        num_hidden_layers=1,
        vocab_size=8,
        dropout=0.0,
        attention_dropout=0.0,
        do_layer_norm_before=before,
    )
    layer = fresh(lambda: modeling("opt").OPTDecoderLayer(config, layer_idx=0), seed)
    return assemble(
        system,
        layer,
        lambda x: first(layer(x, attention_mask=additive(_CAUSAL))),
        "pre" if before else "post",
        norms=[layer.self_attn_layer_norm, layer.final_layer_norm],
        attention=_projections(layer.self_attn),
        feed_forward=[layer.fc1, layer.fc2],
        activation=layer.activation_fn,
        scale=layer.self_attn.scaling,
        mask=_CAUSAL,
    )


@register("opt", "transformers OPTDecoderLayer", 1)
def _opt(seed: int) -> RealBlock:
    return _opt_layer("opt", True, seed)


@register("opt-350m", "transformers OPTDecoderLayer, do_layer_norm_before=False", 1)
def _opt_350m(seed: int) -> RealBlock:
    return _opt_layer("opt-350m", False, seed)


@register("gptj", "transformers GPTJBlock", 2)
def _gptj(seed: int) -> RealBlock:
    torch = load_torch()
    model = modeling("gptj")
    config = configuration(
        "gptj",
        "GPTJConfig",
        n_embd=WIDTH,
        n_head=HEADS,
        n_layer=1,
        n_inner=HIDDEN,
        n_positions=TOKENS,
        rotary_dim=HEAD_WIDTH // 2,
        vocab_size=8,
        bos_token_id=None,
        eos_token_id=None,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
    )
    layer = fresh(lambda: model.GPTJBlock(config, 0), seed)
    positions = torch.arange(TOKENS)[None]
    # This one returns sines first, and its rotation takes (1, n, heads, dh).
    sin, cos = (t.double() for t in model.GPTJRotaryEmbedding(config)(torch.zeros(1), positions))

    def rotate(q: Any) -> Any:
        return model.apply_rotary_pos_emb(q.transpose(1, 2), sin, cos).transpose(1, 2)

    return assemble(
        "gptj",
        layer,
        lambda x: first(layer(x, attention_mask=additive(_CAUSAL), position_embeddings=(sin, cos))),
        "parallel",
        norms=[layer.ln_1],
        attention=_projections(layer.attn),
        feed_forward=[layer.mlp.fc_in, layer.mlp.fc_out],
        activation=layer.mlp.act,
        scale=layer.attn.scaling,
        mask=_CAUSAL,
        rotary=rotations(_partly(rotate, config.rotary_dim)),
    )


def _gpt_neox_layer(system: str, parallel: bool, seed: int) -> RealBlock:
    model = modeling("gpt_neox")
    config = configuration(
        "gpt_neox",
        "GPTNeoXConfig",
        **_DECODER,
        hidden_dropout=0.0,
        use_parallel_residual=parallel,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
    )
    layer = fresh(lambda: model.GPTNeoXLayer(config, 0), seed)
    cos, sin = _tables(model.GPTNeoXRotaryEmbedding(config))
    return assemble(
        system,
        layer,
        lambda x: first(layer(x, attention_mask=additive(_CAUSAL), position_embeddings=(cos, sin))),
        "parallel-two-norms" if parallel else "pre",
        norms=[layer.input_layernorm, layer.post_attention_layernorm],
        attention=[*_by_head(layer.attention.query_key_value), layer.attention.dense],
        feed_forward=[layer.mlp.dense_h_to_4h, layer.mlp.dense_4h_to_h],
        activation=layer.mlp.act,
        scale=layer.attention.scaling,
        mask=_CAUSAL,
        rotary=rotations(lambda q: first(model.apply_rotary_pos_emb(q, q, cos, sin))),
    )


@register("gpt-neox", "transformers GPTNeoXLayer", 2)
def _gpt_neox(seed: int) -> RealBlock:
    return _gpt_neox_layer("gpt-neox", True, seed)


@register("gpt-neox-sequential", "transformers GPTNeoXLayer, use_parallel_residual=False", 2)
def _gpt_neox_sequential(seed: int) -> RealBlock:
    return _gpt_neox_layer("gpt-neox-sequential", False, seed)


def _falcon(
    system: str, placement: str, norms: list[str], heads: int, seed: int, **settings: Any
) -> RealBlock:
    """Build a Falcon layer with `heads` key and value heads."""
    model = modeling("falcon")
    config = configuration(
        "falcon",
        "FalconConfig",
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_hidden_layers=1,
        ffn_hidden_size=HIDDEN,
        vocab_size=8,
        bos_token_id=None,
        eos_token_id=None,
        alibi=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        **settings,
    )
    layer = fresh(lambda: model.FalconDecoderLayer(config, 0), seed)
    cos, sin = _tables(model.FalconRotaryEmbedding(config))
    attention = layer.self_attention
    # Rows of the fused projection: group by group, its queries, then one key and one value.
    group = HEADS // heads
    rows = np.arange((HEADS + 2 * heads) * HEAD_WIDTH).reshape(heads, group + 2, HEAD_WIDTH)
    pairs = [
        split_rows(attention.query_key_value, part, 1)[0]
        for part in (rows[:, :group], rows[:, group], rows[:, group + 1])
    ]
    return assemble(
        system,
        layer,
        lambda x: first(
            layer(x, alibi=None, attention_mask=additive(_CAUSAL), position_embeddings=(cos, sin))
        ),
        placement,
        norms=[getattr(layer, name) for name in norms],
        attention=[*pairs, attention.dense],
        feed_forward=[layer.mlp.dense_h_to_4h, layer.mlp.dense_4h_to_h],
        activation=layer.mlp.act,
        scale=attention.inv_norm_factor,
        groups=group,
        mask=_CAUSAL,
        rotary=rotations(lambda q: first(model.apply_rotary_pos_emb(q, q, cos, sin))),
    )


@register("falcon-7b", "transformers FalconDecoderLayer, as in falcon-7b", 2)
def _falcon_7b(seed: int) -> RealBlock:
    settings = {"parallel_attn": True, "multi_query": True, "new_decoder_architecture": False}
    return _falcon("falcon-7b", "parallel", ["input_layernorm"], 1, seed, **settings)


@register("falcon-40b", "transformers FalconDecoderLayer, as in falcon-40b", 2)
def _falcon_40b(seed: int) -> RealBlock:
    settings = {"new_decoder_architecture": True, "num_kv_heads": 2}
    norms = ["ln_attn", "ln_mlp"]
    return _falcon("falcon-40b", "parallel-two-norms", norms, 2, seed, **settings)


@register("falcon-rw", "transformers FalconDecoderLayer, as in falcon-rw-1b", 2)
def _falcon_rw(seed: int) -> RealBlock:
    settings = {
        "parallel_attn": False,
        "multi_query": False,
        "new_decoder_architecture": False,
        "bias": True,
    }
    norms = ["input_layernorm", "post_attention_layernorm"]
    return _falcon("falcon-rw", "pre", norms, HEADS, seed, **settings)


def _rotary_decoder(
    system: str,
    model: str,
    prefix: str,
    placement: str,
    norms: list[str],
    seed: int,
    *,
    eps: float | None = None,
    **more: Any,
) -> RealBlock:
    """Build a layer that names its parts as Llama does."""
    source = modeling(model)
    config = configuration(model, f"{prefix}Config", **{**_DECODER, **more})
    layer = fresh(lambda: getattr(source, f"{prefix}DecoderLayer")(config, 0), seed)
    cos, sin = _tables(getattr(source, f"{prefix}RotaryEmbedding")(config))
    attention, mlp = layer.self_attn, layer.mlp
    gated = hasattr(mlp, "gate_proj")
    ffn = [mlp.gate_proj, mlp.up_proj, mlp.down_proj] if gated else [mlp.fc1, mlp.fc2]

    def rotate(q: Any) -> Any:
        return first(source.apply_rotary_pos_emb(q, q, cos, sin))

    def call(x: Any) -> Any:
        return first(layer(x, attention_mask=additive(_CAUSAL), position_embeddings=(cos, sin)))

    return assemble(
        system,
        layer,
        call,
        placement,
        norms=[getattr(layer, name) for name in norms],
        eps=eps,
        attention=_projections(attention),
        feed_forward=ffn,
        activation=mlp.act_fn if gated else mlp.activation_fn,
        scale=attention.scaling,
        groups=attention.num_key_value_groups,
        mask=_CAUSAL,
        rotary=rotations(_partly(rotate, cos.shape[-1])),
    )


@register("phi", "transformers PhiDecoderLayer", 2)
def _phi(seed: int) -> RealBlock:
    return _rotary_decoder(
        "phi",
        "phi",
        "Phi",
        "parallel",
        ["input_layernorm"],
        seed,
        num_key_value_heads=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
    )


@register("cohere", "transformers CohereDecoderLayer", 2)
def _cohere(seed: int) -> RealBlock:
    norms = ["input_layernorm"]
    return _rotary_decoder(
        "cohere", "cohere", "Cohere", "parallel", norms, seed, num_key_value_heads=2
    )


@register("stablelm-parallel", "transformers StableLmDecoderLayer, use_parallel_residual", 2)
def _stablelm_parallel(seed: int) -> RealBlock:
    return _rotary_decoder(
        "stablelm-parallel",
        "stablelm",
        "StableLm",
        "parallel",
        ["input_layernorm"],
        seed,
        num_key_value_heads=2,
        use_parallel_residual=True,
        use_qkv_bias=True,
        hidden_dropout=0.0,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
    )


@register("olmo", "transformers OlmoDecoderLayer", 1)
def _olmo(seed: int) -> RealBlock:
    norms = ["input_layernorm", "post_attention_layernorm"]
    # The norm has neither gain nor bias and its eps stands in its forward.
    return _rotary_decoder(
        "olmo", "olmo", "Olmo", "pre", norms, seed, eps=1e-5, num_key_value_heads=2
    )


def _bloom_layer(system: str, normed_residual: bool, seed: int) -> RealBlock:
    torch = load_torch()
    model = modeling("bloom")
    config = configuration(
        "bloom",
        "BloomConfig",
        hidden_size=WIDTH,
        n_head=HEADS,
        n_layer=1,
        vocab_size=8,
        bos_token_id=None,
        eos_token_id=None,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        apply_residual_connection_post_layernorm=normed_residual,
    )
    layer = fresh(lambda: model.BloomBlock(config, 0), seed)
    alibi = model.build_alibi_tensor(torch.ones(1, TOKENS), HEADS, torch.float64)
    attention = layer.self_attention
    return assemble(
        system,
        layer,
        lambda x: first(layer(x, alibi=alibi, attention_mask=additive(_CAUSAL))),
        "normed-residual" if normed_residual else "pre",
        norms=[layer.input_layernorm, layer.post_attention_layernorm],
        attention=[*_by_head(attention.query_key_value), attention.dense],
        feed_forward=[layer.mlp.dense_h_to_4h, layer.mlp.dense_4h_to_h],
        activation=_bloom_gelu(),
        scale=attention.inv_norm_factor,
        mask=_CAUSAL,
        score_bias=np.repeat(array(alibi), TOKENS, axis=1),
        note=(
            "the module's own backward rounds a constant of its gelu to ten digits, so it is not "
            "quite the derivative of its forward: about 2e-13"
        ),
    )


def _bloom_gelu() -> Activation:
    """Return the tanh gelu with sqrt(2/pi) rounded to the eight digits of the module."""
    t = sp.Symbol("t", real=True)
    root = sp.Rational("0.79788456")
    inner = root * t * (1 + sp.Rational("0.044715") * t**2)
    return Activation("gelu_bloom", sp.Lambda(t, t * (1 + sp.tanh(inner)) / 2))


@register("bloom", "transformers BloomBlock", 2)
def _bloom(seed: int) -> RealBlock:
    return _bloom_layer("bloom", False, seed)


@register("bloom-normed-residual", "transformers BloomBlock, residual after the norm", 3)
def _bloom_normed_residual(seed: int) -> RealBlock:
    return _bloom_layer("bloom-normed-residual", True, seed)
