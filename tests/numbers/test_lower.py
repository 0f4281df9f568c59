"""Values and operators of a block, against a block written in torch."""

import numpy as np
import pytest
import sympy

import derive
from derive.errors import DomainError, ShapeError, UnknownNodeError, WeightError
from derive.linalg import materialise
from derive.lower import AbstractMap, Environment, activation_function, evaluate, lower

from .conftest import HEADS, TOKENS, WIDTH, random_weights

x = derive.state("x")

PLACEMENTS = ("post", "pre", "x + N(F(N(x)))", "N(alpha*x + F(x))", "x + N(F(x))")
NORMS = ("layernorm", "rmsnorm")
SUBLAYERS = (
    *(f"ffn:{a}" for a in ("relu", "gelu", "gelu_tanh", "silu", "tanh")),
    "gated",
    "attention",
    "causal-attention",
    "rotary-attention",
)


def torch_block(placement, norm, sublayer, w):
    """The block in torch, with torch's own norms, activations and softmax."""
    torch = pytest.importorskip("torch")
    nn = torch.nn.functional
    t = {k: torch.tensor(np.asarray(v), dtype=torch.float64) for k, v in w.items()}

    def N(u):
        if norm == "layernorm":
            return nn.layer_norm(u, (WIDTH,), t["gain"], t["bias"], float(w["eps"]))
        return nn.rms_norm(u, (WIDTH,), t["gain"], float(w["eps"]))

    def activation(name):
        tanh_gelu = lambda v: nn.gelu(v, approximate="tanh")  # noqa: E731
        plain = {"relu": nn.relu, "gelu": nn.gelu, "silu": nn.silu, "tanh": torch.tanh}
        return plain.get(name, tanh_gelu)

    def F(z):
        kind, _, name = sublayer.partition(":")
        if kind == "ffn":
            hidden = activation(name)(nn.linear(z, t["W_1"], t["b_1"]))
            return nn.linear(hidden, t["W_2"], t["b_2"])
        if kind == "gated":
            gate = nn.silu(z @ t["W_gate"].T)
            return (gate * (z @ t["W_up"].T)) @ t["W_down"].T
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

    return {
        "post": lambda v: N(v + F(v)),
        "pre": lambda v: v + F(N(v)),
        "x + N(F(N(x)))": lambda v: v + N(F(N(v))),
        "N(alpha*x + F(x))": lambda v: N(t["alpha"] * v + F(v)),
        "x + N(F(x))": lambda v: v + N(F(v)),
    }[placement]


@pytest.mark.torch
@pytest.mark.parametrize("sublayer", SUBLAYERS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_value_operator_and_adjoint_agree_with_torch(placement, norm, sublayer, weights, state):
    torch = pytest.importorskip("torch")
    reference = torch_block(placement, norm, sublayer, weights)
    point = torch.tensor(state)
    expected = torch.func.jacrev(reference)(point).reshape(state.size, state.size).numpy()
    block = derive.block(placement, norm, sublayer, x)
    operator = lower(derive.jacobian(block, x), weights, state)
    # float64 sums of at most a few hundred terms of order one: 1e-12 is a thousandfold margin
    scale = np.abs(expected).max()
    assert np.abs(evaluate(block, weights, state) - reference(point).numpy()).max() < 1e-12
    assert np.abs(materialise(operator) - expected).max() < 1e-12 * scale
    probe = np.random.default_rng(2).normal(size=(state.size, 3))
    assert np.abs(operator @ probe - expected @ probe).max() < 1e-11 * scale
    assert np.abs(operator.H @ probe - expected.T @ probe).max() < 1e-11 * scale


def test_lowering_is_lazy_and_rejects_a_wrong_expression(weights, state):
    post = derive.jacobian(derive.block("post", "layernorm", "ffn"), x)
    pre = derive.jacobian(derive.block("pre", "layernorm", "ffn"), x)
    right, wrong = (materialise(lower(j, weights, state)) for j in (post, pre))
    assert np.abs(right - wrong).max() > 0.1


def test_abstract_sublayer_takes_its_numbers_from_the_user(weights, state):
    matrix = np.random.default_rng(3).normal(size=(WIDTH, WIDTH))
    maps = {
        "F": AbstractMap(
            function=lambda z: np.tanh(z @ matrix.T),
            jacobian=lambda z: (1 - np.tanh(z @ matrix.T) ** 2)[:, :, None] * matrix,
        )
    }
    same = {**weights, "W_1": matrix, "b_1": np.zeros(WIDTH), "W_2": np.eye(WIDTH)}
    same["b_2"] = np.zeros(WIDTH)
    abstract = derive.block("pre")
    concrete = derive.block("pre", "layernorm", "ffn:tanh")
    found = materialise(lower(derive.jacobian(abstract, x), weights, state, maps))
    expected = materialise(lower(derive.jacobian(concrete, x), same, state))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        evaluate(abstract, weights, state, maps), evaluate(concrete, same, state), atol=1e-13
    )


