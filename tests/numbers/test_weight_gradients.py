"""Gradients of weights, against torch's autograd through blocks written in torch."""

import numpy as np
import pytest

import derive
from derive.calculus.weight_gradient import weight_differential
from derive.depth import Stack
from derive.depth.weight_gradients import (
    block_weight_gradients,
    trainable,
    weight_gradient_log_norms,
    weight_gradients,
)
from derive.errors import DomainError, ShapeError, UnknownNameError

from .conftest import HEADS, TOKENS, WIDTH, random_weights

torch = pytest.importorskip("torch")
nn = torch.nn.functional

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

    def N(u, suffix=""):
        gain, bias = t["gain" + suffix], t["bias" + suffix]
        if norm == "layernorm":
            return nn.layer_norm(u, (WIDTH,), gain, bias, 1e-5)
        return nn.rms_norm(u, (WIDTH,), gain, 1e-5)

    return lambda u: PLACEMENTS[placement](N, lambda z: torch_sublayer(sublayer, z, t), u, t)


def tensors(weights):
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


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("sublayer", SUBLAYERS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_weight_of_a_block_matches_autograd(placement, sublayer, norm, state):
    weights = numbers()
    found = derive.derivation(derive.block(placement, norm, sublayer, x), x)
    names = trainable(found.block, weights)
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
