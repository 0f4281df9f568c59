"""Gradients of weights, against torch's autograd through blocks written in torch."""

import numpy as np
import pytest

import derive
from derive.blocks.mla import LatentAttention
from derive.blocks.moe import MoE
from derive.calculus.weight_gradient import weight_differential
from derive.depth import Stack, StreamStack, placed_stack
from derive.depth.block_gradients import block_weight_gradients, trainable
from derive.depth.weight_gradients import (
    LayerGradients,
    weight_gradient_log_norms,
    weight_gradients,
)
from derive.errors import DomainError, ShapeError, UnknownNameError, WeightError
from derive.initialise import initial_weights
from derive.lower import AbstractMap, evaluate

from .conftest import HEADS, TOKENS, WIDTH, random_weights

x = derive.state("x")
# Both sides sum the same products of order one in another order: some hundred roundings.
TOL = 1e-12

PLACEMENTS = {
    "post": lambda N, F, u, t: N(u + F(u)),
    "pre": lambda N, F, u, t: u + F(N(u)),
    "N(alpha*x + F(x))": lambda N, F, u, t: N(t["alpha"] * u + F(u)),
    "sandwich": lambda N, F, u, t: u + N(F(N(u, "_1")), "_2"),
    "layerscale": lambda N, F, u, t: u + t["lam"] * F(N(u)),
    "rezero": lambda N, F, u, t: u + t["alpha"] * F(u),
    "normed-residual": lambda N, F, u, t: N(u) + F(N(u)),
}
SUBLAYERS = (
    *(f"ffn:{a}" for a in ("relu", "gelu", "silu")),
    "gated",
    "attention",
    "causal-attention",
    "rotary-attention",
)


def torch_sublayer(kind, z, t):
    torch = pytest.importorskip("torch")
    nn = torch.nn.functional
    kind, _, name = kind.partition(":")
    if kind == "ffn":
        hidden = getattr(nn, name)(nn.linear(z, t["W_1"], t["b_1"]))
        return nn.linear(hidden, t["W_2"], t["b_2"])
    if kind == "gated":
        return (nn.silu(z @ t["W_gate"].T) * (z @ t["W_up"].T)) @ t["W_down"].T
    out = torch.zeros_like(z)
    for h in range(HEADS):
        q, k, v = (z @ t[f"W_{letter}"][h].T for letter in "QKV")
        if kind == "rotary-attention":
            q, k = (torch.einsum("nab,nb->na", t["R"], m) for m in (q, k))
        scores = q @ k.T / q.shape[-1] ** 0.5
        if kind == "causal-attention":
            hidden = ~torch.tril(torch.ones(TOKENS, TOKENS, dtype=torch.bool))
            scores = scores.masked_fill(hidden, -torch.inf)
        out = out + torch.softmax(scores, -1) @ v @ t["W_O"][h].T
    return out


def torch_block(placement, norm, sublayer, t):
    """The block in torch, with torch's own norms, activations and softmax."""
    nn = pytest.importorskip("torch").nn.functional

    def N(u, suffix=""):
        gain, bias = t["gain" + suffix], t["bias" + suffix]
        if norm == "layernorm":
            return nn.layer_norm(u, (WIDTH,), gain, bias, 1e-5)
        return nn.rms_norm(u, (WIDTH,), gain, 1e-5)

    return lambda u: PLACEMENTS[placement](N, lambda z: torch_sublayer(sublayer, z, t), u, t)


def tensors(weights):
    torch = pytest.importorskip("torch")
    return {
        k: torch.tensor(np.asarray(v), dtype=torch.float64, requires_grad=True)
        for k, v in weights.items()
    }


def numbers(seed=0):
    draw = np.random.default_rng(100 + seed).normal
    return {**random_weights(seed), "lam": draw(size=WIDTH)}


def cotangent_of(state):
    return np.random.default_rng(7).normal(size=state.shape)


def close(found, expected):
    expected = expected.detach().numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOL * max(scale, 1e-3))


CASES = [
    *((p, "ffn:gelu", n) for p in PLACEMENTS for n in ("layernorm", "rmsnorm")),
    *(("pre", s, "layernorm") for s in SUBLAYERS if s != "ffn:gelu"),
    *(("post", s, "rmsnorm") for s in ("gated", "causal-attention")),
]


