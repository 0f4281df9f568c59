r"""The catalogue: every table of this package as rows with stable keys, Jacobians derived.

Each function returns a list of dicts of plain values. Nothing about a Jacobian is typed in here:
``jacobian`` is the text of what `derive.derivation` derives from the entry's equation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import sympy as sp

from derive import symbols
from derive.blocks.activations import ACTIVATIONS, activation
from derive.blocks.attention import Attention, CrossAttention
from derive.blocks.build import VECTORS, block, state, streams
from derive.blocks.mla import LatentAttention
from derive.blocks.moe import MoE
from derive.blocks.norms import NORMS, L2Norm, RMSNorm, norm
from derive.blocks.parse import parse_block
from derive.blocks.placements import MIXES, PLACEMENTS, STREAMS, placement
from derive.blocks.sublayers import FFN, GatedFFN, Sublayer
from derive.blocks.systems import SYSTEMS_TABLE
from derive.calculus.derivation import Derivation, derivation
from derive.calculus.maps import Map
from derive.calculus.printing import text
from derive.errors import UnknownNameError

__all__ = [
    "ATTENTIONS",
    "CATALOGUES",
    "CORRECTIONS",
    "DEEPNORM",
    "FEED_FORWARDS",
    "NORM_VARIANTS",
    "catalogue",
    "norm_derivation",
    "placement_derivation",
    "stream_derivations",
    "sublayer_derivation",
]

Row = dict[str, Any]

NORM_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in NORMS},
    "layernorm-plain": ("layernorm", {"gain": False, "bias": False}),
    "rmsnorm-plain": ("rmsnorm", {"gain": False}),
    "rmsnorm-offset": ("rmsnorm", {"offset": True}),
    "rmsnorm-eps-outside": ("rmsnorm", {"outside": True}),
}
"""The kinds of norm and their options: without gain and bias, gain 1 + w, eps outside the root."""

NORM_NOTES = {
    "layernorm-plain": "no gain, no bias: OLMo 1",
    "rmsnorm-plain": "no gain: nanochat, HRM",
    "rmsnorm-offset": "gain 1 + w: Gemma",
    "rmsnorm-eps-outside": "eps added to the root",
}

_CAP = sp.Symbol("c", positive=True)

ATTENTIONS: dict[str, tuple[Map, str, str]] = {
    "attention": (
        Attention(),
        "multi-head; where heads share keys and values, their weights are equal",
        "",
    ),
    "causal-attention": (
        Attention(causal=True),
        "token i sees tokens j <= i",
        "Vaswani et al., Attention Is All You Need, 2017, section 3.2.3",
    ),
    "masked-attention": (Attention(masked=True), "a given mask: windows, padding", ""),
    "rotary-attention": (
        Attention(rotary=True),
        "R[i] turns all or some of a head's features, in halves or interleaved",
        "Su et al., RoFormer, 2021, arXiv:2104.09864",
    ),
    "qk-norm": (
        Attention(query_norm=RMSNorm("q"), key_norm=RMSNorm("k")),
        "norm of each head's query and key: Qwen 3, Gemma 3",
        "Henry et al., Query-Key Normalization for Transformers, 2020, arXiv:2010.04245",
    ),
    "qk-norm-full": (
        Attention(query_norm=RMSNorm("q"), key_norm=RMSNorm("k"), full_norm=True),
        "norm of query and key over all heads together: OLMo 2",
        "OLMo Team, 2 OLMo 2 Furious, 2025, arXiv:2501.00656",
    ),
    "qkv-norm": (
        Attention(query_norm=RMSNorm("q"), key_norm=RMSNorm("k"), value_norm=RMSNorm("v")),
        "HybridNorm",
        "Zhuo et al., HybridNorm, 2025, arXiv:2503.04598",
    ),
    "cosine-attention": (
        Attention(query_norm=L2Norm("q"), key_norm=L2Norm("k"), scale=symbols.scale),
        "unit queries and keys: Swin v2, nGPT",
        "Liu et al., Swin Transformer V2, 2021, arXiv:2111.09883",
    ),
    "softcap": (
        Attention(softcap=_CAP),
        "S = c tanh(S0/c): Gemma 2",
        "Gemma Team, Gemma 2, 2024, arXiv:2408.00118",
    ),
    "score-bias": (
        Attention(score_bias=True),
        "a constant in the score: ALiBi, relative bias",
        "Press et al., ALiBi, 2021, arXiv:2108.12409; Raffel et al., T5, 2019, arXiv:1910.10683",
    ),
    "sinks": (
        Attention(sinks=True),
        "a constant in the partition: gpt-oss",
        "the code of gpt-oss in transformers",
    ),
    "gated-attention": (
        Attention(gate=activation("sigmoid")),
        "each head's output times a gate of the input: AFMoE, HRM",
        "the code of AFMoE in transformers",
    ),
    "latent-attention": (
        LatentAttention(query_norm=RMSNorm("q"), key_norm=RMSNorm("k")),
        "queries, keys and values from small normed latents (MLA): DeepSeek-V3, MiniCPM3",
        "",
    ),
    "cross-attention": (
        CrossAttention(),
        "keys and values of a constant memory: decoders",
        "",
    ),
}
"""Attention by its options, each with a note and a source (by default that of its class)."""

FEED_FORWARDS: dict[str, tuple[Map, str, str]] = {
    "abstract": (Sublayer("F"), "any differentiable map", ""),
    "ffn": (FFN("phi"), "with biases; the activation is any of those below", ""),
    "gated": (GatedFFN("phi"), "SwiGLU with silu, GeGLU with gelu", ""),
    "moe": (
        MoE(2, "phi"),
        "two experts a token; holds inside a routing cell, jumps where two experts tie",
        "",
    ),
}
"""Sublayers that act on each token alone, each with a note and a source."""

DEEPNORM: tuple[Row, ...] = (
    {
        "stack": "encoder only, N layers",
        "alpha": "(2 N)^(1/4)",
        "beta": "(8 N)^(-1/4)",
    },
    {
        "stack": "decoder only, M layers",
        "alpha": "(2 M)^(1/4)",
        "beta": "(8 M)^(-1/4)",
    },
    {
        "stack": "encoder-decoder, the encoder",
        "alpha": "0.81 (N^4 M)^(1/16)",
        "beta": "0.87 (N^4 M)^(-1/16)",
    },
    {
        "stack": "encoder-decoder, the decoder",
        "alpha": "(3 M)^(1/4)",
        "beta": "(12 M)^(-1/4)",
    },
)
"""The constants of DeepNorm; beta scales feed-forward, value and output projections only."""

CORRECTIONS: tuple[Row, ...] = (
    {
        "system": "T5",
        "common": "post-norm, LayerNorm",
        "fact": "pre-norm; the norm is RMSNorm: no mean, no bias",
        "evidence": "`derive check t5-encoder t5-decoder`; T5LayerFF adds the branch of the normed "
        "state to the state itself",
    },
    {
        "system": "BART and mBART",
        "common": "one placement for both",
        "fact": "BART is post-norm, mBART pre-norm with a final norm",
        "evidence": "`derive check bart-encoder bart-decoder mbart mbart-decoder`",
    },
    {
        "system": "OPT-350m",
        "common": "pre-norm, as all sizes of OPT",
        "fact": "post-norm: the one size with do_layer_norm_before = False",
        "evidence": "`derive check opt opt-350m` checks both branches of OPTDecoderLayer; which of "
        "them a released size takes is in its configuration file, recalled here",
    },
    {
        "system": "GPT-2",
        "common": "24 layers",
        "fact": "the small model has 12, medium 24, large 36, XL 48",
        "evidence": "12 is the default of GPT2Config; the others are recalled",
    },
    {
        "system": "DeepNorm",
        "common": "alpha = (2 N)^(1/4), beta = (8 N)^(-1/4) for every stack",
        "fact": "only for an encoder or a decoder alone; an encoder-decoder has two further pairs",
        "evidence": "the table below, read in the code of torchscale and in a summary of the "
        "paper, not in the paper",
    },
    {
        "system": "normed residual",
        "common": "a kind of pre-norm, since the norm comes first",
        "fact": "the skip leaves from behind the norm, so there is no identity path",
        "evidence": "the Jacobian below: J_N is a right factor of all of it",
    },
    {
        "system": "GPT-NeoX and Falcon-40b",
        "common": "parallel with one norm, as GPT-J",
        "fact": "two norms of the same input, one for each branch",
        "evidence": "`derive check gpt-neox falcon-40b`",
    },
)
"""What tables in circulation get wrong, what is right, and what shows it."""


def _reference(kind: type) -> str:
    """Return the references of a class's docstring on one line."""
    _, _, rest = (inspect.getdoc(kind) or "").partition("References\n----------\n")
    return " ".join(rest.split()).replace("*", "").removesuffix(".")


