"""Every placement, norm and sublayer against torch's autodiff of its equation.

The oracle reads the equation as text, with torch's own norms and activations: nothing of the
derivation, of the lowering or of the operators is in it. A difference of 1e-12 is some hundred
roundings of sums of a dozen terms.
"""

import ast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derive
from derive.blocks.placements import PLACEMENTS
from derive.depth import Stack
from derive.linalg import materialise, product_of_blocks, token_blocks
from derive.lower import PerToken, lower, lower_together

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

x = derive.state("x")
EPS = 1e-5
SCALARS = {"alpha": 1.3, "beta": 0.7}
ELSEWHERE = {
    "hybridnorm": "norms of queries, keys and values",
    "normformer": "a norm inside the FFN",
    "sub-ln": "a norm inside the FFN",
    "ngpt": "norms without gain",
    "decoder-2017": "a memory",
    "decoder-pre": "a memory",
}
"""Placements that need more than their equation says; the zoo of real layers checks them."""
EQUATIONS = {name: p.equation for name, p in PLACEMENTS.items() if name not in ELSEWHERE}
SUBLAYERS = ("ffn:gelu", "ffn:relu", "gated:silu", "causal-attention")


def draw(block, width, tokens, seed):
    """Weights of which no gain is one and no bias zero."""
    stack = Stack.initialised(block, x, 1, width=width, tokens=tokens, heads=2, values=SCALARS)
    rng = np.random.default_rng(seed)
    found = {}
    for name, value in stack.weights[0].items():
        shift = 0.3 * rng.normal(size=np.shape(value)) if np.ndim(value) else 0.0
        found[name] = value + shift
    return found


class Oracle:
    """The equation of a placement in torch."""

    def __init__(self, equation, norm, sublayer, weights):
        self.norm, self.sublayer = norm, sublayer
        self.weights = {k: torch.as_tensor(np.array(v)) for k, v in weights.items()}
        *lets, self.value = (part.strip() for part in equation.split(";"))
        self.lets = [tuple(side.strip() for side in let.split("=")) for let in lets]

    def __call__(self, state):
        names = {"x": state}
        for name, text in self.lets:
            names[name] = self.of(ast.parse(text, mode="eval").body, names)
        return self.of(ast.parse(self.value, mode="eval").body, names)

    def of(self, node, names):
        if isinstance(node, ast.BinOp):
            left, right = self.of(node.left, names), self.of(node.right, names)
            return {ast.Add: left.__add__, ast.Sub: left.__sub__, ast.Mult: left.__mul__}[
                type(node.op)
            ](right)
        if isinstance(node, ast.Name):
            return names[node.id] if node.id in names else self.weights[node.id]
        assert isinstance(node, ast.Call)
        argument = self.of(node.args[0], names)
        letter, suffix = node.func.id[0], node.func.id[1:]
        if letter == "N":
            return self.normed(argument, f"_{suffix}" if suffix else "")
        return self.mapped(argument, "attention" if letter == "A" else self.sublayer)

    def normed(self, t, suffix):
        gain = self.weights["gain" + suffix]
        functional = torch.nn.functional
        if self.norm == "rmsnorm":
            return functional.rms_norm(t, t.shape[-1:], gain, EPS)
        return functional.layer_norm(t, t.shape[-1:], gain, self.weights["bias" + suffix], EPS)

    def mapped(self, t, sublayer):
        w, functional = self.weights, torch.nn.functional
        kind, _, activation = sublayer.partition(":")
        if kind == "ffn":
            hidden = getattr(functional, activation)(functional.linear(t, w["W_1"], w["b_1"]))
            return functional.linear(hidden, w["W_2"], w["b_2"])
        if kind == "gated":
            hidden = functional.silu(functional.linear(t, w["W_gate"]))
            return functional.linear(hidden * functional.linear(t, w["W_up"]), w["W_down"])
        q, k, v = (torch.einsum("hac,nc->hna", w[f"W_{s}"], t) for s in "QKV")
        causal = kind == "causal-attention"
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return torch.einsum("hra,hna->nr", w["W_O"], out)

    def jacobian(self, state):
        found = torch.func.jacrev(self)(torch.as_tensor(state))
        return found.reshape(state.size, state.size).detach().numpy()


def close(found, expected):
    return np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("name", EQUATIONS)
