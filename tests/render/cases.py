"""The matrix of derivations that every renderer is tested on."""

from __future__ import annotations

from functools import cache

from derive import GatedFFN, block, derivation, layer, state
from derive.calculus.derivation import Derivation

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


def name(case: tuple[str, str, str]) -> str:
    return "-".join(case)


@cache
def derived(case: tuple[str, str, str]) -> Derivation:
    place, norm, kind = case
    if not place.startswith("layer-"):
        return derivation(block(place, norm, kind), state("x"))
    from derive import sublayer

    inner = sublayer(kind)
    attention, feed_forward = (inner, GatedFFN()) if inner.mixes_tokens else (None, inner)
    expr = layer(place.removeprefix("layer-"), norm, attention, feed_forward)
    return derivation(expr, state("x"))