def _where(D: Derivation) -> dict[str, str]:
    return {text(name): text(name.definition) for name in D.lets}


@lru_cache(maxsize=64)
def placement_derivation(name: str) -> Derivation:
    """Derive a placement with its own norm or LayerNorm, its sublayers abstract where they can be.

    A placement with a norm inside a sublayer is derived with concrete sublayers, since that norm is
    all that tells it from another one.

    Raises
    ------
    UnknownNameError
        If there is no such placement.
    """
    entry = placement(name)
    concrete = entry.inner_norm or entry.value_norm
    return derivation(block(name, "layernorm", "ffn:phi" if concrete else "abstract"), state())


@lru_cache(maxsize=16)
def stream_derivations(name: str) -> dict[tuple[str, str], Derivation]:
    """Derive the block matrix of a placement with several streams, its sublayers abstract."""
    return streams(name)


@lru_cache(maxsize=32)
def norm_derivation(name: str) -> Derivation:
    """Derive a norm of `NORM_VARIANTS` at the state itself."""
    kind, options = NORM_VARIANTS[name]
    x = state()
    return derivation(norm(kind, **options)(x), x)


@lru_cache(maxsize=64)
def sublayer_derivation(name: str) -> Derivation:
    """Derive a sublayer of `FEED_FORWARDS` or `ATTENTIONS`, or ``dropout``, at the state itself."""
    x = state()
    if name == "dropout":
        return derivation(parse_block("lam*F(x)", {"F": Sublayer("F")}, x, vectors=VECTORS), x)
    mapping, *_ = {**FEED_FORWARDS, **ATTENTIONS}[name]
    return derivation(mapping(x), x)


