"""What a reader cannot represent, and what does not fit, is refused with an error that names it."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
import pytest

from derive.backends import (
    SYSTEMS,
    autodiff_jacobian,
    build,
    float64_throughout,
    known_modules,
    read_block,
    register_reader,
    stack,
    state,
)
from derive.errors import (
    DomainError,
    MissingExtraError,
    ShapeError,
    UnknownNameError,
    UnknownNodeError,
    WeightError,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def encoder_layer(**settings: Any) -> Any:
    return torch.nn.TransformerEncoderLayer(8, 2, 12, **settings)


def set_part(layer: Any, path: str, value: Any) -> Any:
    owner, _, name = path.rpartition(".")
    setattr(layer.get_submodule(owner), name, value)
    return layer


class Adapter(torch.nn.Linear):
    pass


def with_hook(layer: Any) -> Any:
    layer.linear1.register_forward_hook(lambda module, args, output: 2 * output)
    return layer


def with_own_forward(layer: Any) -> Any:
    layer.linear1.forward = lambda x: x
    return layer


def with_bias_k(layer: Any) -> Any:
    layer.self_attn.bias_k = torch.nn.Parameter(torch.zeros(1, 1, 8))
    return layer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.nn.Linear(3, 3), "got torch.nn.modules.linear.Linear"),
        (lambda: torch.nn.TransformerDecoderLayer(8, 2), "TransformerDecoderLayer"),
        (lambda: "bert", "got builtins.str"),
        (lambda: encoder_layer(activation=torch.nn.functional.leaky_relu), "activation"),
        (lambda: encoder_layer(activation=lambda z: z.clamp(0, 6)), "activation"),
        (lambda: encoder_layer(activation=lambda z: z.softmax(-1)), "activation"),
        (lambda: encoder_layer(activation=lambda z: z.sum(-1)), "activation"),
        (lambda: encoder_layer(activation=lambda z: z @ z), "it fails on a tensor"),
        (lambda: set_part(encoder_layer(), "linear1", Adapter(8, 12)), "part 'linear1'.*Adapter"),
        (lambda: set_part(encoder_layer(), "norm1", torch.nn.RMSNorm(8)), "part 'norm1'.*RMSNorm"),
        (lambda: set_part(encoder_layer(), "extra", torch.nn.Linear(8, 8)), "no such part"),
        (lambda: set_part(encoder_layer(), "self_attn.add_zero_attn", True), "add_zero_attn"),
        (lambda: with_bias_k(encoder_layer()), "bias_k"),
        (lambda: with_hook(encoder_layer()), "part 'linear1'.*no hooks"),
        (lambda: with_own_forward(encoder_layer()), "own forward"),
    ],
    ids=[
        "linear",
        "decoder-layer",
        "not-a-module",
        "leaky-relu",
        "relu6",
        "not-element-wise",
        "other-shape",
        "failing-activation",
        "adapter",
        "other-norm",
        "extra-part",
        "zero-attention",
        "bias-k",
        "hook",
        "own-forward",
    ],
)
def test_torch_modules_that_cannot_be_represented(make: Any, message: str) -> None:
    with pytest.raises(UnknownNodeError, match=message):
        read_block(make())


def test_unknown_module_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNodeError) as caught:
        read_block(torch.nn.Identity())
    assert len(known_modules()) >= 4
    for name in known_modules():
        assert name in str(caught.value)


def bert(**settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    from transformers.models.bert.modeling_bert import BertLayer

    return BertLayer(
        transformers.BertConfig(
            hidden_size=8, num_attention_heads=2, intermediate_size=12, **settings
        )
    )


def gpt2(**settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    return GPT2Block(transformers.GPT2Config(n_embd=8, n_head=2, **settings), 0)


def llama(**settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    return LlamaDecoderLayer(
        transformers.LlamaConfig(
            hidden_size=8, num_attention_heads=2, intermediate_size=12, **settings
        ),
        0,
    )


def custom_attention(layer: Any) -> Any:
    layer.self_attn.config._attn_implementation = "my_attention"
    return layer


@pytest.mark.transformers
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bert(is_decoder=True, add_cross_attention=True), "add_cross_attention"),
        (lambda: gpt2(add_cross_attention=True), "add_cross_attention"),
        (lambda: gpt2(activation_function="gelu_fast"), "FastGELU"),
        (lambda: bert(hidden_act="quick_gelu"), "QuickGELU"),
        (lambda: custom_attention(llama()), "_attn_implementation.*my_attention"),
        (
            lambda: set_part(llama(), "input_layernorm", torch.nn.LayerNorm(8)),
            "part 'input_layernorm'.*LlamaRMSNorm.*LayerNorm",
        ),
        (lambda: set_part(llama(), "self_attn.q_proj", Adapter(8, 8)), "q_proj.*Adapter"),
    ],
    ids=[
        "bert-cross-attention",
        "gpt2-cross-attention",
        "gpt2-fast-gelu",
        "bert-quick-gelu",
        "llama-own-attention",
        "llama-other-norm",
        "llama-adapter",
    ],
)
def test_transformers_layers_that_cannot_be_represented(make: Any, message: str) -> None:
    with pytest.raises(UnknownNodeError, match=message):
        read_block(make())


@pytest.mark.parametrize(
    ("keywords", "kind", "message"),
    [
        ({"x": np.zeros(8)}, ShapeError, r"argument x: expected shape .* got \(8,\)"),
        ({"x": np.zeros((2, 4, 8))}, ShapeError, "argument x"),
        ({"x": np.zeros((4, 9))}, ShapeError, "argument x: expected width 8"),
        ({"x": np.zeros((4, 8)), "tokens": 5}, ShapeError, "argument tokens: expected 4"),
        ({"tokens": 0}, ShapeError, "argument tokens: expected at least 1"),
        ({"mask": np.ones((3, 3), bool)}, ShapeError, r"argument mask: .* shape \(4, 4\)"),
        ({"mask": np.ones((4, 4))}, ShapeError, "argument mask: expected bool .* got float64"),
        ({"mask": ~np.eye(4, k=0, dtype=bool) & False}, DomainError, "row 0 allows none"),
    ],
    ids=["1-d", "batch", "width", "tokens", "no-tokens", "mask-shape", "mask-dtype", "empty-row"],
)
def test_arguments_of_read_block(keywords: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        read_block(encoder_layer(), **keywords)


def test_weights_that_are_not_finite() -> None:
    layer = encoder_layer()
    layer.linear1.bias.data[2] = float("nan")
    with pytest.raises(WeightError, match=r"'linear1.bias'.*1 of 12"):
        read_block(layer)
    with pytest.raises(WeightError, match="meta device"):
        read_block(encoder_layer(device="meta"))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: build("bart"), UnknownNameError, "argument system: .*torch-post.*'bart'"),
        (lambda: build("torch-pre", heads=3), ShapeError, "argument heads: .*width=16, got 3"),
        (lambda: build("torch-pre", width=0), ShapeError, "argument width"),
        (lambda: build("torch-pre", tokens=0), ShapeError, "argument tokens"),
        (lambda: build("torch-pre", seed=-1), DomainError, "argument seed"),
        (lambda: stack("torch-pre", 0), DomainError, "argument layers"),
        (lambda: state(build("torch-pre"), seed=-1), DomainError, "argument seed"),
        (lambda: register_reader("Block"), UnknownNameError, "argument qualified_name"),
    ],
    ids=["system", "heads", "width", "tokens", "seed", "layers", "state-seed", "reader"],
)
def test_arguments_of_the_builders(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.transformers
def test_llama_needs_even_heads() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ShapeError, match="argument width: expected an even width per head"):
        build("llama", width=6, heads=2)


@pytest.mark.parametrize(
    ("missing", "call", "extra"),
    [
        ("torch", functools.partial(build, "torch-pre"), "torch"),
        ("torch", functools.partial(read_block, None), "torch"),
        ("torch", functools.partial(autodiff_jacobian, [], np.eye(2)), "torch"),
        ("torch", lambda: float64_throughout().__enter__(), "torch"),
        *(
            ("transformers", functools.partial(build, name), "transformers")
            for name in SYSTEMS
            if not name.startswith("torch")
        ),
    ],
)
def test_a_missing_package_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, missing: str, call: Any, extra: str
) -> None:
    for name in [m for m in sys.modules if m.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=rf"install normderive\[{extra}\]"):
        call()
