"""The structures that make forming quick give the same matrix: each is seen at work, not timed."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derive
from derive import lower as lowering
from derive.depth import Stack
from derive.errors import DomainError, ShapeError, UnknownNodeError, WeightError
from derive.linalg import (
    Chain,
    Contraction,
    Dense,
    Diagonal,
    Identity,
    LowRank,
    Operator,
    Scaling,
    Sum,
    Zero,
    end_to_end,
    materialise,
    product_of_blocks,
    token_blocks,
)
from derive.linalg.recording import DepartureError, Recording, record
from derive.linalg.restriction import blocks_in_parts, restricted
from derive.lower import evaluate, lower

x = derive.state("x")


def multiply_adds(monkeypatch, work):
    """Multiply-adds that go through np.matmul while ``work`` runs."""
    counted = []
    matmul = np.matmul

    def counting(a, b, **options):
        out = matmul(a, b, **options)
        counted.append(out.size * a.shape[-1])
        return out

    with monkeypatch.context() as patch:
        patch.setattr(np, "matmul", counting)
        work()
    return sum(counted)


def dense_of(op):
    return np.stack([op.matvec(column) for column in np.eye(op.shape[1])], axis=1)


# -- active rows


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 4),
    share=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    shared=st.booleans(),
    low_rank=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_rows_that_a_diagonal_drops(n, share, shared, low_rank, seed):
    """Zeros of the diagonal, different ones in every token, all of them and none."""
    rng = np.random.default_rng(seed)
    d, f = 5, 40
    entries = rng.normal(size=(n, f)) * (rng.random((n, f)) >= share)
    lead = 1 if shared else n
    left = Dense(rng.normal(size=(lead, d, f)), n)
    right = Dense(rng.normal(size=(n, f, d)), n)
    middle = [Diagonal(entries, n), Scaling(rng.normal(size=n), n, f)]
    if low_rank:
        middle.insert(0, LowRank(rng.normal(size=(n, f, 2)), rng.normal(size=(lead, f, 2)), n))
    op = Chain(left, *middle, right)
    expected = dense_of(op)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(materialise(op), expected, rtol=0, atol=1e-12 * scale)


def test_only_active_rows_are_multiplied(monkeypatch):
    d, f = 16, 200
    rng = np.random.default_rng(0)
    entries = np.zeros((1, f))
    entries[0, :50] = 1.0
    op = Chain(
        Dense(rng.normal(size=(d, f)), 1), Diagonal(entries, 1), Dense(rng.normal(size=(f, d)), 1)
    )
    assert multiply_adds(monkeypatch, lambda: token_blocks(op)) == 50 * d * d


# -- branches that begin with the same matrix


def test_a_gated_layer_is_one_product(monkeypatch):
    d = 16
    block = derive.block("F(x)", "layernorm", "gated", x)
    stack = Stack.initialised(block, x, 1, width=d)
    op = stack.jacobians(np.ones(d))[0]
    assert multiply_adds(monkeypatch, lambda: materialise(op)) == 4 * d * d * d
    np.testing.assert_allclose(materialise(op), dense_of(op), rtol=0, atol=1e-12)


def test_equal_matrices_elsewhere_are_not_merged():
    """W A + W B merges, A W + B W and W A + V B do not, and all are right."""
    rng = np.random.default_rng(0)
    w, v = rng.normal(size=(2, 4, 6))
    a, b = (Diagonal(rng.normal(size=(2, 6)), 2) for _ in range(2))
    p, q = (Dense(rng.normal(size=(6, 4)), 2) for _ in range(2))
    for op in (
        Sum(Chain(Dense(w, 2), a, p), Chain(Dense(w, 2), b, q)),
        Sum(Chain(Dense(w, 2), a, p), Chain(Dense(v, 2), b, q)),
        Sum(Chain(p, a.T @ q.T.T) if False else Chain(Dense(w, 2), p), Chain(Dense(w, 2), q)),
        Sum(Chain(Dense(w, 2), a, p), Chain(Dense(w[:, ::-1], 2), b, q)),
    ):
        np.testing.assert_allclose(materialise(op), dense_of(op), rtol=0, atol=1e-12)


def test_weights_are_never_written_to():
    """Sums are added up in place, but not in an operator's own array."""
    weight = np.arange(12.0).reshape(3, 4)
    before = weight.copy()
    for op in (
        Sum(Dense(weight, 2), Dense(weight, 2)),
        Sum(Chain(Dense(weight, 2)), Dense(np.ones((2, 3, 4)), 2)),
        Sum(Contraction([[(weight, "rc")]], 2, 3, 4), Dense(weight, 2)),
        Sum(Chain(Dense(weight, 2), Identity(2, 4)), Zero(2, 3, 4)),
    ):
        materialise(op)
        token_blocks(op)
        np.testing.assert_array_equal(weight, before)


# -- forming by cost