def test_one_token_may_be_a_flat_vector(weights, state):
    block = derive.block("post", "layernorm", "ffn")
    np.testing.assert_array_equal(
        evaluate(block, weights, state[0]), evaluate(block, weights, state[:1])[0]
    )


# -- limits


def test_constant_token_has_the_projection_over_sqrt_eps(weights):
    """Case 18: J = diag(gain) (I - 11'/d)/sqrt(eps) where the variance is zero."""
    state = np.full((1, WIDTH), 0.7)
    found = materialise(lower(derive.jacobian(derive.LayerNorm()(x), x), weights, state))
    expected = weights["gain"][:, None] * (np.eye(WIDTH) - 1 / WIDTH) / np.sqrt(1e-5)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("norm", [derive.LayerNorm(eps=0), derive.RMSNorm(eps=0)], ids=NORMS)
def test_zero_variance_at_eps_zero_is_an_error(norm, weights):
    with pytest.raises(
        DomainError, match=r"variance \(or mean square\) of a token is zero and eps = 0"
    ):
        lower(derive.jacobian(norm(x), x), weights, np.zeros((2, WIDTH)))


def test_single_feature_gives_exactly_zero():
    """Case 24: LayerNorm over one feature is constant."""
    weights = {"eps": 1e-5, "gain": [1.5], "bias": [-1.0]}
    found = materialise(
        lower(derive.jacobian(derive.LayerNorm()(x), x), weights, np.array([[3e5]]))
    )
    assert found.item() == 0.0


def test_large_mean_keeps_the_digits():
    """The variance is that of the deviations: x = z + 1e8 leaves J right to rounding."""
    z = np.random.default_rng(0).integers(-8, 8, size=(1, WIDTH)) / 4  # exact in float64 at 1e8
    weights = {"eps": 1e-5, "gain": np.ones(WIDTH), "bias": np.zeros(WIDTH)}
    jacobian = derive.jacobian(derive.LayerNorm()(x), x)
    near, far = (materialise(lower(jacobian, weights, z + shift)) for shift in (0.0, 1e8))
    np.testing.assert_allclose(far, near, rtol=0, atol=1e-9)


def test_softmax_does_not_overflow(weights, state):
    block = derive.block("pre", "rmsnorm", "attention")
    hot = {**weights, "W_Q": 1e6 * weights["W_Q"]}
    assert np.isfinite(evaluate(block, hot, state)).all()


def test_fully_masked_row_is_a_zero_row(weights, state):
    mask = np.ones((TOKENS, TOKENS), dtype=bool)
    mask[1] = False
    attention = derive.Attention(masked=True)
    found = evaluate(attention(x), {**weights, "mask": mask}, state)
    assert not found[1].any()
    assert found[0].any()
    blocks = materialise(lower(derive.jacobian(attention(x), x), {**weights, "mask": mask}, state))
    assert not blocks[WIDTH : 2 * WIDTH].any()


def test_gelu_keeps_its_digits_far_left():
    """At -9 the form (1 + erf)/2 is zero; the normal distribution function is 1.1e-19."""
    gelu = derive.activation("gelu")
    value = activation_function(gelu, 0)(np.array([-9.0])).item()
    assert value == pytest.approx(-9 * 1.1285884059538408e-19, rel=1e-12, abs=0)


def test_relu_has_derivative_zero_at_its_corner():
    assert activation_function(derive.activation("relu"), 1)(np.zeros(1)).item() == 0.0


# -- bad input

BAD_WEIGHTS = {
    "missing": ({"W_1": None}, WeightError, "weight W_1: missing; given are"),
    "NaN": ({"W_1": np.full((10, 8), np.nan)}, WeightError, "weight W_1: expected finite numbers"),
    "transposed": (
        {"W_1": np.ones((8, 10))},
        ShapeError,
        r"weight W_1 of shape \(8, 10\): expected",
    ),
    "vector for a matrix": ({"W_1": np.ones(8)}, ShapeError, "weight W_1: expected 2 axes"),
    "text": ({"W_1": "big"}, WeightError, "weight W_1: expected numbers"),
    "hidden width": ({"b_1": np.ones(9)}, ShapeError, "expected f = "),
    "gain": ({"gain": np.ones(7)}, ShapeError, "expected d = 8, got 7"),
}


