"""Trace, diagonal, Frobenius norm and log-determinant against the dense matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derive
from derive.depth import Stack
from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg import (
    Chain,
    Contraction,
    Dense,
    Diagonal,
    Identity,
    LowRank,
    Scaling,
    Sum,
    Zero,
    diagonal,
    frobenius_norm,
    log_abs_det,
    token_square_norms,
    trace,
)
from derive.lower import PerToken, lower

x = derive.state("x")


def dense_of(op):
    """The matrix by one column at a time."""
    return np.stack([op.matvec(column) for column in np.eye(op.shape[1])], axis=1)


def blocks_of(op):
    grid = dense_of(op).reshape(op.tokens, op.rows, op.tokens, op.cols)
    return grid[np.arange(op.tokens), :, np.arange(op.tokens), :]


def cases(n, d, seed):
    normal = np.random.default_rng(seed).standard_normal
    f = 3 * d
    norm = Chain(
        Scaling(1.0 + normal(n) ** 2, n, d),
        Diagonal(1.0 + normal((1, d)) ** 2, n),
        Sum(Identity(n, d), LowRank(normal((n, d, 1)), normal((n, d, 1)) / d, n)),
    )
    ffn = Chain(
        Dense(normal((d, f)), n), Diagonal(normal((n, f)), n), Dense(normal((f, d)) / f, n), norm
    )
    mixing = Contraction(
        [
            [(normal((2, n, n)), "hij"), (normal((2, d, 2)), "hra"), (normal((2, 2, d)), "hac")],
            [(normal((n, d, d)), "irc")],
        ],
        n,
        d,
        d,
    )
    return {
        "identity": Identity(n, d),
        "scaling": Scaling(normal(n), n, d),
        "diagonal": Diagonal(normal((1, d)), n),
        "low rank": Identity(n, d) + LowRank(normal((n, d, 1)), normal((1, d, 1)), n),
        "dense": Dense(normal((n, d, d)), n),
        "shared": Dense(normal((d, d)), n),
        "norm": norm,
        "ffn": ffn,
        "residual": Sum(Identity(n, d), ffn),
        "layers": Sum(Identity(n, d), ffn) @ norm @ Sum(Scaling(np.array([0.5]), n, d), ffn),
        "attention": mixing,
        "layer": Sum(Identity(n, d), ffn) @ Sum(Identity(n, d), mixing @ norm),
    }


NAMES = list(cases(1, 3, 0))


@pytest.mark.parametrize("name", NAMES)
@given(n=st.integers(1, 4), d=st.integers(3, 7), seed=st.integers(0, 2**16))
@settings(max_examples=12, deadline=None)
def test_against_the_dense_matrix(name, n, d, seed):
    op = cases(n, d, seed)[name]
    matrix = dense_of(op)
    # A handful of products of order-one entries, relative to the largest sum in them.
    atol = 1e-12 * max(1.0, np.abs(matrix).max()) * d
    np.testing.assert_allclose(diagonal(op), np.diag(matrix), rtol=0, atol=atol)
    np.testing.assert_allclose(trace(op), np.trace(matrix), rtol=0, atol=n * d * atol)
    assert frobenius_norm(op) == pytest.approx(np.linalg.norm(matrix), rel=1e-10)
    sign, log = log_abs_det(op)
    expected = np.linalg.slogdet(matrix)
    # The determinant's relative error is that of a solve: n eps times the condition number.
    tolerance = 1e-13 * n * d * np.linalg.cond(matrix)
    if tolerance < 0.1:
        assert sign == expected[0]
        assert log == pytest.approx(expected[1], abs=max(tolerance, 1e-12))


@pytest.mark.parametrize("name", [k for k in NAMES if k not in ("attention", "layer")])
def test_each_token_has_its_own(name):
    op = cases(3, 5, 1)[name]
    blocks = blocks_of(op)
    atol = 1e-11 * np.abs(blocks).max()
    np.testing.assert_allclose(
        trace(op, per_token=True), np.trace(blocks, axis1=1, axis2=2), atol=atol
    )
    np.testing.assert_allclose(
        frobenius_norm(op, per_token=True), np.linalg.norm(blocks, axis=(1, 2)), rtol=1e-10
    )
    sign, log = log_abs_det(op, per_token=True)
    expected = np.linalg.slogdet(blocks)
    np.testing.assert_array_equal(sign, expected[0])
    np.testing.assert_allclose(log, expected[1], atol=1e-9)
    assert diagonal(op, per_token=True).shape == (3, 5)


@pytest.mark.parametrize("sublayer", ["ffn:relu", "ffn:gelu", "gated", "ffn:tanh"])
@pytest.mark.parametrize("equation", ["pre", "F(N(x))", "alpha*x + F(N(x))", "post", "sandwich"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_norms_of_many_tokens(equation, norm, sublayer):
    """By the Gram matrices of the shared weights, not by the blocks."""
    block = derive.block(equation, norm, sublayer, x)
    stack = Stack.initialised(block, x, 1, width=16, tokens=40, hidden=20, values={"alpha": 0.7})
    op = stack.jacobians(np.random.default_rng(0).normal(size=(40, 16)))[0]
    blocks = blocks_of(op)
    # The terms of the sum are at most some hundred times the result.
    np.testing.assert_allclose(
        token_square_norms(op), (blocks**2).sum(axis=(1, 2)), rtol=1e-12, atol=0
    )


def test_gram_form_takes_no_blocks(monkeypatch):
    import sys

    module = sys.modules["derive.linalg.ensembles"]
    monkeypatch.setattr(module, "blocks_in_parts", None)
    block = derive.block("pre", "layernorm", "gated", x)
    stack = Stack.initialised(block, x, 1, width=16, tokens=200)
    op = stack.jacobians(np.random.default_rng(0).normal(size=(200, 16)))[0]
    assert token_square_norms(op).shape == (200,)


def test_seeds_are_tokens_with_weights_of_their_own():
    """Many stacks of one block, with different weights, in one evaluation."""
    block = derive.block("pre", "layernorm", "ffn", x)
    one = [Stack.initialised(block, x, 1, width=8, seed=s) for s in range(5)]
    found = derive.derivation(block, x)
    joint = PerToken(
        {k: np.stack([s.weights[0][k] for s in one]) for k in one[0].weights[0] if k != "eps"},
        eps=1e-5,
    )
    points = np.random.default_rng(0).normal(size=(5, 8))
    together = lower(found.jacobian, joint, points)
    for k, stack in enumerate(one):
        alone = stack.jacobians(points[k])[0]
        matrix = dense_of(alone)
        np.testing.assert_allclose(blocks_of(together)[k], matrix, rtol=0, atol=1e-13)
        assert trace(together, per_token=True)[k] == pytest.approx(np.trace(matrix), abs=1e-12)
        assert frobenius_norm(together, per_token=True)[k] == pytest.approx(np.linalg.norm(matrix))
        sign, log = log_abs_det(together, per_token=True)
        assert (sign[k], log[k]) == pytest.approx(np.linalg.slogdet(matrix), abs=1e-11)


def test_weights_per_token_are_refused_where_tokens_meet():
    block = derive.block("pre", "layernorm", "attention", x)
    stack = Stack.initialised(block, x, 1, width=8, tokens=3)
    joint = PerToken({k: np.stack([v] * 3) for k, v in stack.weights[0].items()})
    with pytest.raises(DomainError, match="weights: expected a block of which each token"):
        lower(derive.derivation(block, x).jacobian, joint, np.eye(3, 8))


def test_weights_per_token_have_one_row_a_token():
    jacobian = derive.jacobian(derive.RMSNorm()(x), x)
    with pytest.raises(ShapeError, match="weight gain: expected a leading axis of 2 tokens"):
        lower(jacobian, PerToken(gain=np.ones((3, 4)), eps=1e-5), np.eye(2, 4))
    with pytest.raises(ShapeError, match="weight eps: expected one number, or 2"):
        lower(jacobian, PerToken(gain=np.ones((2, 4)), eps=np.ones(3)), np.eye(2, 4))


def test_a_zero_determinant():
    assert log_abs_det(Zero(2, 3, 3)) == (0.0, -np.inf)
    assert log_abs_det(Diagonal(np.array([[1.0, 0.0]]), 2)) == (0.0, -np.inf)
    thin = Dense(np.ones((3, 1)), 1) @ Dense(np.ones((1, 3)), 1)
    assert log_abs_det(thin)[1] == -np.inf
    layernorm = derive.jacobian(derive.LayerNorm()(x), x)
    weights = {"gain": np.ones(8), "bias": np.zeros(8), "eps": 1e-5}
    _, log = log_abs_det(lower(layernorm, weights, np.arange(8.0)))
    assert log < -30  # the direction 1 is lost, to rounding


def test_a_thousand_layers_do_not_overflow():
    op = Chain(*[Scaling(np.array([1e200]), 2, 3)] * 1000)
    sign, log = log_abs_det(op)
    assert sign == 1.0
    assert log == pytest.approx(6000 * 200 * np.log(10), rel=1e-13)


def test_bad_operands_are_named():
    tall = Dense(np.ones((3, 2)), 1)
    for function in (diagonal, trace, log_abs_det):
        with pytest.raises(ShapeError, match=r"op: expected a square operator, got shape \(3, 2\)"):
            function(tall)
    for function in (diagonal, trace, frobenius_norm, log_abs_det, token_square_norms):
        with pytest.raises(UnknownNodeError, match="op: expected an Operator, got ndarray"):
            function(np.eye(2))
    mixing = cases(3, 4, 0)["attention"]
    with pytest.raises(ShapeError, match="block diagonal over tokens"):
        log_abs_det(mixing, per_token=True)
    with pytest.raises(ShapeError, match="block diagonal over tokens"):
        token_square_norms(mixing)
    with pytest.raises(DomainError, match="max_bytes"):
        frobenius_norm(mixing, max_bytes=100)
    with pytest.raises(DomainError, match="max_bytes"):
        log_abs_det(mixing, max_bytes=100)