@pytest.mark.parametrize("sublayer", ["ffn:gelu", "ffn:relu", "gated"])
def test_the_product_is_formed_not_applied(sublayer, monkeypatch):
    """2 d^2 f + 2 d^3 operations a layer, where applying takes 4 d^2 f."""
    d, layers = 32, 4
    block = derive.block("pre", "layernorm", sublayer, x)
    stack = Stack.initialised(block, x, layers, width=d)
    point = np.random.default_rng(0).normal(size=(1, d))
    jacobians = stack.jacobians(point)
    done = multiply_adds(monkeypatch, lambda: end_to_end(jacobians))
    assert done <= layers * (4 * d * d * d + d**3) * 1.15
    expected = np.linalg.multi_dot([dense_of(j) for j in reversed(jacobians)])
    found = stack.end_to_end(point).value()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


def test_product_of_blocks_of_many_scales():
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(300, 3, 3)) * 10.0 ** rng.integers(-80, 80, size=(300, 1, 1))
    found = product_of_blocks(Dense(matrices, 300))
    expected = end_to_end(list(matrices))
    assert found.log_norm() == pytest.approx(expected.log_norm(), rel=1e-12)
    assert product_of_blocks(Identity(4, 3)).value() == pytest.approx(np.eye(3))
    assert product_of_blocks(Dense(np.full((2, 2), 3.0), 5)).log_norm() == pytest.approx(
        5 * np.log(6.0)
    )


def test_product_of_blocks_names_what_it_cannot_take():
    with pytest.raises(ShapeError, match="op: expected square blocks"):
        product_of_blocks(Dense(np.ones((2, 3)), 4))
    with pytest.raises(ShapeError, match="op: expected square blocks"):
        product_of_blocks(Contraction([[(np.eye(2), "ij"), (np.eye(2), "rc")]], 2, 2, 2))
    with pytest.raises(UnknownNodeError, match="op: expected an Operator"):
        product_of_blocks(np.eye(2))


# -- some tokens only


@pytest.mark.parametrize("entries", [1, 50, 10**6])
def test_blocks_in_parts_are_the_blocks(entries):
    rng = np.random.default_rng(0)
    n, d = 7, 5
    op = Sum(
        Identity(n, d),
        Chain(
            Dense(rng.normal(size=(d, 9)), n),
            Diagonal(rng.normal(size=(n, 9)), n),
            Dense(rng.normal(size=(n, 9, d)), n),
            Scaling(rng.normal(size=n), n, d),
        ),
        LowRank(rng.normal(size=(n, d, 1)), rng.normal(size=(1, d, 1)), n),
        Contraction([[(rng.normal(size=(n, d, d)), "irc")]], n, d, d),
        Zero(n, d, d),
    )
    found = np.full((n, d, d), np.nan)
    for part, blocks in blocks_in_parts(op, entries):
        found[part] = blocks
    np.testing.assert_allclose(found, token_blocks(op), rtol=0, atol=1e-13)
    some = restricted(op, slice(2, 5))
    assert (some.tokens, some.shape) == (3, (15, 15))
    np.testing.assert_allclose(token_blocks(some), found[2:5], rtol=0, atol=1e-13)
    np.testing.assert_allclose(token_blocks(some.T), found[2:5].transpose(0, 2, 1), atol=1e-13)


class Doubling(Operator):
    """A tokenwise operator of no known kind."""

    def __init__(self, tokens, width):
        super().__init__(tokens, width, width, tokenwise=True)

    def _apply(self, state):
        return 2.0 * state

    @property
    def _transposed(self):
        return self


def test_an_operator_of_no_known_kind_is_formed_whole():
    op = Chain(Doubling(4, 3), Diagonal(np.ones((4, 3)), 4))
    assert restricted(op, slice(0, 1)) is None
    ((part, blocks),) = blocks_in_parts(op, 1)
    assert part == slice(0, 4)
    np.testing.assert_array_equal(np.broadcast_to(blocks, (4, 3, 3))[3], 2 * np.eye(3))


# -- recorded lowering

WEIGHTS = Stack.initialised(derive.block("pre", "layernorm", "ffn"), x, 3, width=6, seed=4).weights
BLOCK = derive.block("pre", "layernorm", "ffn", x)


def walks(monkeypatch):
    """Count the walks over an expression."""
    seen = []
    module = sys.modules["derive.lower"]
    plain = module.Environment.prepare

    def counting(self, expr):
        seen.append(expr)
        return plain(self, expr)

    monkeypatch.setattr(module.Environment, "prepare", counting)
    return seen


def test_shapes_seen_before_are_not_walked_again(monkeypatch):
    lowering._recordings.cache_clear()
    seen = walks(monkeypatch)
    states = np.random.default_rng(0).normal(size=(3, 2, 6))
    found = [evaluate(BLOCK, w, s) for w, s in zip(WEIGHTS, states, strict=True)]
    assert len([e for e in seen if e == BLOCK]) == 1
    lowering._recordings.cache_clear()
    for value, w, s in zip(found, WEIGHTS, states, strict=True):
        lowering._recordings.cache_clear()
        np.testing.assert_allclose(value, evaluate(BLOCK, w, s), rtol=0, atol=1e-14)


