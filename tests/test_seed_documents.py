"""What the documents that started the project say, reproduced or put right."""

import numpy as np
import pytest

import derive
from derive.lower import AbstractMap, evaluate

PLAIN = {"gain": np.ones(8), "bias": np.zeros(8), "eps": 1e-5}


@pytest.fixture
def demo():
    """The first document's demonstration: its seed, its order of draws, its sublayer."""
    generator = np.random.RandomState(42)
    x = generator.randn(4, 8)
    weight = generator.randn(8, 8) * 0.1
    tanh = AbstractMap(
        function=lambda z: np.tanh(z @ weight),
        jacobian=lambda z: (1 - np.tanh(z @ weight) ** 2)[:, :, None] * weight.T,
    )
    return x, tanh


def test_first_documents_demo_digit_for_digit(demo):
    x, tanh = demo
    y = evaluate(derive.block("post"), PLAIN, x, {"F": tanh})
    assert f"{x.mean():.4f} {x.std():.4f}" == "-0.1373 0.9311"
    assert f"{abs(y.mean()):.4f} {y.std():.4f}" == "0.0000 1.0000"


def test_the_std_is_not_one_but_sqrt_of_v_over_v_plus_eps(demo):
    x, tanh = demo
    y = evaluate(derive.block("post"), PLAIN, x, {"F": tanh})
    u = x + tanh.function(x)
    v = u.var(axis=1)
    np.testing.assert_allclose(y.std(axis=1), np.sqrt(v / (v + 1e-5)), rtol=1e-14)
    expected = [0.99999192, 0.99999201, 0.99999469, 0.99999272]
    np.testing.assert_allclose(y.std(axis=1), expected, rtol=0, atol=5e-9)
    assert (y.std(axis=1) < 1).all()


@pytest.mark.parametrize(
    ("std", "expected"), [(np.sqrt(1e-5), 0.70710678), (1e-4, 0.03160698)], ids=["eps", "below eps"]
)
def test_unit_variance_needs_a_variance_far_above_eps(std, expected):
    token = np.array([1.0, -1.0] * 4)[None] * std
    y = evaluate(derive.LayerNorm()(derive.state("x")), PLAIN, token)
    assert y.std() == pytest.approx(expected, rel=1e-6, abs=0)


def test_zero_mean_needs_mean_subtraction_and_no_bias(demo):
    x, tanh = demo
    rms = evaluate(derive.block("post", "rmsnorm"), PLAIN, x, {"F": tanh})
    assert (abs(rms.mean(axis=1)) > 0.05).all()
    shifted = {**PLAIN, "bias": np.full(8, 1.5)}
    y = evaluate(derive.block("post"), shifted, x, {"F": tanh})
    np.testing.assert_allclose(y.mean(axis=1), 1.5, rtol=1e-14)


def test_post_norm_bounds_the_activations_whatever_the_sublayer(demo):
    """|y| <= sqrt(d) max|gain| + |bias|: the second document's "not normalized" is wrong."""
    x, _ = demo
    wild = AbstractMap(
        function=lambda z: 1e6 * z**3, jacobian=lambda z: 3e6 * z[:, :, None] ** 2 * np.eye(8)
    )
    y = evaluate(derive.block("post"), PLAIN, x, {"F": wild})
    assert (np.linalg.norm(y, axis=1) <= np.sqrt(8) * (1 + 1e-15)).all()
    unbounded = evaluate(derive.block("pre"), PLAIN, x, {"F": wild})
    assert np.linalg.norm(unbounded) > 1e6


def test_the_third_documents_missing_factor(demo):
    """dx_{l+1}/dx_l is I + DF J_N, not I + DF: leaving J_N out is seen at once."""
    from derive.linalg import materialise
    from derive.lower import lower

    x, tanh = demo
    state = derive.state("x")
    block = derive.block("pre")
    right = materialise(lower(derive.jacobian(block, state), PLAIN, 10 * x, {"F": tanh}))
    z = evaluate(derive.LayerNorm()(state), PLAIN, 10 * x)
    without = np.eye(32)
    for token, blocks in enumerate(tanh.jacobian(z)):
        rows = slice(8 * token, 8 * token + 8)
        without[rows, rows] += blocks
    assert np.linalg.norm(right - without, 2) > 0.1


def test_gradient_of_pre_norm_is_not_bounded_by_a_sum():
    """The third document's bound fails: 2^L at a normalised block, against the sum 1 + L."""
    from derive.depth import Stack
    from derive.linalg import materialise

    d, layers = 8, 24
    u = np.array([1.0, -1.0] * (d // 2))  # mean-free, |u|^2 = d: LayerNorm at eps = 0 keeps it
    branch = np.eye(d) - 1 / d - np.outer(u, u) / d  # kills 1 and u, so that u is a fixed point
    linear = AbstractMap(
        function=lambda z: z @ branch.T, jacobian=lambda z: np.tile(branch, (len(z), 1, 1))
    )
    block = derive.block("pre", derive.LayerNorm(eps=0))
    stack = Stack(block, derive.state("x"), [PLAIN] * layers, {"F": linear})
    norm = np.exp(stack.log_norm(u[None]))
    assert norm == pytest.approx(2.0**layers, rel=1e-12)
    assert all(abs(np.linalg.norm(materialise(a), 2) - 1) < 1e-12 for a in stack.branches(u[None]))
    assert norm > 1e5 * (1 + layers)
