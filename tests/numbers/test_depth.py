"""A stack of blocks: its product, its sums and its norms, against dense NumPy."""

import itertools

import mpmath
import numpy as np
import pytest

import derive
from derive.depth import Stack, depth_rows
from derive.errors import DomainError, ShapeError
from derive.linalg import materialise

from .conftest import TOKENS, WIDTH, random_weights

x = derive.state("x")


def build(placement, sublayer="ffn", layers=4, norm="layernorm"):
    block = derive.block(placement, norm, sublayer, x)
    weights = [random_weights(seed) for seed in range(layers)]
    for layer in weights:  # branches of moderate size, so that all path lengths count
        for name in layer:
            if name.startswith(("W_", "b_")):
                layer[name] = layer[name] * 0.3
    return Stack(block, x, weights)


def dense_product(stack, state):
    out = np.eye(state.size)
    for operator in stack.jacobians(state):
        out = operator @ np.eye(state.size) @ out
    return out


CASES = [
    (p, s, n)
    for p in ("post", "pre", "x + N(F(N(x)))")
    for s in ("ffn", "causal-attention")
    for n in ("layernorm", "rmsnorm")
]


@pytest.mark.parametrize(("placement", "sublayer", "norm"), CASES)
def test_product_and_its_singular_values(placement, sublayer, norm, state):
    stack = build(placement, sublayer, norm=norm)
    expected = dense_product(stack, state)
    found = stack.end_to_end(state)
    np.testing.assert_allclose(found.value(), expected, rtol=0, atol=1e-13 * np.abs(expected).max())
    singular = np.linalg.svd(expected, compute_uv=False)
    assert stack.log_norm(state) == pytest.approx(np.log(singular[0]), abs=1e-12)
    kept = singular > 1e-6 * singular[0]  # NumPy's small ones are noise, ours are not
    np.testing.assert_allclose(
        stack.log_singular_values(state)[kept], np.log(singular[kept]), rtol=0, atol=1e-9
    )


def test_end_to_end_jacobian_is_the_derivative_of_the_stack(state):
    """Central differences of the states: the product belongs to the trajectory."""
    stack = build("pre")
    expected = stack.end_to_end(state).value()
    h = 1e-6  # truncation h^2 and rounding eps/h are both near 1e-10
    for column in (0, 7, 19):
        step = np.zeros(state.size)
        step[column] = h
        step = step.reshape(state.shape)
        difference = (stack.states(state + step)[-1] - stack.states(state - step)[-1]) / (2 * h)
        np.testing.assert_allclose(expected[:, column], difference.ravel(), atol=1e-7)