def test_a_replay_depends_on_every_weight():
    """Each weight changed alone changes what a replay gives, as it changes what a walk gives."""
    point = np.random.default_rng(0).normal(size=(1, 6))
    jacobian = derive.derivation(BLOCK, x).jacobian
    lower(jacobian, WEIGHTS[0], point)
    for name in WEIGHTS[0]:
        changed = {**WEIGHTS[0], name: np.asarray(WEIGHTS[0][name]) + 0.25}
        replayed = materialise(lower(jacobian, changed, point)), evaluate(BLOCK, changed, point)
        lowering._recordings.cache_clear()
        walked = materialise(lower(jacobian, changed, point)), evaluate(BLOCK, changed, point)
        for a, b in zip(replayed, walked, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["W_1", "b_2", "gain", "eps"])
def test_errors_are_those_of_the_walk(name, bad):
    point = np.ones((1, 6)) * np.arange(6)
    evaluate(BLOCK, WEIGHTS[0], point)
    value = np.array(WEIGHTS[0][name], dtype=float)
    value.flat[0] = bad
    with pytest.raises(WeightError, match=f"weight {name}: expected finite numbers"):
        evaluate(BLOCK, {**WEIGHTS[0], name: value}, point)


def test_a_condition_that_fails_is_an_error_and_not_a_wrong_number():
    block = derive.LayerNorm()(x)
    weights = {"gain": np.ones(3), "bias": np.zeros(3), "eps": 0.0}
    evaluate(block, weights, np.array([[1.0, 2.0, 4.0]]))
    with pytest.raises(DomainError, match="variance"):
        evaluate(block, weights, np.ones((1, 3)))


def test_weights_of_other_shapes_are_walked():
    point = np.random.default_rng(0).normal(size=(1, 6))
    evaluate(BLOCK, WEIGHTS[0], point)
    with pytest.raises(ShapeError, match="W_2"):
        evaluate(BLOCK, {**WEIGHTS[0], "W_2": np.ones((6, 5))}, point)


def test_what_cannot_be_replayed_is_refused():
    """Entries read outside of what is written down, or results that are views made outside."""

    def reads(recording):
        return np.asarray(recording.input("a", np.ones(3)))

    def views(recording):
        inner = recording.input("a", np.ones((2, 3)))
        return Dense(inner.recorded_array.T, 1)

    for compute in (reads, views):
        with pytest.raises(DepartureError):
            record(compute)


def test_a_recording_by_hand():
    def compute(recording):
        a, b = recording.input("a", np.eye(2)), recording.input("b", np.ones(2))
        if a.sum() > 0:
            b = b * 2.0
        parts = np.broadcast_arrays(b, np.ones((3, 1)))
        return np.where(parts[0] > 0, a[0] + parts[0], 7.0), Dense(np.matmul(a, a), 1)

    recording, (value, op) = record(compute)
    np.testing.assert_array_equal(value, [[3, 2]] * 3)
    replayed, other = recording.replay({"a": 2 * np.eye(2), "b": -np.ones(2)})
    np.testing.assert_array_equal(replayed, np.full((3, 2), 7.0))
    np.testing.assert_array_equal(other.matrix, [4 * np.eye(2)])
    np.testing.assert_array_equal(op.matrix, [np.eye(2)])
    assert recording.inputs == ("a", "b")
    with pytest.raises(DepartureError):  # the branch taken was the other one
        recording.replay({"a": -np.eye(2), "b": np.ones(2)})
    with pytest.raises(DepartureError):  # nothing was recorded
        Recording().replay({})


# -- layers side by side


def test_layers_side_by_side_are_the_layers():
    block = derive.block("deepnorm", "layernorm", "ffn", x)
    stack = Stack.initialised(block, x, 6, width=8, values={"alpha": 1.5})
    plain = Stack(block, x, [{k: np.array(v) for k, v in w.items()} for w in stack.weights])
    point = np.random.default_rng(0).normal(size=(1, 8))
    np.testing.assert_allclose(stack.states(point), plain.states(point), rtol=0, atol=1e-13)
    for one, other in zip(stack.jacobians(point), plain.jacobians(point), strict=True):
        np.testing.assert_allclose(materialise(one), materialise(other), rtol=0, atol=1e-13)
    a, b = stack.end_to_end(point), plain.end_to_end(point)
    np.testing.assert_allclose(a.value(), b.value(), rtol=0, atol=1e-13 * abs(b.value()).max())


def test_a_weight_put_in_place_of_another_counts():
    block = derive.block("pre", "layernorm", "ffn", x)
    stack = Stack.initialised(block, x, 3, width=8)
    stack.weights[1]["W_2"] = np.zeros((8, 32))
    stack.weights[1]["b_2"] = np.zeros(8)
    point = np.random.default_rng(0).normal(size=(1, 8))
    np.testing.assert_array_equal(materialise(stack.jacobians(point)[1]), np.eye(8))
    np.testing.assert_array_equal(stack.states(point)[1], stack.states(point)[2])


def test_a_state_that_overflows_names_its_layer():
    block = derive.block("x + F(x)", "layernorm", "ffn", x)
    stack = Stack.initialised(block, x, 4, width=8, std=1e120)
    for ask in (stack.states, stack.jacobians, stack.end_to_end):
        with pytest.raises((DomainError, WeightError)):
            ask(np.ones((1, 8)))
