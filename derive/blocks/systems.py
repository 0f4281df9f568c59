r"""Presets: how the systems of the field are built, one row each, and where every number is from.

`System.verified` says it for each number: "*fields*: *where*" for what a test compares with an
installed package, "recalled" for what was written down from memory of a paper or a release and
has not been compared with it here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from derive.errors import UnknownNameError

__all__ = ["SYSTEMS_TABLE", "System", "system"]


@dataclass(frozen=True)
class System:
    r"""One system.

    Attributes
    ----------
    name : str
        How it is asked for.
    depth : int
        Layers; of the encoder where there is a decoder as well.
    width, heads, kv_heads : int
        Features, query heads, and heads of keys and values (fewer than `heads` where they share).
    norm : str
        Kind of norm, as for `derive.norm`.
    eps : float or None
        Constant of the norm; None where it is not known here.
    placement : str
        As for `derive.placement`.
    feed_forward : str
        As for `derive.sublayer`.
    attention : str
        What is particular about the attention.
    init : str
        Initialisation of the weights.
    final_norm : bool
        Whether a norm follows the last layer.
    year : int
        Of the publication.
    source : str
        The publication.
    notes : str
        What the columns do not say.
    config : str or None
        Class whose defaults are this system, to be compared with.
    verified : str
        Which numbers were compared with what; "recalled" for the rest.
    hidden : int
        Hidden width of the feed-forward sublayer.
    decoder_depth : int
        Layers of the decoder where there is an encoder as well, otherwise 0.
    """

    name: str
    depth: int
    width: int
    heads: int
    kv_heads: int
    norm: str
    eps: float | None
    placement: str
    feed_forward: str
    attention: str
    init: str
    final_norm: bool
    year: int
    source: str
    notes: str = ""
    config: str | None = None
    verified: str = "recalled"
    hidden: int = 0
    decoder_depth: int = 0

    @property
    def checked(self) -> tuple[str, ...]:
        """The fields that a test compares with the defaults of `config`."""
        named, colon, _ = self.verified.partition(": ")
        return tuple(named.split(", ")) if colon else ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


_LAYERS = "depth, width, heads"
_ALL = "depth, width, heads, hidden, eps"


def _defaults(named: str, config: str) -> dict[str, str]:
    return {
        "config": config,
        "verified": f"{named}: defaults of {config}; the rest recalled",
    }


_VASWANI = {
    "norm": "layernorm",
    "eps": None,
    "placement": "post",
    "feed_forward": "ffn:relu",
    "attention": "multi-head; the decoder attends to the encoder too",
    "init": "Xavier",
    "final_norm": False,
    "year": 2017,
    "source": "Vaswani et al., Attention Is All You Need, 2017, arXiv:1706.03762, table 3",
}
_BERT = {
    "norm": "layernorm",
    "eps": 1e-12,
    "placement": "post",
    "feed_forward": "ffn:gelu",
    "attention": "multi-head, bidirectional",
    "init": "N(0, 0.02^2)",
    "final_norm": False,
    "year": 2018,
    "source": "Devlin et al., BERT, 2018, arXiv:1810.04805",
}
_GPT2 = {
    "norm": "layernorm",
    "eps": 1e-5,
    "placement": "pre",
    "feed_forward": "ffn:gelu_tanh",
    "attention": "multi-head, causal",
    "init": "N(0, 0.02^2), output projections times 1/sqrt(N), N residual sublayers",
    "final_norm": True,
    "year": 2019,
    "source": "Radford et al., Language Models are Unsupervised Multitask Learners, 2019",
}
_VIT = {
    "norm": "layernorm",
    "eps": 1e-6,
    "placement": "pre",
    "feed_forward": "ffn:gelu",
    "attention": "multi-head, bidirectional",
    "init": "Xavier",
    "final_norm": True,
    "year": 2020,
    "source": "Dosovitskiy et al., An Image is Worth 16x16 Words, 2020, arXiv:2010.11929, table 1",
}
_T5 = {
    "norm": "rmsnorm",
    "eps": 1e-6,
    "placement": "pre",
    "feed_forward": "ffn:relu",
    "attention": "multi-head without 1/sqrt(d_h), relative position bias",
    "init": "fan-in scaled, the scale of the scores absorbed into W_Q",
    "final_norm": True,
    "year": 2019,
    "source": "Raffel et al., T5, 2019, arXiv:1910.10683, section 2.1",
    "notes": "the norm has no bias and subtracts no mean; the paper calls it a simplified layer "
    "normalisation outside the residual path",
}
_BART = {
    "norm": "layernorm",
    "eps": 1e-5,
    "feed_forward": "ffn:gelu",
    "attention": "multi-head; the decoder attends to the encoder too",
    "init": "N(0, 0.02^2)",
}
_LLAMA = {
    "norm": "rmsnorm",
    "eps": 1e-5,
    "placement": "pre",
    "feed_forward": "gated:silu",
    "init": "N(0, 0.02^2)",
    "final_norm": True,
}
_LLAMA2 = {
    **_LLAMA,
    "year": 2023,
    "source": "Touvron et al., Llama 2, 2023, arXiv:2307.09288",
}
_LLAMA31 = {
    **_LLAMA,
    "attention": "grouped-query, causal, rotary",
    "kv_heads": 8,
    "year": 2024,
    "source": "Grattafiori et al., The Llama 3 Herd of Models, 2024, arXiv:2407.21783, table 3",
}
_QWEN = {
    **_LLAMA,
    "eps": 1e-6,
}
_GEMMA = {
    "norm": "rmsnorm",
    "eps": 1e-6,
    "placement": "sandwich",
    "feed_forward": "gated:gelu_tanh",
    "init": "N(0, 0.02^2)",
    "final_norm": True,
    "notes": "the gain is stored as its difference from one",
}
_GEMMA2 = {
    **_GEMMA,
    "attention": "grouped-query, causal, rotary, softcap 50; every other layer windowed",
    "year": 2024,
    "source": "Gemma Team, Gemma 2, 2024, arXiv:2408.00118, table 1",
}
_GEMMA3 = {
    **_GEMMA,
    "attention": "grouped-query, causal, rotary, norm of query and key; five layers in six "
    "windowed",
    "year": 2025,
    "source": "Gemma Team, Gemma 3, 2025, arXiv:2503.19786",
}
_OLMO2 = {
    **_LLAMA,
    "eps": 1e-6,
    "placement": "res-post",
    "attention": "multi-head, causal, rotary, norm of query and key over all heads",
    "year": 2025,
    "source": "OLMo Team, 2 OLMo 2 Furious, 2025, arXiv:2501.00656",
}
_PARALLEL = {
    "norm": "layernorm",
    "eps": 1e-5,
    "placement": "parallel",
    "init": "N(0, 0.02^2)",
    "final_norm": True,
}
_OPT = {
    "norm": "layernorm",
    "eps": 1e-5,
    "placement": "pre",
    "feed_forward": "ffn:relu",
    "attention": "multi-head, causal",
    "init": "N(0, 0.006^2), output projections times 1/sqrt(2 L)",
    "final_norm": True,
    "year": 2022,
    "source": "Zhang et al., OPT, 2022, arXiv:2205.01068, table 1",
}
_DEEPNET = {
    "norm": "layernorm",
    "eps": None,
    "placement": "deepnorm",
    "attention": "multi-head; the decoder attends to the encoder too",
    "final_norm": False,
    "year": 2022,
}
_NGPT = {
    "norm": "l2norm",
    "eps": 0.0,
    "placement": "ngpt",
    "feed_forward": "gated:silu",
    "attention": "multi-head, causal, rotary, unit queries and keys with a learned scale",
    "init": "N(0, 1/d), then every row on the unit sphere",
    "final_norm": False,
    "year": 2024,
    "source": "Loshchilov et al., nGPT, 2024, arXiv:2410.01131",
}


def _row(name: str, depth: int, width: int, heads: int, **columns: Any) -> System:
    columns.setdefault("kv_heads", heads)
    return System(name, depth, width, heads, **columns)


def _opt(size: str, depth: int, width: int, heads: int, **columns: Any) -> System:
    return _row(f"opt-{size}", depth, width, heads, hidden=4 * width, **{**_OPT, **columns})


_TORCH = _defaults("depth, decoder_depth, width, heads, hidden", "torch.nn.Transformer")

_ROWS = (
    _row("transformer-base", 6, 512, 8, hidden=2048, decoder_depth=6, **_VASWANI, **_TORCH),
    _row("transformer-big", 6, 1024, 16, hidden=4096, decoder_depth=6, **_VASWANI),
    _row("bert-base", 12, 768, 12, hidden=3072, **_BERT, **_defaults(_ALL, "BertConfig")),
    _row("bert-large", 24, 1024, 16, hidden=4096, **_BERT),
    _row(
        "gpt1",
        12,
        768,
        12,
        hidden=3072,
        **{
            **_GPT2,
            "placement": "post",
            "init": "N(0, 0.02^2)",
            "final_norm": False,
            "year": 2018,
            "source": "Radford et al., Improving Language Understanding by Generative "
            "Pre-Training, 2018",
        },
        **_defaults(f"{_LAYERS}, eps", "OpenAIGPTConfig"),
    ),
    _row(
        "gpt2-small",
        12,
        768,
        12,
        hidden=3072,
        **_GPT2,
        **_defaults(f"{_LAYERS}, eps", "GPT2Config"),
    ),
    _row("gpt2-medium", 24, 1024, 16, hidden=4096, **_GPT2),
    _row("gpt2-large", 36, 1280, 20, hidden=5120, **_GPT2),
    _row("gpt2-xl", 48, 1600, 25, hidden=6400, **_GPT2),
    _row(
        "gpt3-175b",
        96,
        12288,
        96,
        hidden=49152,
        **{
            **_GPT2,
            "eps": None,
            "attention": "multi-head, causal, alternately dense and locally banded",
            "year": 2020,
            "source": "Brown et al., GPT-3, 2020, arXiv:2005.14165, table 2.1",
        },
    ),
    _row(
        "vit-base",
        12,
        768,
        12,
        hidden=3072,
        **_VIT,
        notes="transformers has eps = 1e-12 by default",
        **_defaults(f"{_LAYERS}, hidden", "ViTConfig"),
    ),
    _row("vit-large", 24, 1024, 16, hidden=4096, **_VIT),
    _row(
        "t5-small",
        6,
        512,
        8,
        hidden=2048,
        decoder_depth=6,
        **_T5,
        **_defaults(f"decoder_depth, {_ALL}", "T5Config"),
    ),
    _row("t5-base", 12, 768, 12, hidden=3072, decoder_depth=12, **_T5),
    _row("t5-large", 24, 1024, 16, hidden=4096, decoder_depth=24, **_T5),
    _row("t5-3b", 24, 1024, 32, hidden=16384, decoder_depth=24, **_T5),
    _row("t5-11b", 24, 1024, 128, hidden=65536, decoder_depth=24, **_T5),
    _row(
        "bart-base",
        6,
        768,
        12,
        hidden=3072,
        decoder_depth=6,
        placement="post",
        final_norm=False,
        year=2019,
        source="Lewis et al., BART, 2019, arXiv:1910.13461",
        **_BART,
    ),
    _row(
        "bart-large",
        12,
        1024,
        16,
        hidden=4096,
        decoder_depth=12,
        placement="post",
        final_norm=False,
        year=2019,
        source="Lewis et al., BART, 2019, arXiv:1910.13461",
        **_BART,
        **_defaults("depth, decoder_depth, width, heads, hidden", "BartConfig"),
    ),
    _row(
        "mbart-large",
        12,
        1024,
        16,
        hidden=4096,
        decoder_depth=12,
        placement="pre",
        final_norm=True,
        year=2020,
        source="Liu et al., mBART, 2020, arXiv:2001.08210",
        **_BART,
        **_defaults("depth, decoder_depth, width, heads, hidden", "MBartConfig"),
    ),
    _row(
        "llama2-7b",
        32,
        4096,
        32,
        hidden=11008,
        attention="multi-head, causal, rotary",
        **_LLAMA2,
        **_defaults(f"{_LAYERS}, hidden", "LlamaConfig"),
    ),
    _row(
        "llama2-13b", 40, 5120, 40, hidden=13824, attention="multi-head, causal, rotary", **_LLAMA2
    ),
    _row(
        "llama2-70b",
        80,
        8192,
        64,
        kv_heads=8,
        hidden=28672,
        attention="grouped-query, causal, rotary",
        **_LLAMA2,
    ),
    _row("llama3.1-8b", 32, 4096, 32, hidden=14336, **_LLAMA31),
    _row("llama3.1-70b", 80, 8192, 64, hidden=28672, **_LLAMA31),
    _row("llama3.1-405b", 126, 16384, 128, hidden=53248, **_LLAMA31),
    _row(
        "mistral-7b",
        32,
        4096,
        32,
        kv_heads=8,
        hidden=14336,
        attention="grouped-query, causal, rotary, window of 4096",
        **_LLAMA,
        year=2023,
        source="Jiang et al., Mistral 7B, 2023, arXiv:2310.06825, table 1",
        **_defaults(f"{_LAYERS}, kv_heads, hidden", "MistralConfig"),
    ),
    _row(
        "qwen2-7b",
        28,
        3584,
        28,
        kv_heads=4,
        hidden=18944,
        attention="grouped-query, causal, rotary; biases on query, key and value",
        **_QWEN,
        year=2024,
        source="Yang et al., Qwen2, 2024, arXiv:2407.10671, table 1",
        notes="the defaults of Qwen2Config are another model's",
    ),
    _row(
        "qwen3-8b",
        36,
        4096,
        32,
        kv_heads=8,
        hidden=12288,
        attention="grouped-query, causal, rotary, norm of each head's query and key",
        **_QWEN,
        year=2025,
        source="Yang et al., Qwen3, 2025, arXiv:2505.09388, table 1",
        notes="the defaults of Qwen3Config are another model's",
    ),
    _row(
        "deepseek-v3",
        61,
        7168,
        128,
        hidden=18432,
        attention="multi-head latent, causal, partly rotary",
        **_QWEN,
        year=2024,
        source="DeepSeek-AI, DeepSeek-V3, 2024, arXiv:2412.19437, section 4.2",
        notes="the hidden width is that of the first three layers; the others are mixtures of "
        "experts",
        **_defaults(_ALL, "DeepseekV3Config"),
    ),
    _row(
        "gemma2-2b",
        26,
        2304,
        8,
        kv_heads=4,
        hidden=9216,
        **_GEMMA2,
        **_defaults(f"{_ALL}, kv_heads", "Gemma2Config"),
    ),
    _row("gemma2-9b", 42, 3584, 16, kv_heads=8, hidden=14336, **_GEMMA2),
    _row("gemma3-4b", 34, 2560, 8, kv_heads=4, hidden=10240, **_GEMMA3),
    _row("gemma3-12b", 48, 3840, 16, kv_heads=8, hidden=15360, **_GEMMA3),
    _row("gemma3-27b", 62, 5376, 32, kv_heads=16, hidden=21504, **_GEMMA3),
    _row(
        "olmo2-7b",
        32,
        4096,
        32,
        hidden=11008,
        **_OLMO2,
        **_defaults(f"{_LAYERS}, hidden", "Olmo2Config"),
    ),
    _row("olmo2-13b", 40, 5120, 40, hidden=13824, **_OLMO2),
    _row(
        "swinv2-tiny",
        12,
        96,
        3,
        hidden=384,
        norm="layernorm",
        eps=1e-5,
        placement="res-post",
        feed_forward="ffn:gelu",
        attention="cosine similarity in shifted windows, learned scale, relative position bias",
        init="N(0, 0.02^2)",
        final_norm=True,
        year=2021,
        source="Liu et al., Swin Transformer V2, 2021, arXiv:2111.09883",
        notes="four stages of 2, 2, 6, 2 layers; width and heads of the first, doubled at each",
        **_defaults("depth, width, heads, eps", "Swinv2Config"),
    ),
    _row(
        "gpt-j-6b",
        28,
        4096,
        16,
        hidden=16384,
        feed_forward="ffn:gelu_tanh",
        attention="multi-head, causal, rotary on 64 features of a head",
        **_PARALLEL,
        year=2021,
        source="Wang and Komatsuzaki, GPT-J-6B, 2021",
        **_defaults(f"{_LAYERS}, eps", "GPTJConfig"),
    ),
    _row(
        "gpt-neox-20b",
        44,
        6144,
        64,
        hidden=24576,
        feed_forward="ffn:gelu",
        attention="multi-head, causal, rotary on a quarter of the features",
        **{
            **_PARALLEL,
            "placement": "parallel-two-norms",
            "init": "small init, output projections wang_init 2/(L sqrt(d))",
        },
        year=2022,
        source="Black et al., GPT-NeoX-20B, 2022, arXiv:2204.06745",
        **_defaults(_ALL, "GPTNeoXConfig"),
    ),
    _row(
        "palm-540b",
        118,
        18432,
        48,
        kv_heads=1,
        hidden=73728,
        feed_forward="gated:silu",
        attention="multi-query, causal, rotary",
        **{**_PARALLEL, "eps": None, "init": "fan-in scaled, no biases"},
        year=2022,
        source="Chowdhery et al., PaLM, 2022, arXiv:2204.02311, table 1",
        notes="the norm has no bias",
    ),
    _row(
        "falcon-7b",
        32,
        4544,
        71,
        kv_heads=1,
        hidden=18176,
        feed_forward="ffn:gelu",
        attention="multi-query, causal, rotary",
        **_PARALLEL,
        year=2023,
        source="Almazrouei et al., Falcon, 2023, arXiv:2311.16867",
        **_defaults(f"{_LAYERS}, kv_heads, hidden, eps", "FalconConfig"),
    ),
    _row(
        "falcon-40b",
        60,
        8192,
        128,
        kv_heads=8,
        hidden=32768,
        feed_forward="ffn:gelu",
        attention="grouped-query, causal, rotary",
        **{**_PARALLEL, "placement": "parallel-two-norms"},
        year=2023,
        source="Almazrouei et al., Falcon, 2023, arXiv:2311.16867",
    ),
    _row(
        "phi-2",
        32,
        2560,
        32,
        hidden=10240,
        feed_forward="ffn:gelu_tanh",
        attention="multi-head, causal, rotary on 0.4 of the features",
        **_PARALLEL,
        year=2023,
        source="Microsoft Research, Phi-2, 2023",
        notes="the defaults of PhiConfig are those of the smaller Phi-1",
    ),
    _row(
        "command-r",
        40,
        8192,
        64,
        hidden=22528,
        feed_forward="gated:silu",
        attention="multi-head, causal, interleaved rotary",
        **_PARALLEL,
        year=2024,
        source="Cohere, Command R, 2024",
        notes="the norm has no bias",
        **_defaults(f"{_ALL}, kv_heads", "CohereConfig"),
    ),
    _opt("125m", 12, 768, 12, **_defaults(f"{_LAYERS}, hidden", "OPTConfig")),
    _opt(
        "350m",
        24,
        1024,
        16,
        placement="post",
        final_norm=False,
        notes="the only post-norm size; embeddings of width 512 are projected",
    ),
    _opt("1.3b", 24, 2048, 32),
    _opt("2.7b", 32, 2560, 32),
    _opt("6.7b", 32, 4096, 32),
    _opt("13b", 40, 5120, 40),
    _opt("30b", 48, 7168, 56),
    _opt("66b", 64, 9216, 72),
    _opt("175b", 96, 12288, 96),
    _row(
        "bloom-176b",
        70,
        14336,
        112,
        hidden=57344,
        norm="layernorm",
        eps=1e-5,
        placement="pre",
        feed_forward="ffn:gelu_tanh",
        attention="multi-head, causal, linear position bias (ALiBi)",
        init="N(0, 0.02^2), output projections times 1/sqrt(2 L)",
        final_norm=True,
        year=2022,
        source="BigScience Workshop, BLOOM, 2022, arXiv:2211.05100",
        notes="a norm after the embedding; the flag for the normed residual is off",
    ),
    _row(
        "deepnet-1000",
        500,
        512,
        8,
        hidden=2048,
        decoder_depth=500,
        feed_forward="ffn:relu",
        init="Xavier; feed-forward, value and output projections times beta",
        source="Wang et al., DeepNet, 2022, arXiv:2203.00555",
        notes="encoder and decoder of 500 layers each: 2500 sublayers",
        **_DEEPNET,
    ),
    _row(
        "glm-130b",
        70,
        12288,
        96,
        hidden=32768,
        feed_forward="gated:gelu",
        init="Xavier; feed-forward, value and output projections times (2 L)^(-1/2)",
        source="Zeng et al., GLM-130B, 2022, arXiv:2210.02414",
        notes="alpha = (2 L)^(1/2)",
        **{**_DEEPNET, "eps": 1e-5, "attention": "multi-head, rotary"},
    ),
    _row(
        "admin-60-12",
        60,
        512,
        8,
        hidden=2048,
        decoder_depth=12,
        norm="layernorm",
        eps=None,
        placement="admin",
        feed_forward="ffn:relu",
        attention="multi-head; the decoder attends to the encoder too",
        init="Xavier; omega from a profiling run",
        final_norm=False,
        year=2020,
        source="Liu et al., Very Deep Transformers for Neural Machine Translation, 2020, "
        "arXiv:2008.07772",
    ),
    _row(
        "cogview-4b",
        48,
        2560,
        40,
        hidden=10240,
        norm="layernorm",
        eps=1e-5,
        placement="sandwich",
        feed_forward="ffn:gelu",
        attention="multi-head, causal",
        init="N(0, 0.02^2)",
        final_norm=True,
        year=2021,
        source="Ding et al., CogView, 2021, arXiv:2105.13290",
    ),
    _row("ngpt-0.5b", 24, 1024, 16, hidden=4096, **_NGPT),
    _row("ngpt-1b", 36, 1280, 20, hidden=5120, **_NGPT),
)


def _named(rows: Iterable[System]) -> dict[str, System]:
    return {row.name: row for row in rows}


SYSTEMS_TABLE: dict[str, System] = _named(_ROWS)
"""The systems by name."""


def system(name: str) -> System:
    """Return the system of that name.

    Raises
    ------
    UnknownNameError
        If there is none; the message lists those there are.
    """
    try:
        return SYSTEMS_TABLE[name.lower()]
    except KeyError:
        raise UnknownNameError(
            f"system: expected one of {', '.join(SYSTEMS_TABLE)}, got {name!r}"
        ) from None
