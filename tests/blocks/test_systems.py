"""The systems: their numbers against the defaults of installed packages, and the facts."""

import dataclasses
import inspect
import re

import pytest

import derive
from derive.blocks.norms import NORMS
from derive.blocks.placements import PLACEMENTS
from derive.blocks.systems import SYSTEMS_TABLE, System, system
from derive.errors import UnknownNameError

ROWS = list(SYSTEMS_TABLE.values())
CHECKED = [row for row in ROWS if row.checked]

ATTRIBUTES = {
    "depth": ("encoder_layers", "num_hidden_layers", "n_layer", "num_encoder_layers"),
    "decoder_depth": ("decoder_layers", "num_decoder_layers"),
    "width": ("embed_dim", "n_embd", "d_model", "hidden_size"),
    "heads": ("encoder_attention_heads", "num_attention_heads", "n_head", "nhead"),
    "kv_heads": ("num_key_value_heads",),
    "hidden": (
        "intermediate_size",
        "d_ff",
        "encoder_ffn_dim",
        "ffn_dim",
        "ffn_hidden_size",
        "dim_feedforward",
    ),
    "eps": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"),
}


def defaults(config):
    """Return the default values of a configuration class, or of a module's signature."""
    if config.startswith("torch.nn."):
        torch = pytest.importorskip("torch")
        signature = inspect.signature(getattr(torch.nn, config.removeprefix("torch.nn.")))
        return {name: p.default for name, p in signature.parameters.items()}
    transformers = pytest.importorskip("transformers")
    made = getattr(transformers, config)()
    names = {a for attributes in ATTRIBUTES.values() for a in attributes}
    found = {a: getattr(made, a) for a in names if hasattr(made, a)}
    if getattr(made, "multi_query", False):
        found["num_key_value_heads"] = 1
    if hasattr(made, "depths"):  # stages; width and heads are those of the first
        found["num_hidden_layers"] = sum(made.depths)
        found["num_attention_heads"] = made.num_heads[0]
    return found


def disagreements(row: System) -> dict:
    known = defaults(row.config)
    out = {}
    for name in row.checked:
        value = next((known[a] for a in ATTRIBUTES[name] if known.get(a) is not None), None)
        if value != getattr(row, name):
            out[name] = (getattr(row, name), value)
    return out


@pytest.mark.transformers
@pytest.mark.parametrize("row", CHECKED, ids=lambda r: r.name)
def test_numbers_are_the_defaults_of_the_class_that_is_named(row):
    assert disagreements(row) == {}


@pytest.mark.transformers
@pytest.mark.parametrize("row", CHECKED, ids=lambda r: r.name)
def test_a_wrong_number_is_noticed(row):
    for name in row.checked:
        wrong = dataclasses.replace(row, **{name: getattr(row, name) * 2})
        assert name in disagreements(wrong)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_each_row_says_which_numbers_were_compared(row):
    assert bool(row.checked) == (row.config is not None)
    if row.checked:
        assert set(row.checked) <= {f.name for f in dataclasses.fields(System)}
        assert row.verified.endswith(f"defaults of {row.config}; the rest recalled")
    else:
        assert row.verified == "recalled"


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_each_row_is_of_the_vocabulary(row):
    assert row.placement in PLACEMENTS
    assert row.norm in NORMS
    assert row.heads % row.kv_heads == 0
    assert row.eps is None or 0 <= row.eps <= 1e-4
    assert row.source
    assert re.search(str(row.year), row.source)
    assert row.depth >= 1
    assert row.hidden > row.width


@pytest.mark.parametrize(
    "kind", sorted({(r.placement, r.norm, r.feed_forward) for r in ROWS}), ids="-".join
)
def test_the_layer_of_each_system_derives(kind):
    placement, norm, feed_forward = kind
    expr = derive.layer(placement, norm, feed_forward=derive.sublayer(feed_forward))
    assert derive.derivation(expr, derive.state()).mixes_tokens


def test_what_common_tables_get_wrong():
    assert {n: r.placement for n, r in SYSTEMS_TABLE.items() if n.startswith(("t5", "opt"))} == {
        **{f"t5-{size}": "pre" for size in ("small", "base", "large", "3b", "11b")},
        **{
            f"opt-{size}": "pre"
            for size in ("125m", "1.3b", "2.7b", "6.7b", "13b", "30b", "66b", "175b")
        },
        "opt-350m": "post",
    }
    assert system("t5-small").norm == "rmsnorm"
    assert system("bart-large").placement == system("bart-base").placement == "post"
    assert system("mbart-large").placement == "pre"
    assert system("gpt1").placement == "post"
    sizes = ("small", "medium", "large", "xl")
    assert [system(f"gpt2-{size}").depth for size in sizes] == [12, 24, 36, 48]
    assert system("Llama3.1-405b").depth == 126


IMPLEMENTED = {
    "t5-small": "t5-encoder",
    "bart-large": "bart-encoder",
    "mbart-large": "mbart",
    "opt-125m": "opt",
    "opt-350m": "opt-350m",
    "gpt1": "gpt1",
    "gpt2-small": "gpt2",
    "bert-base": "bert",
    "vit-base": "vit",
    "llama2-7b": "llama",
    "mistral-7b": "mistral",
    "qwen2-7b": "qwen2",
    "gpt-j-6b": "gptj",
    "gpt-neox-20b": "gpt-neox",
    "falcon-7b": "falcon-7b",
    "falcon-40b": "falcon-40b",
    "phi-2": "phi",
    "command-r": "cohere",
    "olmo2-7b": "olmo2",
    "swinv2-tiny": "swinv2",
    "gemma2-2b": "gemma2",
    "bloom-176b": "bloom",
}


@pytest.mark.transformers
@pytest.mark.parametrize(("name", "real"), IMPLEMENTED.items(), ids=IMPLEMENTED)
def test_placement_and_norm_are_those_of_the_implementation(name, real):
    """The layer of transformers, whose closed form agrees with its autodiff."""
    from derive.crosscheck import check

    row, found = system(name), check(real)
    assert found.ok, found
    assert (found.placement, found.norm) == (row.placement, row.norm)


@pytest.mark.transformers
def test_which_branch_opt_takes_by_default():
    transformers = pytest.importorskip("transformers")
    assert transformers.OPTConfig().do_layer_norm_before


def test_unknown_name():
    with pytest.raises(UnknownNameError, match=r"system: expected one of transformer-base.*'gpt9'"):
        system("gpt9")
