"""Encoder layers: the BERT family, vision, speech, and the first two GPT-like ones."""

from __future__ import annotations

import math
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
from derive.blocks.norms import L2Norm
from derive.calculus.tokens import index

__all__: list[str] = []

_BERT = {
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_TEXT = {**_BERT, "vocab_size": 8}
_IMAGE = {**_BERT, "image_size": 8, "patch_size": 4}


def _bert_attention(layer: Any) -> list[Any]:
    attention = layer.attention.self
    return [attention.query, attention.key, attention.value, layer.attention.output.dense]


def _projections(attention: Any) -> list[Any]:
    out = attention.o_proj if hasattr(attention, "o_proj") else attention.out_proj
    return [attention.q_proj, attention.k_proj, attention.v_proj, out]


@register("albert", "transformers AlbertLayer", 1)
def _albert(seed: int) -> RealBlock:
    config = configuration("albert", "AlbertConfig", **_TEXT, embedding_size=WIDTH)
    layer = fresh(lambda: modeling("albert").AlbertLayer(config), seed)
    attention = layer.attention
    return assemble(
        "albert",
        layer,
        lambda x: first(layer(x)),
        "post",
        norms=[attention.LayerNorm, layer.full_layer_layer_norm],
        attention=[attention.query, attention.key, attention.value, attention.dense],
        feed_forward=[layer.ffn, layer.ffn_output],
        activation=layer.activation,
        scale=attention.scaling,
    )


def _bert_like(
    system: str, model: str, prefix: str, norms: tuple[str, str], seed: int
) -> RealBlock:
    """Build a layer that names its parts as BERT does, but normalises in front."""
    config = configuration(model, f"{prefix}Config", **_TEXT)
    layer = fresh(lambda: getattr(modeling(model), f"{prefix}Layer")(config), seed)
    return assemble(
        system,
        layer,
        lambda x: first(layer(x)),
        "pre",
        norms=[layer.get_submodule(path) for path in norms],
        attention=_bert_attention(layer),
        feed_forward=[layer.intermediate.dense, layer.output.dense],
        activation=layer.intermediate.intermediate_act_fn,
        scale=layer.attention.self.attention_head_size**-0.5,
    )


@register("roberta-prelayernorm", "transformers RobertaPreLayerNormLayer", 1)
def _roberta_prelayernorm(seed: int) -> RealBlock:
    norms = ("attention.LayerNorm", "intermediate.LayerNorm")
    return _bert_like(
        "roberta-prelayernorm", "roberta_prelayernorm", "RobertaPreLayerNorm", norms, seed
    )


@register("xlm-roberta-xl", "transformers XLMRobertaXLLayer", 1)
def _xlm_roberta_xl(seed: int) -> RealBlock:
    norms = ("attention.self_attn_layer_norm", "LayerNorm")
    return _bert_like("xlm-roberta-xl", "xlm_roberta_xl", "XLMRobertaXL", norms, seed)


@register("megatron-bert", "transformers MegatronBertLayer", 1)
def _megatron_bert(seed: int) -> RealBlock:
    return _bert_like(
        "megatron-bert", "megatron_bert", "MegatronBert", ("attention.ln", "ln"), seed
    )


@register("gpt1", "transformers OpenAIGPT Block", 1)
def _gpt1(seed: int) -> RealBlock:
    config = configuration(
        "openai",
        "OpenAIGPTConfig",
        n_embd=WIDTH,
        n_head=HEADS,
        n_layer=1,
        vocab_size=8,
        n_positions=TOKENS,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
    )
    layer = fresh(lambda: modeling("openai").Block(TOKENS, config, scale=True), seed)
    rows = np.arange(3 * WIDTH)
    return assemble(
        "gpt1",
        layer,
        lambda x: first(layer(x)),
        "post",
        norms=[layer.ln_1, layer.ln_2],
        attention=[*split_rows(layer.attn.c_attn, rows), layer.attn.c_proj],
        feed_forward=[layer.mlp.c_fc, layer.mlp.c_proj],
        activation=layer.mlp.act,
        scale=1 / math.sqrt(HEAD_WIDTH),
        mask=np.tri(TOKENS, dtype=bool),
    )


@register("ctrl", "transformers CTRL EncoderLayer", 1)
def _ctrl(seed: int) -> RealBlock:
    config = configuration(
        "ctrl",
        "CTRLConfig",
        n_embd=WIDTH,
        n_head=HEADS,
        n_layer=1,
        dff=HIDDEN,
        vocab_size=8,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
    )
    layer = fresh(lambda: modeling("ctrl").EncoderLayer(config, 0), seed)
    attention = layer.multi_head_attention
    mask = np.tri(TOKENS, dtype=bool)
    return assemble(
        "ctrl",
        layer,
        lambda x: first(layer(x, attention_mask=additive(mask))),
        "pre",
        norms=[layer.layernorm1, layer.layernorm2],
        attention=[attention.Wq, attention.Wk, attention.Wv, attention.dense],
        feed_forward=[layer.ffn[0], layer.ffn[2]],
        activation=layer.ffn[1],
        scale=attention.scaling,
        mask=mask,
    )


@register("vit", "transformers ViTLayer", 1)
def _vit(seed: int) -> RealBlock:
    config = configuration("vit", "ViTConfig", **_IMAGE)
    layer = fresh(lambda: modeling("vit").ViTLayer(config), seed)
    return assemble(
        "vit",
        layer,
        lambda x: first(layer(x)),
        "pre",
        norms=[layer.layernorm_before, layer.layernorm_after],
        attention=_projections(layer.attention),
        feed_forward=[layer.mlp.fc1, layer.mlp.fc2],
        activation=layer.mlp.activation_fn,
        scale=layer.attention.scaling,
    )


@register("dinov2", "transformers Dinov2Layer", 2)
def _dinov2(seed: int) -> RealBlock:
    config = configuration("dinov2", "Dinov2Config", **_IMAGE, mlp_ratio=2)
    layer = fresh(lambda: modeling("dinov2").Dinov2Layer(config), seed)
    return assemble(
        "dinov2",
        layer,
        lambda x: first(layer(x)),
        "layerscale",
        norms=[layer.norm1, layer.norm2],
        attention=_projections(layer.attention),
        feed_forward=[layer.mlp.fc1, layer.mlp.fc2],
        activation=layer.mlp.activation_fn,
        scale=layer.attention.scaling,
        vectors={"lam1": layer.layer_scale1.lambda1, "lam2": layer.layer_scale2.lambda1},
    )


def _wav2vec2_layer(system: str, name: str, placement: str, seed: int) -> RealBlock:
    config = configuration(
        "wav2vec2",
        "Wav2Vec2Config",
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_attention_heads=HEADS,
        num_hidden_layers=1,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
    )
    layer = fresh(lambda: getattr(modeling("wav2vec2"), name)(config), seed)
    ffn = layer.feed_forward
    return assemble(
        system,
        layer,
        lambda x: first(layer(x)),
        placement,
        norms=[layer.layer_norm, layer.final_layer_norm],
        attention=_projections(layer.attention),
        feed_forward=[ffn.intermediate_dense, ffn.output_dense],
        activation=ffn.intermediate_act_fn,
        scale=layer.attention.scaling,
    )


@register("wav2vec2", "transformers Wav2Vec2EncoderLayer", 1)
def _wav2vec2(seed: int) -> RealBlock:
    return _wav2vec2_layer("wav2vec2", "Wav2Vec2EncoderLayer", "post", seed)


@register("wav2vec2-stable", "transformers Wav2Vec2EncoderLayerStableLayerNorm", 1)
def _wav2vec2_stable(seed: int) -> RealBlock:
    name = "Wav2Vec2EncoderLayerStableLayerNorm"
    return _wav2vec2_layer("wav2vec2-stable", name, "pre", seed)


def _modernbert(system: str, placement: str, number: int, seed: int) -> RealBlock:
    torch = load_torch()
    model = modeling("modernbert")
    config = configuration(
        "modernbert",
        "ModernBertConfig",
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        local_attention=2,
        vocab_size=8,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
        cls_token_id=None,
        sep_token_id=None,
    )
    layer = fresh(lambda: model.ModernBertEncoderLayer(config, number), seed)
    positions = torch.arange(TOKENS)[None]
    tables = model.ModernBertRotaryEmbedding(config)(
        torch.zeros(1, dtype=torch.float32), positions, config.layer_types[number]
    )
    cos, sin = (t.double() for t in tables)
    distance = np.abs(np.subtract.outer(np.arange(TOKENS), np.arange(TOKENS)))
    local = config.layer_types[number] == "sliding_attention"
    mask = distance <= config.local_attention // 2 if local else None
    passed = None if mask is None else additive(mask)
    attention = layer.attn
    # Rows of the fused projections: query, key, value, each head by head; activated half first.
    fused = split_rows(attention.Wqkv, np.arange(3 * WIDTH))
    hidden = split_rows(layer.mlp.Wi, np.arange(2 * HIDDEN), parts=2)
    norms = [None if number == 0 else layer.attn_norm, layer.mlp_norm]
    return assemble(
        system,
        layer,
        lambda x: first(layer(x, attention_mask=passed, position_embeddings=(cos, sin))),
        placement,
        norms=norms,
        attention=[*fused, attention.Wo],
        feed_forward=[*hidden, layer.mlp.Wo],
        activation=layer.mlp.act,
        scale=HEAD_WIDTH**-0.5,
        mask=mask,
        rotary=rotations(lambda q: first(model.apply_rotary_pos_emb(q, q, cos, sin))),
    )


@register("modernbert-0", "transformers ModernBertEncoderLayer, layer 0", 2)
def _modernbert_0(seed: int) -> RealBlock:
    return _modernbert("modernbert-0", "pre-mlp", 0, seed)


@register("modernbert-1", "transformers ModernBertEncoderLayer, layer 1", 2)
def _modernbert_1(seed: int) -> RealBlock:
    return _modernbert("modernbert-1", "pre", 1, seed)


@register("whisper", "transformers WhisperEncoderLayer", 1)
def _whisper(seed: int) -> RealBlock:
    config = configuration(
        "whisper",
        "WhisperConfig",
        d_model=WIDTH,
        encoder_attention_heads=HEADS,
        encoder_ffn_dim=HIDDEN,
        encoder_layers=1,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
    )
    layer = fresh(lambda: modeling("whisper").WhisperEncoderLayer(config), seed)
    return assemble(
        "whisper",
        layer,
        lambda x: first(layer(x, attention_mask=None)),
        "pre",
        norms=[layer.self_attn_layer_norm, layer.final_layer_norm],
        attention=_projections(layer.self_attn),
        feed_forward=[layer.fc1, layer.fc2],
        activation=layer.activation_fn,
        scale=layer.self_attn.scaling,
    )


@register("swinv2", "transformers Swinv2Layer", 2)
def _swinv2(seed: int) -> RealBlock:
    torch = load_torch()
    side, grid = 2, (2, 4)
    config = configuration(
        "swinv2",
        "Swinv2Config",
        embed_dim=WIDTH,
        window_size=side,
        num_heads=[HEADS],
        depths=[1],
        image_size=16,
        patch_size=4,
        drop_path_rate=0.0,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    make = modeling("swinv2").Swinv2Layer
    # The resolution only decides that windows are not shrunk; the layer takes its own as argument.
    layer = fresh(
        lambda: make(config, dim=WIDTH, input_resolution=(4, 4), num_heads=HEADS, shift_size=0),
        seed,
    )
    attention = layer.attention.self
    row, column = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    window = (row // side) * (grid[1] // side) + column // side
    place = (row % side) * side + column % side
    with torch.no_grad():
        table = attention.continuous_position_bias_mlp(attention.relative_coords_table)
        chosen = table.view(-1, HEADS)[attention.relative_position_index.view(-1)]
        bias = array(16 * torch.sigmoid(chosen)).reshape(side**2, side**2, HEADS)
        tau = array(attention.logit_scale.clamp(max=math.log(100.0)).exp()).reshape(HEADS)
    return assemble(
        "swinv2",
        layer,
        lambda x: first(layer(x, grid)),
        "res-post",
        norms=[layer.layernorm_before, layer.layernorm_after],
        attention=_bert_attention(layer),
        feed_forward=[layer.intermediate.dense, layer.output.dense],
        activation=layer.intermediate.intermediate_act_fn,
        scale=1.0,
        mask=np.equal.outer(window, window),
        score_bias=np.ascontiguousarray(bias.transpose(2, 0, 1)[:, place[:, None], place]),
        attention_options={
            "query_norm": L2Norm("q"),
            "key_norm": L2Norm("k"),
            "scale": sp.Indexed(sp.IndexedBase("tau"), index("h")),
        },
        further_weights={"tau": tau},
        note="the module bounds the length of query and key by 1e-12 from below",
        tokens=grid[0] * grid[1],
    )