@pytest.mark.torch
@pytest.mark.parametrize(("placement", "sublayer", "norm"), CASES)
def test_every_weight_of_a_block_matches_autograd(placement, sublayer, norm, state):
    weights = numbers()
    found = derive.derivation(derive.block(placement, norm, sublayer, x), x)
    names = trainable(found.block, weights)
    torch = pytest.importorskip("torch")
    g = cotangent_of(state)
    gradients, back = block_weight_gradients(found, weights, state, g, names)
    t = tensors(weights)
    u = torch.tensor(state, requires_grad=True)
    torch_block(placement, norm, sublayer, t)(u).backward(torch.tensor(g))
    used = {k for k in t if t[k].grad is not None} - {"R", "eps"}
    assert set(names) == used
    for name in names:
        close(gradients[name], t[name].grad)
    close(back, u.grad)


@pytest.mark.torch
def test_a_wrong_gradient_is_rejected(state):
    """One part in 1e9, one token left out: both are seen."""
    torch = pytest.importorskip("torch")
    weights = numbers()
    found = derive.derivation(derive.block("pre", "layernorm", "gated", x), x)
    g = cotangent_of(state)
    t = tensors(weights)
    torch_block("pre", "layernorm", "gated", t)(torch.tensor(state)).backward(torch.tensor(g))
    gradients, _ = block_weight_gradients(found, weights, state, g, ["W_up"])
    with pytest.raises(AssertionError):
        close(gradients["W_up"] * (1 + 1e-9), t["W_up"].grad)
    g[-1] = 0
    fewer, _ = block_weight_gradients(found, weights, state, g, ["W_up"])
    with pytest.raises(AssertionError):
        close(fewer["W_up"], t["W_up"].grad)


# -- the breadth of the vocabulary, against central differences of the block's value


def _blocks():
    N, rms = derive.LayerNorm(), derive.RMSNorm
    heads = {"query_norm": rms("q"), "key_norm": rms("k")}
    gated = {"gate": derive.activation("silu"), "out_norm": rms("o")}
    return {
        **{p: derive.block(p, "layernorm", "ffn", x) for p in ("parallel", "ngpt", "sub-ln")},
        "decoder": derive.block("decoder-pre", "rmsnorm", "gated", x),
        **{n: derive.block("pre", n, "ffn", x) for n in ("groupnorm", "scalenorm", "dyt")},
        "batchnorm": derive.block("post", "batchnorm", "ffn", x),
        "experts": x + MoE(2)(N(x)),
        "normed heads": x + derive.Attention(**heads)(x),
        "normed over heads": x + derive.Attention(**heads, full_norm=True, rotary=True)(x),
        "capped": x + derive.Attention(softcap=2.5, bias=True, causal=True)(N(x)),
        "gated heads": x + derive.Attention(**gated)(x),
    }


@pytest.mark.parametrize("case", _blocks())
def test_directional_derivatives_of_the_value(case, state):
    block = _blocks()[case]
    rng = np.random.default_rng(3)
    values = {"alpha": 0.7, "beta": 1.3, "g": 0.9, "a": 0.8}
    sizes = {"width": WIDTH, "heads": 2, "tokens": TOKENS, "hidden": 6, "groups": 2}
    weights = initial_weights(block, seed=1, values=values, **sizes)
    names = trainable(block, weights)
    assert not {"R", "E", "mem", "w", "m", "eps"} & set(names)
    for name in names:
        weights[name] = weights[name] + 0.2 * rng.normal(size=np.shape(weights[name]))
    require_directional_derivatives(block, weights, names, state)


def require_directional_derivatives(block, weights, names, state, maps=None):
    rng = np.random.default_rng(4)
    g = cotangent_of(state)
    found = derive.derivation(block, x)
    gradients, _ = block_weight_gradients(found, weights, state, g, names, maps)
    h = 1e-5  # truncation h^2 and rounding eps/h are both near 1e-10
    for name in names:
        step = rng.normal(size=np.shape(weights[name]))
        ahead, behind = (
            np.vdot(
                g, evaluate(block, {**weights, name: weights[name] + s * h * step}, state, maps)
            )
            for s in (1, -1)
        )
        assert np.sum(gradients[name] * step) == pytest.approx(
            (ahead - behind) / (2 * h), rel=1e-6, abs=1e-7
        )