@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_bad_weight_is_named(case, weights, state):
    changed, error, message = BAD_WEIGHTS[case]
    given = {k: v for k, v in {**weights, **changed}.items() if v is not None}
    block = derive.block("post", "layernorm", "ffn")
    for action in (
        lambda: evaluate(block, given, state),
        lambda: lower(derive.jacobian(block, x), given, state),
    ):
        with pytest.raises(error, match=message):
            action()


BAD_MASKS = {
    "additive": (np.zeros((TOKENS, TOKENS)), WeightError, "expected booleans"),
    "shape": (np.ones((2, 2), dtype=bool), ShapeError, r"expected shape \(4, 4\)"),
}


@pytest.mark.parametrize("case", BAD_MASKS)
def test_bad_mask_is_named(case, weights, state):
    mask, error, message = BAD_MASKS[case]
    block = derive.block("pre", "layernorm", "causal-attention")
    with pytest.raises(error, match=f"weight mask: {message}"):
        evaluate(block, {**weights, "mask": mask}, state)


BAD_STATES = {
    "NaN": (np.full((2, WIDTH), np.nan), WeightError, "state: expected finite numbers"),
    "three axes": (np.ones((1, 2, WIDTH)), ShapeError, r"state: expected an array \(n, d\)"),
    "empty": (np.ones((0, WIDTH)), ShapeError, "state: expected an array"),
    "width": (np.ones((2, WIDTH + 1)), ShapeError, "d = 9"),
}


@pytest.mark.parametrize("case", BAD_STATES)
def test_bad_state_is_named(case, weights):
    state, error, message = BAD_STATES[case]
    with pytest.raises(error, match=message):
        evaluate(derive.block("post", "layernorm", "ffn"), weights, state)


def test_rotary_tables_of_other_length_are_refused(weights, state):
    block = derive.block("pre", "layernorm", "rotary-attention")
    with pytest.raises(ShapeError, match="weight R: expected 3 tokens, got 4"):
        evaluate(block, weights, state[:3])


def test_abstract_map_without_numbers_is_named(weights, state):
    with pytest.raises(WeightError, match="map F: an abstract sublayer needs an AbstractMap"):
        evaluate(derive.block("post"), weights, state)


@pytest.mark.parametrize("part", ["function", "jacobian"])
def test_abstract_map_of_wrong_shape_is_named(part, weights, state):
    good = {
        "function": lambda z: z,
        "jacobian": lambda z: np.tile(np.eye(WIDTH), (TOKENS, 1, 1)),
    }
    maps = {"F": AbstractMap(**{**good, part: lambda z: z[:, :2]})}
    block = derive.block("pre")
    action = evaluate if part == "function" else lower
    target = block if part == "function" else derive.jacobian(block, x)
    with pytest.raises(ShapeError, match="map F: expected"):
        action(target, weights, state, maps)


def test_node_without_a_rule_names_itself(weights, state):
    env = Environment(weights, state)
    with pytest.raises(UnknownNodeError, match="evaluate: no rule for MatrixSymbol"):
        env(sympy.MatrixSymbol("Q", 2, 1))
    with pytest.raises(UnknownNodeError, match=r"lower: .* is a vector"):
        lower(x + x, weights, state)


def test_weights_may_be_lists(state):
    weights = {k: np.asarray(v).tolist() for k, v in random_weights().items()}
    assert np.isfinite(evaluate(derive.block("post", "rmsnorm", "gated"), weights, state)).all()


# -- paths of attention


def test_paths_of_attention_add_up_and_are_those_of_autodiff(weights, state):
    """Case 15: stopping the gradient of two of query, key and value leaves the third path."""
    torch = pytest.importorskip("torch")
    from derive.lower import lower_paths

    D = derive.derivation(derive.Attention()(x), x)
    (node,) = [k for k in D.definitions if k.func.__name__ == "TokenBlocks"]
    found = {k: materialise(v) for k, v in lower_paths(node, weights, state).items()}
    assert set(found) == {"value path", "key path", "query path"}
    total = materialise(lower(D.jacobian, weights, state))
    np.testing.assert_allclose(sum(found.values()), total, rtol=0, atol=1e-13 * abs(total).max())
    t = {k: torch.tensor(np.asarray(v), dtype=torch.float64) for k, v in weights.items()}

    def attention(z, live):
        out = torch.zeros_like(z)
        for h in range(HEADS):
            q, k, v = (
                (z if letter == live else z.detach()) @ t[f"W_{letter}"][h].T for letter in "QKV"
            )
            weight = torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1)
            out = out + weight @ v @ t["W_O"][h].T
        return out

    for letter, name in zip("QKV", ("query path", "key path", "value path"), strict=True):
        expected = torch.func.jacrev(lambda z, live=letter: attention(z, live))(torch.tensor(state))
        expected = expected.reshape(state.size, state.size).numpy()
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-12 * abs(total).max())
