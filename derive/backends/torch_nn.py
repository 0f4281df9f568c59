"""Blocks of torch.nn: the encoder layer, both placements."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from derive.backends.activation import activation_name
from derive.backends.anatomy import check_anatomy, refuse
from derive.backends.extras import load_torch
from derive.backends.reading import register_reader
from derive.backends.real_block import RealBlock
from derive.backends.weights import additive_mask, array, heads_of, is_causal, linear, norm_affine

__all__ = ["encoder_layer", "read_encoder_layer"]

_ENCODER_LAYER = {
    "self_attn": "torch.nn.modules.activation.MultiheadAttention",
    "self_attn.out_proj": "torch.nn.modules.linear.NonDynamicallyQuantizableLinear",
    "linear1": "torch.nn.modules.linear.Linear",
    "linear2": "torch.nn.modules.linear.Linear",
    "norm1": "torch.nn.modules.normalization.LayerNorm",
    "norm2": "torch.nn.modules.normalization.LayerNorm",
}


@register_reader("torch.nn.modules.transformer.TransformerEncoderLayer")
def read_encoder_layer(layer: Any, tokens: int, mask: npt.NDArray[np.bool_] | None) -> RealBlock:
    """Read ``torch.nn.TransformerEncoderLayer``, either placement, batch first or not.

    Raises
    ------
    UnknownNodeError
        When a part was replaced, the activation is not known, or the attention has ``bias_k``,
        ``add_zero_attn`` or projections of unequal widths.
    """
    check_anatomy(layer, _ENCODER_LAYER, activations=("activation",))
    attention = layer.self_attn
    if attention.bias_k is not None or attention.bias_v is not None:
        raise refuse(layer, "self_attn.bias_k, bias_v", "None", "parameters")
    if attention.add_zero_attn:
        raise refuse(layer, "self_attn.add_zero_attn", "False", True)
    if attention.in_proj_weight is None:
        raise refuse(layer, "self_attn.kdim, vdim", "the width of the block", "others")
    d, heads = attention.embed_dim, attention.num_heads
    stacked = array(attention.in_proj_weight)
    bias = np.zeros(3 * d) if attention.in_proj_bias is None else array(attention.in_proj_bias)
    query, key, value = zip(np.split(stacked, 3), np.split(bias, 3), strict=True)
    w_1, b_1 = linear(layer.linear1)
    w_2, b_2 = linear(layer.linear2)
    weights = {
        **norm_affine(layer.norm1, 1),
        **norm_affine(layer.norm2, 2),
        **heads_of(query=query, key=key, value=value, out=linear(attention.out_proj), heads=heads),
        "scale": np.array(attention.head_dim**-0.5),
        "mask": np.ones((tokens, tokens), dtype=bool) if mask is None else mask,
        "W_1": w_1,
        "b_1": b_1,
        "W_2": w_2,
        "b_2": b_2,
    }
    source_mask = None if mask is None else additive_mask(mask)

    def call(x: Any) -> Any:
        if attention.batch_first:
            return layer(x, src_mask=source_mask)
        return layer(x.transpose(0, 1), src_mask=source_mask).transpose(0, 1)

    return RealBlock(
        system="torch-pre" if layer.norm_first else "torch-post",
        module=layer,
        call=call,
        placement="pre" if layer.norm_first else "post",
        norm="layernorm",
        eps=(layer.norm1.eps, layer.norm2.eps),
        activation=activation_name(layer.activation),
        gated=False,
        causal=is_causal(mask, own=False),
        heads=heads,
        width=d,
        tokens=tokens,
        weights=weights,
    )


def encoder_layer(width: int, heads: int, *, norm_first: bool) -> Any:
    """Return a fresh ``torch.nn.TransformerEncoderLayer``: gelu before norm, relu after."""
    torch = load_torch()
    return torch.nn.TransformerEncoderLayer(
        width,
        heads,
        dim_feedforward=4 * width,
        dropout=0.0,
        activation="gelu" if norm_first else "relu",
        batch_first=True,
        norm_first=norm_first,
    )