def test_operator_adjoint_and_matrix(name, norm):
    """Twice for each shape: the second time the lowering is replayed."""
    rng = np.random.default_rng(0)
    for sublayer in SUBLAYERS[:3] if "A(" in EQUATIONS[name] else SUBLAYERS:
        block = derive.block(name, norm, sublayer, x)
        found = derive.derivation(block, x)
        for tokens, seed in ((1, 0), (1, 1), (4, 2), (4, 3)):
            weights = draw(block, 8, tokens, seed)
            state = rng.normal(size=(tokens, 8))
            expected = Oracle(EQUATIONS[name], norm, sublayer, weights).jacobian(state)
            op = lower(found.jacobian, weights, state)
            assert close(materialise(op), expected), (sublayer, tokens)
            eye = np.eye(state.size)
            assert close(op.matmat(eye), expected), (sublayer, tokens)
            assert close(op.rmatmat(eye), expected.T), (sublayer, tokens)
            assert close(op.T.matmat(eye), expected.T), (sublayer, tokens)
            assert close(materialise(op.T), expected.T), (sublayer, tokens)
            v, u = rng.normal(size=(2, state.size))
            assert close(op @ v, expected @ v), (sublayer, tokens)
            assert close(op.H @ u, expected.T @ u), (sublayer, tokens)
            # <u, J v> = <J' u, v>, relative to the sizes of what meets.
            gap = abs(u @ op.matvec(v) - op.rmatvec(u) @ v)
            assert gap <= 1e-13 * np.linalg.norm(u) * np.linalg.norm(expected @ v) + 1e-13
            if op.tokenwise:
                grid = expected.reshape(tokens, 8, tokens, 8)
                own = grid[np.arange(tokens), :, np.arange(tokens), :]
                assert close(token_blocks(op), own), (sublayer, tokens)


@pytest.mark.parametrize("sublayer", SUBLAYERS[:3])
@pytest.mark.parametrize("name", ["post", "pre", "sandwich", "deepnorm", "normed-residual"])
def test_layers_together(name, sublayer):
    """Layers as tokens with weights of their own, and their product."""
    block = derive.block(name, "layernorm", sublayer, x)
    found = derive.derivation(block, x)
    stack = Stack.initialised(block, x, 5, width=8, values=SCALARS, seed=3)
    start = np.random.default_rng(0).normal(size=(1, 8))
    states = stack.states(start)
    blocks = [
        Oracle(EQUATIONS[name], "layernorm", sublayer, w).jacobian(s)
        for w, s in zip(stack.weights, states[:-1], strict=True)
    ]
    joint = PerToken({k: np.stack([w[k] for w in stack.weights]) for k in stack.weights[0]})
    op = lower(found.jacobian, joint, np.concatenate(states[:-1]))
    assert close(token_blocks(op), np.stack(blocks))
    expected = np.linalg.multi_dot(blocks[::-1])
    assert close(product_of_blocks(op).value(), expected)
    assert close(stack.end_to_end(start).value(), expected)
    assert close(stack.end_to_end(start, 2).value(), np.linalg.multi_dot(blocks[:1:-1]))
    for k, one in enumerate(stack.jacobians(start)):
        assert close(materialise(one), blocks[k])


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 5),
    width=st.sampled_from([2, 4, 6, 10]),
    name=st.sampled_from(["post", "pre", "sandwich", "parallel", "b2t"]),
    sublayer=st.sampled_from(SUBLAYERS),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    seed=st.integers(0, 1000),
)
def test_shapes_and_scales(tokens, width, name, sublayer, scale, seed):
    if "A(" in EQUATIONS[name] and sublayer.endswith("attention"):
        sublayer = "ffn:tanh"
    block = derive.block(name, "layernorm", sublayer, x)
    weights = draw(block, width, tokens, seed)
    state = scale * np.random.default_rng(seed).normal(size=(tokens, width))
    expected = Oracle(EQUATIONS[name], "layernorm", sublayer, weights).jacobian(state)
    found = derive.derivation(block, x)
    (op,), (value,) = lower_together((found.jacobian,), (found.output,), weights, state)
    # torch's layer_norm divides by the same s; what is lost is the cancellation in xhat, at
    # width 2 in 1 - xhat^2/d, which leaves eps/(var + eps) of it.
    bar = 1e-12 if width > 2 else 1e-7
    assert np.abs(materialise(op) - expected).max() <= bar * max(np.abs(expected).max(), 1e-6)
    image = Oracle(EQUATIONS[name], "layernorm", sublayer, weights)(torch.as_tensor(state))
    np.testing.assert_allclose(value, image.numpy(), rtol=0, atol=1e-11 * max(1.0, scale))


@pytest.mark.parametrize("change", ["sign", "gain", "dropped", "state"])
def test_a_wrong_jacobian_is_rejected(change):
    block = derive.block("pre", "layernorm", "ffn:gelu", x)
    weights = draw(block, 8, 2, 0)
    state = np.random.default_rng(0).normal(size=(2, 8))
    op = lower(derive.derivation(block, x).jacobian, weights, state)
    wrong = dict(weights)
    if change == "sign":
        op = -1.0 * op
    elif change == "gain":
        wrong["gain"] = weights["gain"] * (1 + 1e-11)
    elif change == "state":
        state = state + 1e-10 * np.arange(16.0).reshape(2, 8)
    equation = "x + F(x)" if change == "dropped" else "x + F(N(x))"
    expected = Oracle(equation, "layernorm", "ffn:gelu", wrong).jacobian(state)
    assert not close(materialise(op), expected)


def test_the_placements_that_are_left_out_exist():
    assert set(ELSEWHERE) < set(PLACEMENTS)