def placement_rows() -> list[Row]:
    """Return the placements: of a block, of a layer, with several streams, mixed by layer."""
    rows = []
    for entry in PLACEMENTS.values():
        D = placement_derivation(entry.name)
        rows.append(
            {
                "name": entry.name,
                "kind": "layer" if entry.is_layer else "block",
                "equation": entry.equation,
                "jacobian": text(D.jacobian),
                "where": _where(D),
                "residual": entry.residual,
                "source": entry.source,
                "used_by": entry.used_by,
                "scalars": {k: text(v) for k, v in entry.scalars.items()},
            }
        )
    for many in STREAMS.values():
        found = stream_derivations(many.name)
        rows.append(
            {
                "name": many.name,
                "kind": "streams",
                "equation": "; ".join(f"{k}' = {v}" for k, v in many.equations.items()),
                "jacobian": "; ".join(
                    f"d{out}'/d{by} = {text(D.jacobian)}" for (out, by), D in found.items()
                ),
                "where": {k: v for D in found.values() for k, v in _where(D).items()},
                "residual": many.residual,
                "source": many.source,
                "used_by": many.used_by,
                "scalars": {k: text(v) for k, v in many.scalars.items()},
            }
        )
    for mix in MIXES.values():
        rows.append(
            {
                "name": mix.name,
                "kind": "mix",
                "equation": mix.equation,
                "jacobian": "the product of the Jacobians of its layers",
                "where": {},
                "residual": "that of each layer's own placement",
                "source": mix.source,
                "used_by": "",
                "scalars": {},
            }
        )
    return rows


def norm_rows() -> list[Row]:
    """Return the norms and their options."""
    rows = []
    for name, (kind, options) in NORM_VARIANTS.items():
        D = norm_derivation(name)
        rows.append(
            {
                "name": name,
                "kind": kind,
                "options": options,
                "equation": text(D.block.body.output),
                "jacobian": text(D.jacobian),
                "where": _where(D),
                "note": NORM_NOTES.get(name, ""),
                "source": _reference(NORMS[kind]),
            }
        )
    return rows


def sublayer_rows() -> list[Row]:
    """Return the sublayers, the options of attention, and the activations."""
    rows = []
    for table, kind in ((FEED_FORWARDS, "feed-forward"), (ATTENTIONS, "attention")):
        for name, (mapping, note, source) in table.items():
            D = sublayer_derivation(name)
            body = D.block.body
            rows.append(
                {
                    "name": name,
                    "kind": kind,
                    "equation": text(D.block if body is None else body.output),
                    "jacobian": text(D.token_block() if D.mixes_tokens else D.jacobian),
                    "where": _where(D),
                    "note": note,
                    "source": source or _reference(type(mapping)).partition("; rotary")[0],
                }
            )
    D = sublayer_derivation("dropout")
    rows.append(
        {
            "name": "dropout",
            "kind": "mask",
            "equation": text(D.block),
            "jacobian": text(D.jacobian),
            "where": {},
            "note": "the mask lam is constant: zeros, and 1/(1 - p) where a feature is kept",
            "source": "Srivastava et al., Dropout, 2014",
        }
    )
    t = sp.Symbol("t", real=True)
    for name, function in ACTIVATIONS.items():
        rows.append(
            {
                "name": name,
                "kind": "activation",
                "equation": "any" if function.is_abstract else text(function.derivative(0)(t)),
                "jacobian": f"diag({name}'(a))"
                if function.is_abstract
                else text(function.derivative(1)(t)),
                "where": {},
                "note": "of one entry t",
                "source": "",
            }
        )
    return rows


def system_rows() -> list[Row]:
    """Return the systems, with which numbers were compared with what."""
    return [entry.as_dict() for entry in SYSTEMS_TABLE.values()]


CATALOGUES: dict[str, Callable[[], list[Row]]] = {
    "placements": placement_rows,
    "norms": norm_rows,
    "sublayers": sublayer_rows,
    "systems": system_rows,
}


def catalogue(what: str) -> list[Row]:
    """Return the rows of one table.

    Parameters
    ----------
    what : str
        ``placements``, ``norms``, ``sublayers`` or ``systems``.

    Raises
    ------
    UnknownNameError
        If there is no such table.
    """
    try:
        return CATALOGUES[what]()
    except KeyError:
        raise UnknownNameError(
            f"catalogue: expected one of {', '.join(CATALOGUES)}, got {what!r}"
        ) from None
