"""The weights that are read reproduce the module's output.

The oracle is a forward pass in NumPy, token by token, from a block's weights alone; it shares no
code with the library or the frameworks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from derive.backends import (
    SYSTEMS,
    RealBlock,
    autodiff_jacobian,
    build,
    float64_throughout,
    known_modules,
    output,
    read_block,
    register_reader,
    stack,
    state,
)
from derive.errors import UnknownNodeError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# Two float64 evaluations of one formula differ by rounding: 1e-15 was the largest seen over the
# cases here (2e-15 after 12 blocks), 1e-12 leaves room for another BLAS.
RTOL = 1e-12

_ERF = np.vectorize(math.erf)

ACTIVATIONS = {
    "relu": lambda z: np.where(z > 0, z, 0.0),
    "gelu": lambda z: z * (1 + _ERF(z / math.sqrt(2))) / 2,
    "gelu_tanh": lambda z: z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + np.exp(-z)),
    "tanh": np.tanh,
}


def norm(block: Any, index: int, z: np.ndarray) -> np.ndarray:
    w, eps = block.weights, block.eps[index - 1]
    if block.norm == "rmsnorm":
        return w[f"gain_{index}"] * z / np.sqrt(np.mean(z**2) + eps)
    centred = z - z.mean()
    return w[f"gain_{index}"] * centred / np.sqrt(np.mean(centred**2) + eps) + w[f"bias_{index}"]


def attention(block: Any, z: np.ndarray) -> np.ndarray:
    w, n = block.weights, len(z)
    out = np.tile(w["b_O"], (n, 1))
    for h in range(block.heads):
        q = [w["W_Q"][h] @ z[i] + w["b_Q"][h] for i in range(n)]
        k = [w["W_K"][h] @ z[i] + w["b_K"][h] for i in range(n)]
        v = [w["W_V"][h] @ z[i] + w["b_V"][h] for i in range(n)]
        if "R" in w:
            q = [w["R"][i] @ q[i] for i in range(n)]
            k = [w["R"][i] @ k[i] for i in range(n)]
        for i in range(n):
            keys = [j for j in range(n) if w["mask"][i, j]]
            scores = np.array([w["scale"] * (q[i] @ k[j]) for j in keys])
            p = np.exp(scores - scores.max())
            p /= p.sum()
            out[i] += w["W_O"][h] @ sum(p[a] * v[j] for a, j in enumerate(keys))
    return out


def ffn(block: Any, z: np.ndarray) -> np.ndarray:
    w, act = block.weights, ACTIVATIONS[block.activation]
    if block.gated:
        hidden = act(w["W_gate"] @ z + w["b_gate"]) * (w["W_up"] @ z + w["b_up"])
        return w["W_down"] @ hidden + w["b_down"]
    return w["W_2"] @ act(w["W_1"] @ z + w["b_1"]) + w["b_2"]


def forward(block: Any, x: np.ndarray) -> np.ndarray:
    if block.placement == "post":
        u = x + attention(block, x)
        u = np.array([norm(block, 1, t) for t in u])
        return np.array([norm(block, 2, t + ffn(block, t)) for t in u])
    u = x + attention(block, np.array([norm(block, 1, t) for t in x]))
    return np.array([t + ffn(block, norm(block, 2, t)) for t in u])


def framework(block: Any, x: np.ndarray) -> np.ndarray:
    with float64_throughout():
        return output(block, x)


def error(block: Any, x: np.ndarray) -> float:
    expected = framework(block, x)
    return float(np.abs(forward(block, x) - expected).max() / np.abs(expected).max())


def system_cases() -> list[Any]:
    return [
        pytest.param(name, marks=[] if name.startswith("torch") else pytest.mark.transformers)
        for name in SYSTEMS
    ]


def needs_transformers(system: str) -> None:
    if not system.startswith("torch"):
        pytest.importorskip("transformers")


def random_parameters(module: Any, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=generator, dtype=p.dtype) * 0.4
    return module


@pytest.mark.parametrize("system", system_cases())
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param({}, id="default"),
        pytest.param({"width": 24, "heads": 2, "tokens": 7}, id="d24-h2-n7"),
        pytest.param({"width": 6, "heads": 3, "tokens": 1}, id="d6-h3-n1"),
    ],
)
def test_weights_reproduce_the_output(system: str, sizes: dict[str, int]) -> None:
    needs_transformers(system)
    block = build(system, seed=3, **sizes)
    assert error(block, state(block)) < RTOL


@pytest.mark.parametrize("system", system_cases())
def test_weights_reproduce_a_stack(system: str) -> None:
    needs_transformers(system)
    blocks = stack(system, 12)
    x = state(blocks[0])
    expected = framework(blocks, x)
    for block in blocks:
        x = forward(block, x)
    assert np.abs(x - expected).max() / np.abs(expected).max() < RTOL


@pytest.mark.parametrize("system", system_cases())
def test_build_is_random_everywhere(system: str) -> None:
    needs_transformers(system)
    block, again, other = build(system), build(system), build(system, layer=1)
    for name in block.weights:
        np.testing.assert_array_equal(block.weights[name], again.weights[name])
        assert not block.weights[name].flags.writeable
        if name not in ("scale", "mask", "R"):
            assert block.weights[name].dtype == np.float64
            zero_bias = system == "llama" and name.startswith("b_")
            assert zero_bias or not np.array_equal(block.weights[name], other.weights[name])
    for gain in ("gain_1", "gain_2"):
        assert block.weights[gain].std() > 0.1


@pytest.mark.parametrize(
    ("system", "placement", "norm", "eps", "activation", "gated", "causal"),
    [
        ("torch-post", "post", "layernorm", 1e-5, "relu", False, False),
        ("torch-pre", "pre", "layernorm", 1e-5, "gelu", False, False),
        ("bert", "post", "layernorm", 1e-12, "gelu", False, False),
        ("gpt2", "pre", "layernorm", 1e-5, "gelu_tanh", False, True),
        ("llama", "pre", "rmsnorm", 1e-6, "silu", True, True),
    ],
)
def test_description(
    system: str, placement: str, norm: str, eps: float, activation: str, gated: bool, causal: bool
) -> None:
    needs_transformers(system)
    block = build(system)
    assert (block.placement, block.norm, block.eps) == (placement, norm, (eps, eps))
    assert (block.activation, block.gated, block.causal) == (activation, gated, causal)
    assert ("R" in block.weights) == (system == "llama")
    assert ("bias_1" in block.weights) == (norm == "layernorm")
    assert not block.module.training
    assert f"RealBlock({system}" in repr(block)


@pytest.mark.transformers
def test_llama_shares_keys_and_rotates() -> None:
    pytest.importorskip("transformers")
    w = build("llama").weights
    np.testing.assert_array_equal(w["W_K"][0], w["W_K"][1])
    assert not np.array_equal(w["W_K"][1], w["W_K"][2])
    assert not np.array_equal(w["W_Q"][0], w["W_Q"][1])
    np.testing.assert_array_equal(w["R"][0], np.eye(4))
    # cos and sin are float32 numbers, so R'R = I up to 2^-23.
    for r in w["R"]:
        np.testing.assert_allclose(r.T @ r, np.eye(4), atol=2.0**-22)
    # rotate_half: coordinate 0 pairs with dh / 2, turned by one radian per position.
    assert w["R"][1][0, 2] == -w["R"][1][2, 0] == -np.float32(math.sin(np.float32(1)))


# A user's own modules.


@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize("batch_first", [False, True], ids=["sequence-first", "batch-first"])
@pytest.mark.parametrize("bias", [False, True], ids=["no-bias", "bias"])
@pytest.mark.parametrize(
    ("activation", "name"),
    [
        ("relu", "relu"),
        (torch.nn.functional.gelu, "gelu"),
        (torch.nn.GELU(approximate="tanh"), "gelu_tanh"),
        (lambda z: z * torch.sigmoid(z), "silu"),
        (torch.tanh, "tanh"),
        (torch.nn.ReLU(inplace=True), "relu"),
    ],
    ids=["relu-string", "gelu-function", "tanh-gelu-module", "silu-lambda", "tanh", "in-place"],
)
def test_own_encoder_layer(
    norm_first: bool, batch_first: bool, bias: bool, activation: Any, name: str
) -> None:
    layer = random_parameters(
        torch.nn.TransformerEncoderLayer(
            8,
            2,
            11,
            activation=activation,
            norm_first=norm_first,
            batch_first=batch_first,
            bias=bias,
            layer_norm_eps=1e-3,
        )
    )
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    block = read_block(layer, tokens=5)
    assert error(block, state(block)) < RTOL
    assert (block.activation, block.eps, block.width) == (name, (1e-3, 1e-3), 8)
    # The user's layer stays float32, in train mode (dropout 0.1) and with its gradients on.
    assert layer.training
    assert all(p.requires_grad and p.dtype == torch.float32 for p in layer.parameters())
    assert all(torch.equal(value, before[key]) for key, value in layer.state_dict().items())


def test_a_forward_put_back_is_no_change() -> None:
    layer = random_parameters(torch.nn.TransformerEncoderLayer(8, 2, 11))
    layer.forward = layer.forward
    layer.linear1.forward = layer.linear1.forward
    block = read_block(layer)
    assert error(block, state(block)) < RTOL
    # The copy runs on its own weights.
    layer.linear1.weight.data.zero_()
    assert error(block, state(block)) < RTOL


def test_layer_made_under_inference_mode() -> None:
    with torch.inference_mode():
        layer = random_parameters(torch.nn.TransformerEncoderLayer(8, 2, 11))
    block = read_block(layer)
    x = state(block)
    assert error(block, x) < RTOL
    assert autodiff_jacobian(block, x).any()


def test_two_eps_are_kept_apart() -> None:
    layer = random_parameters(torch.nn.TransformerEncoderLayer(8, 2, 11))
    layer.norm2.eps = 0.5
    block = read_block(layer)
    assert block.eps == (1e-5, 0.5)
    assert error(block, state(block)) < RTOL


def test_norm_without_affine() -> None:
    layer = random_parameters(torch.nn.TransformerEncoderLayer(8, 2, 11))
    layer.norm1 = torch.nn.LayerNorm(8, elementwise_affine=False)
    block = read_block(layer)
    np.testing.assert_array_equal(block.weights["gain_1"], np.ones(8))
    assert error(block, state(block)) < RTOL


@pytest.mark.parametrize("system", system_cases())
def test_own_mask(system: str) -> None:
    needs_transformers(system)
    module = build(system).module
    window = np.tri(5, dtype=bool) & ~np.tri(5, k=-2, dtype=bool)
    padding = np.ones((5, 5), dtype=bool)
    padding[:, 3] = False
    masks = [(window, True), (padding, False)]
    if system == "gpt2" and hasattr(module.attn, "bias"):
        # The first releases of transformers 5 mask later keys themselves.
        with pytest.raises(UnknownNodeError, match="a causal mask of its own"):
            read_block(module, tokens=5, mask=masks.pop()[0])
    for mask, causal in masks:
        block = read_block(module, tokens=5, mask=mask)
        assert block.causal == causal
        np.testing.assert_array_equal(block.weights["mask"], mask)
        assert error(block, state(block)) < RTOL


def bert(**settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    from transformers.models.bert.modeling_bert import BertLayer

    config = transformers.BertConfig(
        hidden_size=8, num_attention_heads=2, intermediate_size=12, **settings
    )
    return random_parameters(BertLayer(config))


def gpt2(layer: int = 0, **settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    return random_parameters(
        GPT2Block(transformers.GPT2Config(n_embd=8, n_head=2, **settings), layer)
    )


def llama(**settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    config = transformers.LlamaConfig(
        **{
            "hidden_size": 8,
            "num_attention_heads": 2,
            "intermediate_size": 12,
            "max_position_embeddings": 64,
            **settings,
        }
    )
    return random_parameters(LlamaDecoderLayer(config, 0))


YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}


@pytest.mark.transformers
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: bert(is_decoder=True), id="bert-decoder"),
        pytest.param(lambda: bert(chunk_size_feed_forward=1), id="bert-chunks"),
        pytest.param(lambda: bert(hidden_act="relu"), id="bert-relu"),
        pytest.param(lambda: bert(attn_implementation="sdpa"), id="bert-sdpa"),
        pytest.param(lambda: gpt2(scale_attn_weights=False), id="gpt2-unscaled"),
        pytest.param(lambda: gpt2(2, scale_attn_by_inverse_layer_idx=True), id="gpt2-inverse"),
        pytest.param(lambda: gpt2(reorder_and_upcast_attn=True), id="gpt2-upcast"),
        pytest.param(lambda: gpt2(n_inner=10, activation_function="gelu"), id="gpt2-inner"),
        pytest.param(lambda: llama(attention_bias=True), id="llama-attention-bias"),
        pytest.param(lambda: llama(mlp_bias=True), id="llama-mlp-bias"),
        pytest.param(lambda: llama(num_key_value_heads=1), id="llama-multi-query"),
        pytest.param(lambda: llama(head_dim=6), id="llama-wide-heads"),
        pytest.param(lambda: llama(pretraining_tp=2), id="llama-pretraining-tp"),
        pytest.param(lambda: llama(rope_parameters=YARN), id="llama-yarn"),
        pytest.param(lambda: llama(attn_implementation="sdpa"), id="llama-sdpa"),
    ],
)
def test_settings_are_honoured(make: Any) -> None:
    block = read_block(make(), tokens=5)
    assert error(block, state(block)) < RTOL


@pytest.mark.transformers
def test_scale_and_mask_settings_are_read() -> None:
    assert read_block(gpt2(scale_attn_weights=False)).weights["scale"] == 1.0
    scaled = read_block(gpt2(2, scale_attn_by_inverse_layer_idx=True))
    assert scaled.weights["scale"] == pytest.approx(0.5 / 3, rel=1e-15)
    assert read_block(bert(is_decoder=True)).causal
    # Yarn lengthens the tables; R carries the factor and is not a rotation.
    first = read_block(llama(rope_parameters=YARN)).weights["R"][0]
    assert first[0, 0] == pytest.approx(0.1 * math.log(4.0) + 1, rel=1e-6)


@pytest.mark.transformers
def test_the_layer_of_a_model_agrees_with_the_model() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=12,
        num_hidden_layers=2,
        vocab_size=9,
        max_position_embeddings=64,
    )
    model = random_parameters(transformers.LlamaModel(config)).double().eval()
    with torch.no_grad(), float64_throughout():
        states = model(torch.tensor([[1, 5, 3, 7]]), output_hidden_states=True).hidden_states
    # Called with hidden states wanted, the model leaves recording hooks on its layers.
    block = read_block(model.layers[0], states[0])
    expected = states[1][0].numpy()
    ours = framework(block, states[0])
    # In the mode the model's rotary tables are float64, the block's are its float32 ones: 2^-24.
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_a_reader_of_ones_own() -> None:
    class Own(torch.nn.TransformerEncoderLayer):
        pass

    name = f"{Own.__module__}.{Own.__qualname__}"
    with pytest.raises(UnknownNodeError, match=r"a subclass of torch\.nn"):
        read_block(Own(8, 2))

    @register_reader(name)
    def read(module: Any, tokens: int, mask: Any) -> RealBlock:
        plain = torch.nn.TransformerEncoderLayer(8, 2)
        plain.load_state_dict(module.state_dict())
        return read_block(plain, tokens=tokens, mask=mask)

    assert name in known_modules()
    assert read_block(Own(8, 2), tokens=3).tokens == 3
