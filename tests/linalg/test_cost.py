"""What cost() says beforehand, against counted multiply-adds and measured memory."""

import math
import tracemalloc

import numpy as np
import pytest

import derive
from derive.depth import Stack
from derive.errors import DomainError, UnknownNodeError
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
    cost,
    materialise,
)
from derive.linalg.cost import condensed

x = derive.state("x")


class Counting:
    """Counts the multiply-adds that go through np.matmul."""

    def __init__(self, monkeypatch):
        self.count = 0
        matmul = np.matmul

        def counted(a, b, **options):
            out = matmul(a, b, **options)
            self.count += out.size * a.shape[-1]
            return out

        monkeypatch.setattr(np, "matmul", counted)


def dense(n, rows, cols):
    return Dense(np.random.default_rng(0).standard_normal((rows, cols)), n)


def jacobian(placement, sublayer, n, d, heads=4, norm="layernorm"):
    block = derive.block(placement, norm, sublayer, x)
    stack = Stack.initialised(block, x, 1, width=d, tokens=n, heads=heads)
    return stack.jacobians(np.random.default_rng(0).normal(size=(n, d)))[0]


def test_products_of_matrices_are_counted_exactly(monkeypatch):
    op = dense(1, 5, 40) @ dense(1, 40, 3) @ dense(1, 3, 30) @ dense(1, 30, 7)
    # The best order: (5x40 40x3) (3x30 30x7), then 5x3 3x7.
    assert cost(op).materialise_flops == 2 * (5 * 40 * 3 + 3 * 30 * 7 + 5 * 3 * 7)
    counting = Counting(monkeypatch)
    materialise(op)
    assert 2 * counting.count == cost(op).materialise_flops


LAYERS = [
    ("pre", "ffn:gelu", 1),
    ("pre", "ffn:relu", 1),
    ("post", "gated", 1),
    ("post", "ffn:gelu", 6),
    ("pre", "attention", 6),
    ("post", "causal-attention", 6),
]


@pytest.mark.parametrize(("placement", "sublayer", "n"), LAYERS)
def test_forming_a_layer_does_what_was_said(placement, sublayer, n, monkeypatch):
    op = jacobian(placement, sublayer, n, 48)
    said = cost(op).materialise_flops / 2
    counting = Counting(monkeypatch)
    materialise(op)
    # Element-wise products are in the count of cost, and are not matrix products.
    assert counting.count <= 1.1 * said
    assert said <= 1.6 * counting.count


@pytest.mark.parametrize(("placement", "sublayer", "n"), LAYERS)
def test_applying_a_layer_does_what_was_said(placement, sublayer, n, monkeypatch):
    op = jacobian(placement, sublayer, n, 48)
    said = cost(op).apply_flops / 2
    counting = Counting(monkeypatch)
    op.matvec(np.ones(op.shape[1]))
    assert counting.count <= 1.1 * said
    assert said <= 1.6 * counting.count
    assert cost(op.T).apply_flops == pytest.approx(2 * said, rel=0.1)


def exponent(sizes, costs):
    return np.polyfit(np.log(sizes), np.log(costs), 1)[0]


def test_growth_with_the_width():
    """Forming 2 d^2 f + ..., with f = 4 d: cubic; one product: quadratic."""
    sizes = [64, 128, 256]
    found = [cost(jacobian("pre", "ffn:gelu", 1, d)) for d in sizes]
    assert exponent(sizes, [c.materialise_flops for c in found]) == pytest.approx(3, abs=0.05)
    assert exponent(sizes, [c.apply_flops for c in found]) == pytest.approx(2, abs=0.05)


def test_growth_with_the_tokens():
    """A tokenwise layer is linear in n; attention's pairs make n^2."""
    sizes = [32, 64, 128]
    tokenwise = [cost(jacobian("pre", "ffn:gelu", n, 16)).materialise_flops for n in sizes]
    assert exponent(sizes, tokenwise) == pytest.approx(1, abs=0.01)
    pairs = [cost(jacobian("pre", "attention", n, 16)).materialise_flops for n in sizes]
    assert 1.7 < exponent(sizes, pairs) < 2.1


def test_a_relu_layer_costs_what_is_active():
    active, whole = (
        cost(jacobian("pre", f"ffn:{a}", 1, 64)).materialise_flops for a in ("relu", "gelu")
    )
    assert 0.4 < active / whole < 0.65


def test_nothing_is_formed_to_say_it():
    op = jacobian("pre", "causal-attention", 64, 64)
    cost(op)
    tracemalloc.start()
    said = cost(op)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < said.result_bytes / 20


def full_layer(n, d, heads):
    return jacobian("pre", "ffn:gelu", n, d) @ jacobian("pre", "causal-attention", n, d, heads)


def measured_peak(op):
    materialise(op)  # what is found once is kept
    tracemalloc.start()
    materialise(op)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


