r"""Placements: where the normalisation sits in a residual block, one declarative entry each.

The equation is a text in ``x`` (the state), norms ``N``, ``N1`` ..., sublayers ``F`` (feed-forward
or any), ``A`` (self-attention) and ``C`` (cross-attention), constant scalars (``alpha``, ``beta``)
and constant vectors (``lam``, ``omega``); everything else (Jacobian, LaTeX, numbers, checks, docs)
follows from it. An equation with ``A`` is a whole layer, one without is a single block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy as sp

from derive.errors import DomainError, UnknownNameError
from derive.symbols import L, l

__all__ = [
    "ALIASES",
    "MIXES",
    "PLACEMENTS",
    "STREAMS",
    "WITHOUT_EQUATION",
    "Mix",
    "Placement",
    "StreamPlacement",
    "all_placements",
    "canonical",
    "placement",
    "stream_placement",
]


@dataclass(frozen=True)
class Placement:
    """One way to place the norm.

    Attributes
    ----------
    name : str
        How it is asked for.
    equation : str
        The block, or the layer; parsed, never evaluated.
    source : str
        Where it was published or first used.
    residual : str
        What the residual path does to the gradient.
    used_by : str
        Systems that use it.
    inner_norm : bool
        Whether the feed-forward sublayer holds a norm before its output projection.
    value_norm : bool
        Whether the attention normalises queries, keys and values.
    norm : str
        The kind of norm that belongs to it, where it is not the user's choice.
    scalars : mapping from str to expression
        What its scalars and constant vectors are at the start of training: numbers, or functions of
        the number of blocks ``L`` and of the block's own number ``l``, counted from 1.
    """

    name: str
    equation: str
    source: str
    residual: str
    used_by: str = ""
    inner_norm: bool = False
    value_norm: bool = False
    norm: str = ""
    scalars: Mapping[str, sp.Expr] = field(default_factory=dict, hash=False)

    @property
    def is_layer(self) -> bool:
        """Whether the equation is a whole layer."""
        return "A(" in self.equation


@dataclass(frozen=True)
class StreamPlacement:
    """A placement with several streams: its Jacobian is a block matrix.

    Attributes
    ----------
    name, source, residual, used_by, scalars
        As for `Placement`.
    equations : mapping from str to str
        The new value of each stream, in terms of all streams.
    """

    name: str
    equations: Mapping[str, str] = field(hash=False)
    source: str = ""
    residual: str = ""
    used_by: str = ""
    scalars: Mapping[str, sp.Expr] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Mix:
    """A stack whose placement changes with depth.

    Attributes
    ----------
    name, source
        As for `Placement`.
    parts : tuple of (str, Rational)
        Placements in order, each with the share of the depth at which it ends; the last ends at 1.
        A share of the depth is rounded down to whole blocks.
    """

    name: str
    parts: tuple[tuple[str, sp.Rational], ...]
    source: str

    @property
    def equation(self) -> str:
        """Which placement is where, in words."""
        start = sp.S.Zero
        words = []
        for name, end in self.parts:
            words.append(f"{name} from {start} L to {end} L")
            start = end
        return ", ".join(words)

    def layout(self, blocks: int) -> tuple[str, ...]:
        """Return the placement of each of so many blocks.

        Raises
        ------
        DomainError
            If `blocks` is negative.
        """
        if blocks < 0:
            raise DomainError(f"blocks: expected at least 0, got {blocks}")
        found: list[str] = []
        for name, end in self.parts:
            found += [name] * (int(sp.floor(end * blocks)) - len(found))
        return tuple(found)


_REGISTERED = (
    Placement(
        "post",
        "N(x + F(x))",
        "Vaswani et al., Attention Is All You Need, 2017, section 3.1",
        "multiplied by J_N at every block; 1'diag(gain)^-1 J = 0 whatever the sublayer",
        "the 2017 Transformer, BERT, GPT-1, BART, OPT-350m",
    ),
    Placement(
        "pre",
        "x + F(N(x))",
        "Baevski and Auli, 2018; Xiong et al., On Layer Normalization in the Transformer "
        "Architecture, 2020, arXiv:2002.04745",
        "the identity: untouched",
        "GPT-2, GPT-3, T5, mBART, Llama, Mistral, Qwen, most of OPT",
    ),
    Placement(
        "pre-final",
        "N2(x + F(N1(x)))",
        "Radford et al., Language Models are Unsupervised Multitask Learners, 2019",
        "the identity inside the stack, then one J_N for the final norm",
        "the last block of every pre-norm model that ends in a norm",
    ),
    Placement(
        "normed-residual",
        "c = N(x); c + F(c)",
        "apply_residual_connection_post_layernorm of Megatron-LM and BLOOM",
        "multiplied by J_N at every block: looks like pre-norm, has no identity path",
        "BLOOM with its flag",
    ),
    Placement(
        "scaled-normed-residual",
        "c = N(x); alpha*c + beta*F(c)",
        "MiniMax-01, 2025, arXiv:2501.08313; the code of transformers",
        "multiplied by alpha J_N at every block",
        "MiniMax",
        scalars={"alpha": L ** sp.Rational(1, 4), "beta": sp.S.One},
    ),
    Placement(
        "sandwich",
        "x + N2(F(N1(x)))",
        "Ding et al., CogView, 2021, arXiv:2105.13290; as peri-norm: Kim et al., 2025, "
        "arXiv:2502.02732",
        "the identity: untouched",
        "CogView, Gemma 2, Gemma 3, GLM-4",
    ),
    Placement(
        "res-post",
        "x + N(F(x))",
        "Liu et al., Swin Transformer V2, 2021, arXiv:2111.09883",
        "the identity: untouched",
        "Swin v2, OLMo 2, EXAONE 4",
    ),
    Placement(
        "parallel",
        "c = N1(x); x + A(c) + F(c)",
        "Wang and Komatsuzaki, GPT-J, 2021; Chowdhery et al., PaLM, 2022, arXiv:2204.02311",
        "the identity: untouched; the branches add, without the cross term of two blocks",
        "GPT-J, PaLM, Falcon-7b, Phi, Cohere",
    ),
    Placement(
        "parallel-two-norms",
        "x + A(N1(x)) + F(N2(x))",
        "Black et al., GPT-NeoX-20B, 2022, arXiv:2204.06745",
        "the identity: untouched; equal to the shared norm where the gains are equal",
        "GPT-NeoX, Pythia, Falcon-40b",
    ),
    Placement(
        "deepnorm",
        "N(alpha*x + F(x))",
        "Wang et al., DeepNet, 2022, arXiv:2203.00555",
        "multiplied by alpha J_N; alpha grows with depth, the product tends to the identity",
        "DeepNet-1000, GLM-130B",
        scalars={"alpha": L ** sp.Rational(1, 4)},
    ),
    Placement(
        "admin",
        "N(omega*x + F(x))",
        "Liu et al., Understanding the Difficulty of Training Transformers, 2020, arXiv:2004.08249",
        "multiplied by J_N diag(omega), omega profiled from the branch variances",
        "Admin 60-12",
    ),
    Placement(
        "b2t",
        "y_A = N1(x + A(x)); N2(x + y_A + F(y_A))",
        "Takase et al., B2T Connection, 2022, arXiv:2206.00330",
        "one J_N a layer on the bottom-to-top skip, where post-norm has two",
    ),
    Placement(
        "hybridnorm",
        "y_A = x + A(x); c = N1(y_A); c + F(c)",
        "Zhuo et al., HybridNorm, 2025, arXiv:2503.04598",
        "one J_N a layer; the attention block keeps the identity",
        value_norm=True,
    ),
    Placement(
        "lns",
        "x + F(beta*N(x))",
        "Sun et al., The Curse of Depth, 2025, arXiv:2502.05795: beta = 1/sqrt(layer)",
        "the identity: untouched; branches shrink with depth",
        scalars={"beta": 1 / sp.sqrt(l)},
    ),
    Placement(
        "normformer",
        "y_A = x + N2(A(N1(x))); y_A + F(N3(y_A))",
        "Shleifer et al., NormFormer, 2021, arXiv:2110.09456",
        "the identity: untouched",
        inner_norm=True,
    ),
    Placement(
        "sub-ln",
        "x + F(N(x))",
        "Wang et al., Foundation Transformers (Magneto), 2022, arXiv:2210.06423",
        "the identity: untouched",
        inner_norm=True,
    ),
    Placement(
        "rezero",
        "x + alpha*F(x)",
        "Bachlechner et al., ReZero, 2020, arXiv:2003.04887: alpha = 0 at the start",
        "the identity: untouched, and J = I at the start",
        scalars={"alpha": sp.S.Zero},
    ),
    Placement(
        "skipinit",
        "x + alpha*F(x)",
        "De and Smith, 2020, arXiv:2002.10444: alpha = 0 or 1/sqrt(L) at the start",
        "the identity: untouched",
        scalars={"alpha": 1 / sp.sqrt(L)},
    ),
    Placement(
        "fixup",
        "x + alpha*F(x)",
        "Zhang et al., Fixup Initialization, 2019, arXiv:1901.09321: no norm, weights scaled by "
        "L^(-1/(2m-2))",
        "the identity: untouched",
        scalars={"alpha": sp.S.One},
    ),
    Placement(
        "layerscale",
        "x + lam*F(N(x))",
        "Touvron et al., Going deeper with Image Transformers, 2021, arXiv:2103.17239",
        "the identity: untouched; each branch feature has its own small weight",
        "CaiT, DINOv2",
        scalars={
            "lam": sp.Piecewise(
                (sp.Rational(1, 10), L <= 36),
                (sp.Rational(1, 10**5), L <= 48),
                (sp.Rational(1, 10**6), True),
            )
        },
    ),
    Placement(
        "scaled-residual",
        "x + alpha*F(N(x))",
        "Hu et al., MiniCPM, 2024, arXiv:2404.06395; the code of Granite",
        "the identity: untouched",
        "Granite, MiniCPM; at initialisation GPT-2 with its 1/sqrt(N)",
        scalars={"alpha": 1 / sp.sqrt(L)},
    ),
    Placement(
        "ngpt",
        "g = N1(F(x)); N2(x + lam*(g - x))",
        "Loshchilov et al., nGPT, 2024, arXiv:2410.01131",
        "a convex combination, then the projection of the sphere",
        "nGPT",
        norm="l2norm",
        scalars={"lam": sp.Rational(1, 20)},
    ),
    Placement(
        "keel",
        "N2(alpha*x + F(N1(x)))",
        "Keel, 2026, arXiv:2601.19895, seen in secondary sources only",
        "multiplied by alpha J_N with alpha = L: the product tends to the identity",
        scalars={"alpha": L},
    ),
    Placement(
        "spannorm",
        "y_A = N1(x + A(x)); N2(x + F(y_A))",
        "SpanNorm, 2026, arXiv:2601.22580, seen in secondary code only",
        "one J_N a layer on the skip from the layer's input",
    ),
    Placement(
        "decoder-2017",
        "y_A = N1(x + A(x)); y_C = N2(y_A + C(y_A)); N3(y_C + F(y_C))",
        "Vaswani et al., Attention Is All You Need, 2017, figure 1 (right)",
        "multiplied by three J_N a layer",
        "the 2017 Transformer's decoder, BART's decoder",
    ),
    Placement(
        "decoder-pre",
        "y_A = x + A(N1(x)); y_C = y_A + C(N2(y_A)); y_C + F(N3(y_C))",
        "Xiong et al., 2020, arXiv:2002.04745",
        "the identity: untouched",
        "T5's decoder, mBART, Pegasus",
    ),
    Placement(
        "no-norm",
        "x + F(x)",
        "He et al., Deep Residual Learning, 2015, arXiv:1512.03385",
        "the identity: untouched; nothing bounds the branch",
        "the first attention block of ModernBERT",
    ),
    Placement(
        "pre-mlp",
        "y_A = x + A(x); y_A + F(N(y_A))",
        "Warner et al., ModernBERT, 2024, arXiv:2412.13663: the embeddings are normed already",
        "the identity: untouched; nothing bounds the attention branch",
        "the first layer of ModernBERT",
    ),
)

PLACEMENTS: dict[str, Placement] = {p.name: p for p in _REGISTERED}

_STREAMS = (
    StreamPlacement(
        "residual",
        {"x": "N(x + F(x))", "r": "r + F(x)"},
        "Xie et al., ResiDual, 2023, arXiv:2304.14802",
        "the second stream carries the identity, the first is post-norm",
        "ResiDual",
    ),
    StreamPlacement(
        "siamesenorm",
        {"x": "N1(x + F(x + N2(r)))", "r": "r + F(x + N2(r))"},
        "SiameseNorm, 2026, arXiv:2602.08064, seen in a secondary source only",
        "the second stream carries the identity, the first is post-norm",
    ),
    StreamPlacement(
        "hyper-connections",
        {
            "x": "a11*x + a12*r + b1*F(N(c1*x + c2*r))",
            "r": "a21*x + a22*r + b2*F(N(c1*x + c2*r))",
        },
        "Zhu et al., Hyper-Connections, 2024, arXiv:2409.19606, with two static streams",
        "the matrix (a): its product over depth, not the identity",
        scalars={
            **dict.fromkeys(("a11", "a22", "b1", "b2"), sp.S.One),
            **dict.fromkeys(("a12", "a21"), sp.S.Zero),
            "c1": sp.Mod(l, 2),
            "c2": 1 - sp.Mod(l, 2),
        },
    ),
    StreamPlacement(
        "mhc",
        {
            "x": "(1 - a)*x + a*r + b1*F(N(c1*x + c2*r))",
            "r": "a*x + (1 - a)*r + b2*F(N(c1*x + c2*r))",
        },
        "mHC, 2025, arXiv:2512.24880: the matrix of the streams is doubly stochastic",
        "a doubly stochastic matrix: its product has norm 1 and averages the streams",
        "DeepSeek-V4",
    ),
)

STREAMS: dict[str, StreamPlacement] = {p.name: p for p in _STREAMS}

STREAM_SCALARS = ("a", "a11", "a12", "a21", "a22", "b1", "b2", "c1", "c2")

_MIXES = (
    Mix(
        "mix-ln",
        (("post", sp.Rational(1, 4)), ("pre", sp.S.One)),
        "Li et al., Mix-LN, 2024, arXiv:2412.13795: post-norm in the first quarter of the layers",
    ),
)

MIXES: dict[str, Mix] = {m.name: m for m in _MIXES}

WITHOUT_EQUATION = {
    "GeoNorm": "arXiv:2601.22095; only its abstract was seen, which states no equation",
    "AttnRes": "2026, seen in a secondary source only: the input of a layer is a softmax-weighted "
    "sum of all earlier outputs, so that a block is no function of the state before it",
    "Kan et al.": "arXiv:2510.09904; only its abstract was seen, which states no equation",
}
"""Proposals that are known by name and are not in the tables, each with the reason."""


ALIASES = {
    "post-norm": "post",
    "post-ln": "post",
    "pre-norm": "pre",
    "pre-ln": "pre",
    "peri": "sandwich",
    "peri-norm": "sandwich",
    "peri-ln": "sandwich",
    "res-post-norm": "res-post",
    "layernorm-scaling": "lns",
}
"""Other names of placements in the literature."""


def all_placements() -> tuple[str, ...]:
    """Return the names of every placement of the catalogue, of all kinds."""
    return (*PLACEMENTS, *STREAMS, *MIXES)


def canonical(name: str) -> str:
    """Return the name under which the catalogue has a placement; an equation in lower case."""
    key = name.lower()
    return ALIASES.get(key, key)


def placement(name: str) -> Placement:
    """Return the placement of that name.

    Raises
    ------
    UnknownNameError
        If there is none; the message lists those there are.
    """
    try:
        return PLACEMENTS[canonical(name)]
    except KeyError:
        raise UnknownNameError(
            f"placement: expected one of {', '.join(PLACEMENTS)} or a block such as "
            f"'x + F(N(x))', got {name!r}"
        ) from None


def stream_placement(name: str) -> StreamPlacement:
    """Return the placement with several streams of that name.

    Raises
    ------
    UnknownNameError
        If there is none; the message lists those there are.
    """
    try:
        return STREAMS[canonical(name)]
    except KeyError:
        raise UnknownNameError(
            f"placement with streams: expected one of {', '.join(STREAMS)}, got {name!r}"
        ) from None
