"""The matrix of derivations that every renderer is tested on."""

from __future__ import annotations

from functools import cache

import sympy as sp

from derive import Attention, GatedFFN, RMSNorm, activation, block, derivation, layer, state
from derive.blocks.attention import CrossAttention
from derive.blocks.norms import NORMS as NORMS_ALL
from derive.calculus.derivation import Derivation
from derive.calculus.maps import Map

PLACEMENTS = ("post", "pre", "x + N(F(N(x)))", "layer-post", "layer-pre")
NORMS = ("layernorm", "rmsnorm")
SUBLAYERS = (
    "abstract",
    "ffn:relu",
    "ffn:gelu",
    "ffn:gelu_tanh",
    "ffn:silu",
    "ffn:tanh",
    "gated",
    "attention",
    "causal-attention",
    "rotary-attention",
)
CASES = [(p, n, s) for p in PLACEMENTS for n in NORMS for s in SUBLAYERS]
FEW = [
    ("post", "layernorm", "abstract"),
    ("pre", "rmsnorm", "ffn:relu"),
    ("x + N(F(N(x)))", "layernorm", "gated"),
    ("pre", "rmsnorm", "causal-attention"),
    ("layer-post", "layernorm", "rotary-attention"),
]


def _options() -> dict[str, Map]:
    """One map for each option that a renderer sees something new in."""
    q, k = RMSNorm("q"), RMSNorm("k")
    c = sp.Symbol("c", positive=True)
    return {
        "qk-norm": Attention(rotary=True, causal=True, query_norm=q, key_norm=k, name="F"),
        "full-norm": Attention(query_norm=q, key_norm=k, full_norm=True, name="F"),
        "softcap": Attention(
            softcap=c,
            score_bias=True,
            sinks=True,
            gate=activation("silu"),
            bias=True,
            masked=True,
            name="F",
            label="1",
        ),
        "cross": CrossAttention(query_norm=q, key_norm=k, bias=True, name="F", label="2"),
    }


FURTHER = [(p, "layernorm", option) for p in ("post", "pre") for option in _options()]
FURTHER += [("pre", n, "ffn") for n in NORMS_ALL if n not in NORMS]
FURTHER += [("N(alpha*x + beta*F(x))", "rmsnorm", "abstract")]


def name(case: tuple[str, str, str]) -> str:
    return "-".join(case)


@cache
def derived(case: tuple[str, str, str]) -> Derivation:
    place, norm, kind = case
    if kind in _options():
        return derivation(block(place, norm, _options()[kind]), state("x"))
    if not place.startswith("layer-"):
        return derivation(block(place, norm, kind), state("x"))
    from derive import sublayer

    inner = sublayer(kind)
    attention, feed_forward = (inner, GatedFFN()) if inner.mixes_tokens else (None, inner)
    expr = layer(place.removeprefix("layer-"), norm, attention, feed_forward)
    return derivation(expr, state("x"))