def test_scalars_by_index(state):
    """Sinks by head, a bias of the score by head and two tokens."""
    block = x + derive.Attention(sinks=True, score_bias=True)(x)
    weights = initial_weights(block, width=WIDTH, heads=2, tokens=TOKENS)
    draw = np.random.default_rng(2).normal
    weights |= {"sinks": draw(size=2), "B": draw(size=(2, TOKENS, TOKENS))}
    require_directional_derivatives(block, weights, ["sinks", "B", "W_Q"], state)


def test_latent_attention(state):
    norms = {"query_norm": derive.RMSNorm("q"), "key_norm": derive.RMSNorm("k")}
    block = x + LatentAttention(**norms, bias=True)(x)
    shapes = {
        **{"W_DQ": (5, 8), "b_DQ": (5,), "W_DK": (4, 8), "b_DK": (4,), "W_Q": (2, 6, 5)},
        **{"W_K": (2, 6, 4), "W_V": (2, 3, 4), "W_KR": (6, 8), "b_KR": (6,), "W_O": (2, 8, 3)},
        **{"b_O": (8,), "gain_q": (5,), "gain_k": (4,), "R": (TOKENS, 6, 6)},
    }
    draw = np.random.default_rng(2).normal
    weights = {"eps": 1e-5, **{k: 0.5 * draw(size=shape) for k, shape in shapes.items()}}
    names = trainable(block, weights)
    assert set(names) == set(shapes) - {"R"}
    require_directional_derivatives(block, weights, names, state)


def test_through_an_abstract_sublayer(state):
    """Its own weights are not known; those around it are differentiated through its Jacobian."""
    matrix = np.random.default_rng(5).normal(size=(WIDTH, WIDTH))
    tanh = AbstractMap(
        lambda u: np.tanh(u @ matrix.T),
        lambda u: (1 - np.tanh(u @ matrix.T) ** 2)[:, :, None] * matrix,
    )
    N = derive.LayerNorm()
    block = N(x + derive.Sublayer("F")(N(x)))
    require_directional_derivatives(block, numbers(), ["gain", "bias"], state, {"F": tanh})


def test_the_differential_prints():
    found = weight_differential(derive.Attention(causal=True)(x), x, ["W_V", "W_K"])
    assert str(found.locals[0]) == (
        "(sum_h sum_j P[h,i,j] W_O[h] dW_V[h] x[j]) + "
        "(sum_h sum_j (P[h,i,j]/sqrt(d_h)) W_O[h] (v[h,j] - o[h,i]) q[h,i]' dW_K[h] x[j])"
    )


# -- stacks


def mixed_stack():
    placements = ["post", "pre", "sandwich", "pre"]
    sublayers = ["ffn:relu", "causal-attention", "gated", "ffn:gelu"]
    blocks = [
        derive.block(p, "layernorm", s, x) for p, s in zip(placements, sublayers, strict=True)
    ]
    weights = [numbers(seed) for seed in range(4)]
    return Stack(blocks, x, weights), list(zip(placements, sublayers, strict=True))


@pytest.mark.torch
def test_a_stack_matches_autograd_layer_by_layer(state):
    torch = pytest.importorskip("torch")
    stack, kinds = mixed_stack()
    g = cotangent_of(state)
    layers = [tensors(w) for w in stack.weights]
    u = torch.tensor(state)
    for (placement, sublayer), t in zip(kinds, layers, strict=True):
        u = torch_block(placement, "layernorm", sublayer, t)(u)
    u.backward(torch.tensor(g))
    found = weight_gradients(stack, state, g)
    logs = weight_gradient_log_norms(stack, state, g)
    assert len(found) == len(logs) == 4
    for layer, log, t in zip(found, logs, layers, strict=True):
        value = layer.value()
        assert set(value) == set(log) == {k for k in t if t[k].grad is not None} - {"eps"}
        for name, gradient in value.items():
            close(gradient, t[name].grad)
            assert log[name] == pytest.approx(float(torch.log(t[name].grad.norm())), abs=1e-11)


