"""Blocks of Hugging Face transformers: BERT, GPT-2, Llama.

Layers are run with eager attention, whichever implementation their configuration names: eager,
sdpa and flash attention compute the same function, and only eager takes any additive mask.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

from derive.backends.activation import activation_name
from derive.backends.anatomy import check_anatomy, refuse
from derive.backends.extras import load_torch, load_transformers
from derive.backends.reading import register_reader
from derive.backends.real_block import RealBlock
from derive.backends.weights import (
    additive_mask,
    array,
    causal_mask,
    heads_of,
    is_causal,
    linear,
    norm_affine,
)
from derive.errors import ShapeError

__all__ = [
    "bert_layer",
    "gpt2_block",
    "llama_layer",
    "read_bert_layer",
    "read_gpt2_block",
    "read_llama_layer",
]

_LINEAR = "torch.nn.modules.linear.Linear"
_LAYERNORM = "torch.nn.modules.normalization.LayerNorm"
_CONV1D = "transformers.pytorch_utils.Conv1D"
_BERT = "transformers.models.bert.modeling_bert"
_GPT2 = "transformers.models.gpt2.modeling_gpt2"
_LLAMA = "transformers.models.llama.modeling_llama"

_BERT_LAYER = {
    "attention": f"{_BERT}.BertAttention",
    "attention.self": f"{_BERT}.BertSelfAttention",
    "attention.self.query": _LINEAR,
    "attention.self.key": _LINEAR,
    "attention.self.value": _LINEAR,
    "attention.output": f"{_BERT}.BertSelfOutput",
    "attention.output.dense": _LINEAR,
    "attention.output.LayerNorm": _LAYERNORM,
    "intermediate": f"{_BERT}.BertIntermediate",
    "intermediate.dense": _LINEAR,
    "output": f"{_BERT}.BertOutput",
    "output.dense": _LINEAR,
    "output.LayerNorm": _LAYERNORM,
}
_GPT2_BLOCK = {
    "ln_1": _LAYERNORM,
    "attn": f"{_GPT2}.GPT2Attention",
    "attn.c_attn": _CONV1D,
    "attn.c_proj": _CONV1D,
    "ln_2": _LAYERNORM,
    "mlp": f"{_GPT2}.GPT2MLP",
    "mlp.c_fc": _CONV1D,
    "mlp.c_proj": _CONV1D,
}
_LLAMA_LAYER = {
    "self_attn": f"{_LLAMA}.LlamaAttention",
    "self_attn.q_proj": _LINEAR,
    "self_attn.k_proj": _LINEAR,
    "self_attn.v_proj": _LINEAR,
    "self_attn.o_proj": _LINEAR,
    "mlp": f"{_LLAMA}.LlamaMLP",
    "mlp.gate_proj": _LINEAR,
    "mlp.up_proj": _LINEAR,
    "mlp.down_proj": _LINEAR,
    "input_layernorm": f"{_LLAMA}.LlamaRMSNorm",
    "post_attention_layernorm": f"{_LLAMA}.LlamaRMSNorm",
}
# Implementations known to compute softmax(scale QK' + mask)V; one registered by a user may not.
_SOFTMAX_ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")


@register_reader(f"{_BERT}.BertLayer")
def read_bert_layer(layer: Any, tokens: int, mask: npt.NDArray[np.bool_] | None) -> RealBlock:
    """Read ``BertLayer``; with ``is_decoder`` its mask is causal unless another is given.

    Raises
    ------
    UnknownNodeError
        When it has cross-attention, relative positions, a replaced part or an activation that is
        not known.
    """
    if layer.add_cross_attention:
        raise refuse(layer, "add_cross_attention", "False", True)
    check_anatomy(layer, _BERT_LAYER, activations=("intermediate.intermediate_act_fn",))
    attention = layer.attention.self
    positions = getattr(attention, "position_embedding_type", None) or "absolute"
    if positions != "absolute":
        raise refuse(layer, "position_embedding_type", "'absolute'", positions)
    _use_eager(layer, attention.config)
    causal = bool(layer.is_decoder)
    if mask is None and causal:
        mask = causal_mask(tokens)
    w_1, b_1 = linear(layer.intermediate.dense)
    w_2, b_2 = linear(layer.output.dense)
    weights = {
        **norm_affine(layer.attention.output.LayerNorm, 1),
        **norm_affine(layer.output.LayerNorm, 2),
        **heads_of(
            query=linear(attention.query),
            key=linear(attention.key),
            value=linear(attention.value),
            out=linear(layer.attention.output.dense),
            heads=attention.num_attention_heads,
        ),
        "scale": np.array(_scale(attention, attention.attention_head_size)),
        "mask": np.ones((tokens, tokens), dtype=bool) if mask is None else mask,
        "W_1": w_1,
        "b_1": b_1,
        "W_2": w_2,
        "b_2": b_2,
    }
    additive = None if mask is None else additive_mask(mask)[None, None]
    return RealBlock(
        system="bert",
        module=layer,
        call=lambda x: _first(layer(x, attention_mask=additive)),
        placement="post",
        norm="layernorm",
        eps=(layer.attention.output.LayerNorm.eps, layer.output.LayerNorm.eps),
        activation=activation_name(layer.intermediate.intermediate_act_fn),
        gated=False,
        causal=is_causal(mask, own=causal),
        heads=attention.num_attention_heads,
        width=weights["W_2"].shape[0],
        tokens=tokens,
        weights=weights,
    )


@register_reader(f"{_GPT2}.GPT2Block")
def read_gpt2_block(block: Any, tokens: int, mask: npt.NDArray[np.bool_] | None) -> RealBlock:
    """Read ``GPT2Block``, whose ``Conv1D`` holds W transposed; causal unless a mask is given.

    ``scale_attn_weights`` and ``scale_attn_by_inverse_layer_idx`` end up in ``scale``.
    ``reorder_and_upcast_attn`` only moves the scores to float32 and is switched off on the copy.

    Raises
    ------
    UnknownNodeError
        When it has cross-attention, a replaced part or an activation that is not known, or holds a
        causal mask of its own (as early releases of transformers 5 do) and `mask` is not causal.
    """
    if hasattr(block, "crossattention"):
        raise refuse(block, "add_cross_attention", "False", True)
    check_anatomy(block, _GPT2_BLOCK, activations=("mlp.act",))
    attention = block.attn
    _use_eager(block, attention.config)
    attention.reorder_and_upcast_attn = False
    scale = attention.head_dim**-0.5 if attention.scale_attn_weights else 1.0
    if attention.scale_attn_by_inverse_layer_idx:
        scale /= attention.layer_idx + 1
    own = mask is None
    allowed = causal_mask(tokens) if mask is None else mask
    if "bias" in dict(attention.named_buffers()) and not is_causal(allowed, own=True):
        # The first releases of transformers 5 mask later keys themselves, whatever mask is passed.
        raise refuse(block, "attn.bias, a causal mask of its own", "a causal mask", "another mask")
    stacked, bias = linear(attention.c_attn, transposed=True)
    query, key, value = zip(np.split(stacked, 3), np.split(bias, 3), strict=True)
    w_1, b_1 = linear(block.mlp.c_fc, transposed=True)
    w_2, b_2 = linear(block.mlp.c_proj, transposed=True)
    weights = {
        **norm_affine(block.ln_1, 1),
        **norm_affine(block.ln_2, 2),
        **heads_of(
            query=query,
            key=key,
            value=value,
            out=linear(attention.c_proj, transposed=True),
            heads=attention.num_heads,
        ),
        "scale": np.array(getattr(attention, "scaling", scale)),
        "mask": allowed,
        "W_1": w_1,
        "b_1": b_1,
        "W_2": w_2,
        "b_2": b_2,
    }
    additive = additive_mask(allowed)[None, None]
    return RealBlock(
        system="gpt2",
        module=block,
        call=lambda x: _first(block(x, attention_mask=additive)),
        placement="pre",
        norm="layernorm",
        eps=(block.ln_1.eps, block.ln_2.eps),
        activation=activation_name(block.mlp.act),
        gated=False,
        causal=own or is_causal(allowed, own=True),
        heads=attention.num_heads,
        width=weights["W_2"].shape[0],
        tokens=tokens,
        weights=weights,
    )


@register_reader(f"{_LLAMA}.LlamaDecoderLayer")
def read_llama_layer(layer: Any, tokens: int, mask: npt.NDArray[np.bool_] | None) -> RealBlock:
    """Read ``LlamaDecoderLayer``: RMSNorm, rotary, grouped heads; causal unless a mask is given.

    The tables of cosines and sines come from the model's own ``LlamaRotaryEmbedding`` at positions
    0..n-1. It makes them in float32, as in the model, and they are widened to float64; ``R`` and
    the call use these same tables. ``R[i]`` is the module's own ``apply_rotary_pos_emb`` applied to
    the columns of the identity, so its convention and any attention factor are in it.

    Raises
    ------
    UnknownNodeError
        When it has a replaced part or an activation that is not known.
    """
    torch = load_torch()
    check_anatomy(layer, _LLAMA_LAYER, activations=("mlp.act_fn",))
    attention = layer.self_attn
    _use_eager(layer, attention.config)
    own = mask is None
    allowed = causal_mask(tokens) if mask is None else mask
    query = linear(attention.q_proj)
    dh = attention.head_dim
    heads = query[0].shape[0] // dh
    positions = torch.arange(tokens)[None]
    modeling = importlib.import_module(type(layer).__module__)
    rotary = modeling.LlamaRotaryEmbedding(attention.config)
    tables = tuple(t.double() for t in rotary(torch.zeros(1, dtype=torch.float32), positions))
    basis = torch.eye(dh, dtype=torch.float64).reshape(1, dh, 1, dh).expand(1, dh, tokens, dh)
    rotated, _ = modeling.apply_rotary_pos_emb(basis, basis, *tables)
    if rotated.shape != (1, dh, tokens, dh):
        raise ShapeError(
            f"{type(layer).__name__}: expected rotary tables of width {dh}, that of a head, "
            f"got {tables[0].shape[-1]}"
        )
    weights = {
        **norm_affine(layer.input_layernorm, 1, bias=False),
        **norm_affine(layer.post_attention_layernorm, 2, bias=False),
        **heads_of(
            query=query,
            key=linear(attention.k_proj),
            value=linear(attention.v_proj),
            out=linear(attention.o_proj),
            heads=heads,
            groups=attention.num_key_value_groups,
        ),
        "scale": np.array(_scale(attention, dh)),
        "mask": allowed,
        # Entry [b, i] of the rotated basis is column b of R_i.
        "R": np.ascontiguousarray(array(rotated)[0].transpose(1, 2, 0)),
    }
    for name in ("gate", "up", "down"):
        weights[f"W_{name}"], weights[f"b_{name}"] = linear(getattr(layer.mlp, f"{name}_proj"))
    additive = additive_mask(allowed)[None, None]

    def call(x: Any) -> Any:
        return _first(
            layer(x, attention_mask=additive, position_ids=positions, position_embeddings=tables)
        )

    return RealBlock(
        system="llama",
        module=layer,
        call=call,
        placement="pre",
        norm="rmsnorm",
        eps=(
            layer.input_layernorm.variance_epsilon,
            layer.post_attention_layernorm.variance_epsilon,
        ),
        activation=activation_name(layer.mlp.act_fn),
        gated=True,
        causal=own or is_causal(allowed, own=True),
        heads=heads,
        width=weights["W_down"].shape[0],
        tokens=tokens,
        weights=weights,
    )


def bert_layer(width: int, heads: int) -> Any:
    """Return a fresh ``BertLayer`` without dropout, FFN of width 4 d."""
    modeling = load_transformers("models.bert.modeling_bert")
    config = load_transformers("models.bert.configuration_bert").BertConfig(
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        num_hidden_layers=1,
        vocab_size=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return modeling.BertLayer(config)


def gpt2_block(width: int, heads: int, layer: int) -> Any:
    """Return a fresh ``GPT2Block`` without dropout, FFN of width 4 d."""
    modeling = load_transformers("models.gpt2.modeling_gpt2")
    config = load_transformers("models.gpt2.configuration_gpt2").GPT2Config(
        n_embd=width,
        n_head=heads,
        n_layer=layer + 1,
        vocab_size=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=1,
        eos_token_id=1,
    )
    return modeling.GPT2Block(config, layer_idx=layer)


def llama_layer(width: int, heads: int, layer: int, tokens: int) -> Any:
    """Return a fresh ``LlamaDecoderLayer``; pairs of heads share keys and values, FFN of width 3 d.

    Raises
    ------
    ShapeError
        When a head has an odd width, which rotary positions cannot pair up.
    """
    if (width // heads) % 2:
        raise ShapeError(
            "argument width: expected an even width per head for rotary positions, "
            f"got width={width} over heads={heads}"
        )
    modeling = load_transformers("models.llama.modeling_llama")
    config = load_transformers("models.llama.configuration_llama").LlamaConfig(
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2 if heads % 2 == 0 else heads,
        intermediate_size=3 * width,
        num_hidden_layers=layer + 1,
        max_position_embeddings=tokens,
        vocab_size=2,
        bos_token_id=None,
        eos_token_id=None,
    )
    return modeling.LlamaDecoderLayer(config, layer_idx=layer)


def _use_eager(layer: Any, config: Any) -> None:
    # The layer is the reader's own copy, its configuration too.
    implementation = getattr(config, "_attn_implementation", None)
    if implementation is not None and implementation not in _SOFTMAX_ATTENTION:
        raise refuse(
            layer, "_attn_implementation", f"one of {', '.join(_SOFTMAX_ATTENTION)}", implementation
        )
    config._attn_implementation = "eager"


def _scale(attention: Any, head_width: int) -> float:
    return float(getattr(attention, "scaling", head_width**-0.5))


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, (tuple, list)) else result