@pytest.mark.parametrize(("placement", "sublayer", "norm"), CASES)
def test_gradient_norm_of_every_layer(placement, sublayer, norm, state):
    stack = build(placement, sublayer, norm=norm)
    cotangent = np.random.default_rng(5).normal(size=state.shape)
    gradient, expected = cotangent.ravel(), [np.linalg.norm(cotangent)]
    for operator in reversed(stack.jacobians(state)):
        gradient = materialise(operator).T @ gradient
        expected.append(np.linalg.norm(gradient))
    found = stack.gradient_log_norms(state, cotangent)
    np.testing.assert_allclose(found, np.log(expected[::-1]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_path_sums_are_the_sums_over_all_paths(placement, state):
    stack = build(placement, layers=5)
    branches = [materialise(a) for a in stack.branches(state)]
    sums = stack.path_sums(state)
    for k, found in enumerate(sums):
        expected = np.zeros((state.size,) * 2)
        for path in itertools.combinations(range(5), k):
            word = np.eye(state.size)
            for layer in path:
                word = branches[layer] @ word
            expected += word
        np.testing.assert_allclose(
            found, expected, rtol=0, atol=1e-12 * max(1, np.abs(expected).max())
        )
    total = stack.end_to_end(state).value()
    np.testing.assert_allclose(sum(sums), total, rtol=0, atol=1e-12 * np.abs(total).max())


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_remainder_bound_is_an_upper_bound(placement, order, state):
    stack = build(placement, layers=4)
    exact = stack.end_to_end(state).value()
    truncated = sum(stack.path_sums(state, order))
    remainder = np.linalg.norm(exact - truncated, 2)
    assert remainder <= stack.remainder_bound(state, order) * (1 + 1e-12)
    a = stack.branch_norms(state).sum()
    if order == 1:
        assert stack.remainder_bound(state, 1) == pytest.approx(np.expm1(a) - a, rel=1e-10)
        np.testing.assert_allclose(
            materialise(stack.first_order(state)),
            truncated,
            rtol=0,
            atol=1e-12 * np.abs(truncated).max(),
        )


def test_pre_norm_branch_has_no_identity_left_to_round(state):
    """A_l = J_l - I cancels in the expression: tiny branches keep their digits."""
    stack = build("pre")
    tiny = [
        {k: v * 1e-14 if k in ("W_2", "b_2") else v for k, v in w.items()} for w in stack.weights
    ]
    small = Stack(derive.block("pre", "layernorm", "ffn"), x, tiny)
    for big, little in zip(stack.branches(state)[:1], small.branches(state)[:1], strict=True):
        np.testing.assert_allclose(materialise(little), 1e-14 * materialise(big), rtol=1e-12)


def test_placements_may_change_with_depth(state):
    weights = [random_weights(k) for k in range(3)]
    blocks = [derive.block(p, "layernorm", "ffn", x) for p in ("post", "pre", "pre")]
    mixed = Stack(blocks, x, weights)
    expected = np.eye(state.size)
    point = state
    for block, w in zip(blocks, weights, strict=True):
        single = Stack(block, x, [w])
        expected = single.end_to_end(point).value() @ expected
        point = single.states(point)[-1]
    np.testing.assert_allclose(
        mixed.end_to_end(state).value(), expected, rtol=0, atol=1e-12 * np.abs(expected).max()
    )


# -- extreme depth


def scaled_norm_stack(alpha, layers):
    """x -> alpha x with a dead branch: the product is alpha^L I, exactly known at any depth."""
    block = derive.block("alpha*x + F(N(x))", "rmsnorm", "ffn:relu", x)
    dead = {**random_weights(0), "alpha": alpha}
    dead["W_2"], dead["b_2"] = 0 * dead["W_2"], 0 * dead["b_2"]
    return Stack(block, x, [dead] * layers)


@pytest.mark.parametrize("alpha", [0.4, 1.9], ids=["underflow", "overflow"])
def test_a_thousand_layers_neither_overflow_nor_underflow(alpha):
    stack = scaled_norm_stack(alpha, 1000)
    with mpmath.workdps(60):
        expected = float(1000 * mpmath.log(mpmath.mpf(alpha)))
    state = np.full((1, WIDTH), 1e-150 if alpha > 1 else 1e150)
    assert stack.log_norm(state) == pytest.approx(expected, rel=1e-13)
    grads = stack.gradient_log_norms(state, np.ones(WIDTH) / np.sqrt(WIDTH))
    assert grads[0] == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(stack.log_singular_values(state), expected, rtol=1e-12)


def test_post_norm_product_has_exact_null_directions(state):
    """1' diag(gain)^-1 J = 0 whatever the sublayer: one singular value is exactly zero."""
    values = build("post", norm="layernorm", layers=30).log_singular_values(state)
    assert np.isneginf(values[-TOKENS:]).all()
    assert np.isfinite(values[: TOKENS * (WIDTH - 2)]).all()


# -- edges and bad input


def test_no_layers_is_the_identity(state):
    stack = Stack(derive.block("post", "layernorm", "ffn"), x, [])
    assert stack.log_norm(state) == 0.0
    np.testing.assert_array_equal(stack.end_to_end(state).value(), np.eye(state.size))
    np.testing.assert_array_equal(stack.path_sums(state)[0], np.eye(state.size))
    np.testing.assert_array_equal(stack.states(state)[0], state)
    (gradient,) = stack.gradient_log_norms(state, np.ones(state.shape))
    assert gradient == pytest.approx(np.log(state.size) / 2, rel=1e-14)


def test_number_of_blocks_and_weights_must_agree():
    with pytest.raises(ShapeError, match="block: expected one block a layer for 1 layers, got 2"):
        Stack([derive.block("post")] * 2, x, [{}])


def test_negative_depth_is_refused():
    with pytest.raises(DomainError, match="layers: expected at least 0, got -1"):
        Stack.initialised(derive.block("post", "layernorm", "ffn"), x, -1, width=8)


def test_cotangent_of_other_size_is_refused(state):
    with pytest.raises(ShapeError, match="cotangent"):
        build("post").gradient_log_norms(state, np.ones(3))


def test_initialised_layers_do_not_depend_on_depth():
    block = derive.block("pre", "layernorm", "ffn")
    short, long = (Stack.initialised(block, x, depth, width=8, seed=3) for depth in (2, 5))
    for a, b in zip(short.weights, long.weights, strict=False):
        np.testing.assert_array_equal(a["W_1"], b["W_1"])
    assert not np.array_equal(long.weights[0]["W_1"], long.weights[1]["W_1"])


BAD_SIZES = {
    "width 1": ({"width": 1}, "width: expected at least 2, got 1"),
    "no tokens": ({"width": 8, "tokens": 0}, "tokens: expected at least 1"),
    "heads": ({"width": 8, "heads": 3}, "heads: expected a divisor of the width 8, got 3"),
}


@pytest.mark.parametrize("case", BAD_SIZES)
def test_bad_sizes_are_named(case):
    sizes, message = BAD_SIZES[case]
    with pytest.raises(DomainError, match=message):
        Stack.initialised(derive.block("pre", "layernorm", "attention"), x, 1, **sizes)


def test_depth_rows_state_what_they_measured():
    rows = depth_rows("pre", [0, 3], width=8, tokens=2, seed=1)
    assert [r["layers"] for r in rows] == [0, 3]
    for row in rows:
        assert len(row["grad_norms"]) == row["layers"] + 1
        assert row["log_grad_norms"][-1] == pytest.approx(0.0, abs=1e-14)
        np.testing.assert_allclose(np.log(row["grad_norms"]), row["log_grad_norms"], atol=1e-12)
    assert rows[0]["log_norm"] == 0.0
    assert rows[1]["log_norm"] <= np.log1p(rows[1]["branch_norm_sum"]) + rows[1]["branch_norm_sum"]


def test_a_block_that_is_zero():
    (row,) = depth_rows("0*x", [3], width=4)
    assert row["log_norm"] == -np.inf
    assert row["grad_norms"][:3] == [0.0] * 3
    assert row["branch_norm_sum"] == pytest.approx(3.0)  # A = -I in every layer