def test_the_cotangent_inside_is_that_of_the_jacobians(state):
    """Two derivations of one gradient: layer by layer, and through the quantities of a block."""
    stack, _ = mixed_stack()
    g = cotangent_of(state)
    found = weight_gradients(stack, state, g, names=[])
    assert [layer.arrays for layer in found] == [{}] * 4
    back = g
    for place in range(3, -1, -1):
        _, back = block_weight_gradients(
            stack.derivations[place], stack.weights[place], stack.states(state)[place], back, []
        )
        norm = stack.gradient_log_norms(state, g)[place]
        assert np.log(np.linalg.norm(back)) == pytest.approx(norm, abs=1e-11)


@pytest.mark.parametrize("placement", ["residual", "siamesenorm", "hyper-connections"])
def test_streams_against_directional_derivatives(placement):
    """A weight that two streams share counts in both."""
    stack = placed_stack(placement, 2, width=6, tokens=2, heads=2, seed=1)
    rng = np.random.default_rng(0)
    start = rng.normal(size=(2, 6))
    g = rng.normal(size=stack.states(start)[-1].shape)

    def value(layer, name, change):
        weights = [dict(w) for w in stack.weights]
        weights[layer][name] = weights[layer][name] + change
        return np.vdot(g, StreamStack(stack.blocks, weights).states(start)[-1])

    h = 1e-5  # truncation h^2 and rounding eps/h are both near 1e-10
    for layer, found in enumerate(weight_gradients(stack, start, g)):
        for name, gradient in found.value().items():
            step = rng.normal(size=gradient.shape)
            difference = value(layer, name, h * step) - value(layer, name, -h * step)
            assert np.sum(gradient * step) == pytest.approx(
                difference / (2 * h), rel=1e-6, abs=1e-7
            )
    with pytest.raises(UnknownNameError, match="weights: expected weights of the streams, got W_9"):
        weight_gradients(stack, start, g, ["W_9"])


@pytest.mark.parametrize("alpha", [0.4, 2.3], ids=["underflow", "overflow"])
def test_a_thousand_layers(alpha):
    """x -> alpha x + F(N(x)) with W_2 = 0: |dL/db_2| of layer l is alpha^(L - 1 - l) |g|."""
    block = derive.block("alpha*x + F(N(x))", "rmsnorm", "ffn:relu", x)
    weights = {**random_weights(0), "alpha": alpha}
    weights["W_2"], weights["b_2"] = 0 * weights["W_2"], 0 * weights["b_2"]
    stack = Stack(block, x, [weights] * 1000)
    state = np.full((1, WIDTH), 1e-250 if alpha > 1 else 1e150)
    g = np.ones((1, WIDTH))
    logs = weight_gradient_log_norms(stack, state, g, ["b_2", "W_1"])
    expected = np.log(g.size) / 2 + np.arange(999, -1, -1) * np.log(alpha)
    np.testing.assert_allclose([row["b_2"] for row in logs], expected, rtol=1e-13, atol=1e-13)
    assert {row["W_1"] for row in logs} == {-np.inf}
    first = LayerGradients({"b_2": np.ones(2)}, 1500 if alpha > 1 else -1500)
    if alpha > 1:
        with pytest.raises(DomainError, match="got an overflow in that of b_2; use the log norms"):
            first.value()
    else:
        assert not first.value()["b_2"].any()


# -- edges and bad input


def test_no_layers_have_no_gradients(state):
    stack = Stack(derive.block("pre", "layernorm", "ffn"), x, [])
    assert weight_gradients(stack, state, state) == []


def test_a_zero_cotangent_gives_zero(state):
    stack, _ = mixed_stack()
    for row in weight_gradient_log_norms(stack, state, np.zeros_like(state)):
        assert set(row.values()) == {-np.inf}


def test_mistakes_are_named(state):
    stack, _ = mixed_stack()
    with pytest.raises(ShapeError, match=r"cotangent: expected the shape \(4, 8\) of the output"):
        weight_gradients(stack, state, np.ones(3))
    with pytest.raises(WeightError, match="cotangent: expected finite entries, got nan or inf"):
        weight_gradients(stack, state, state * np.nan)
    with pytest.raises(UnknownNameError, match=r"weights: expected weights of .* got W_9"):
        weight_gradients(stack, state, state, ["W_9"])