PEAKS = {
    "ffn, n = 16": (lambda: jacobian("post", "ffn:gelu", 16, 64), 1.15),
    "gated, n = 16": (lambda: jacobian("pre", "gated", 16, 64), 1.15),
    "attention, n = 16": (lambda: jacobian("pre", "causal-attention", 16, 96), 1.15),
    "post attention, n = 16": (lambda: jacobian("post", "attention", 16, 96), 1.2),
    "post attention, n = 32": (lambda: jacobian("post", "attention", 32, 48), 1.15),
    "layer, n = 16": (lambda: full_layer(16, 96, 4), 1.15),
    "layer, n = 32": (lambda: full_layer(32, 64, 8), 1.15),
    "layer, n = 64": (lambda: full_layer(64, 32, 4), 1.15),
    "transposed layer, n = 32": (lambda: full_layer(32, 48, 4).T, 1.25),
    "two layers, n = 8": (lambda: full_layer(8, 32, 4) @ full_layer(8, 32, 4), 10.0),
    "one token": (lambda: jacobian("pre", "ffn:gelu", 1, 64), 20.0),
}


@pytest.mark.parametrize("name", PEAKS)
def test_peak_memory_stays_below_what_is_said(name):
    """From n = 16 on about 1.15 of the matrix: a block row and the sides are held beside it."""
    make, ratio = PEAKS[name]
    op = make()
    said, peak = cost(op), measured_peak(op)
    assert peak <= said.peak_bytes
    assert peak <= ratio * said.result_bytes


def test_what_would_exceed_the_memory_is_refused_before_it_is_formed():
    op = full_layer(32, 64, 4)
    said = cost(op)
    tracemalloc.start()
    with pytest.raises(DomainError, match=r"max_bytes: expected room for an array of shape"):
        materialise(op, max_bytes=said.result_bytes - 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < said.result_bytes / 10


def test_temporaries_count_as_well():
    op = full_layer(4, 512, 4)  # few wide tokens: the temporaries are large
    said = cost(op)
    assert said.peak_bytes > 1.2 * said.result_bytes
    with pytest.raises(DomainError, match="bytes beside it"):
        materialise(op, max_bytes=said.result_bytes)


def test_bytes_of_an_application():
    op = Dense(np.ones((8, 4)), 2)
    assert cost(op).apply_bytes == 8 * 4 * 8 + 2 * 8 * 2 * 8
    assert cost(op @ Dense(np.ones((4, 8)), 2)).apply_bytes == 2 * 256 + 2 * 8 * (16 + 8)


def test_a_shared_array_is_counted_once():
    weight = np.ones((8, 8))
    assert cost(Dense(weight, 1) @ Dense(weight, 1)).apply_bytes == 8 * 64 + 2 * 8 * 16


def test_cost_says_itself():
    text = str(cost(Dense(np.ones((1000, 1000)), 1)))
    assert text == "apply 2 MFLOP, 8.02 MB; materialise 0 FLOP, 8 MB, at most 40.1 MB at one time"


@pytest.mark.parametrize("thing", [np.eye(2), None, "op"])
def test_unknown_things_are_named(thing):
    with pytest.raises(UnknownNodeError, match="op: expected an Operator, got"):
        cost(thing)


def dense_of(op):
    return np.stack([op.matvec(column) for column in np.eye(op.shape[1])], axis=1)


@pytest.mark.parametrize("columns", [1, 1000])
@pytest.mark.parametrize(("placement", "sublayer", "n"), LAYERS)
def test_the_condensed_operator_is_the_same_map(placement, sublayer, n, columns):
    op = jacobian(placement, sublayer, n, 16)
    found = condensed(op, columns)
    expected = dense_of(op)
    np.testing.assert_allclose(dense_of(found), expected, rtol=0, atol=1e-13 * abs(expected).max())
    tokenwise = [type(found)] if n == 1 else []
    assert tokenwise != [Dense] or columns == 1000
    if columns == 1000 and n == 1:
        assert isinstance(found, Dense)


def test_every_kind_has_a_cost():
    n, d = 2, 4
    ones = np.ones((n, n))
    kinds = [
        Identity(n, d),
        Scaling(np.ones(n), n, d),
        Diagonal(np.ones((1, d)), n),
        LowRank(np.ones((n, d, 1)), np.ones((1, d, 1)), n),
        Contraction([[(ones, "ij"), (np.eye(d), "rc")]], n, d, d),
        Sum(Identity(n, d), Identity(n, d)),
        Chain(Identity(n, d)),
    ]
    for op in kinds:
        said = cost(op)
        assert isinstance(op, Operator)
        assert said.result_bytes == 8 * math.prod(op.shape)
        assert said.peak_bytes >= said.result_bytes
        assert said.apply_flops >= 0
