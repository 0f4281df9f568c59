"""The structured rules of materialise on random compositions, against dense products."""

import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.errors import DomainError, ShapeError, UnknownNodeError
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
    materialise,
    token_blocks,
    token_pair_blocks,
)


class Cyclic(Operator):
    """A mixing operator with no rule: it shifts the tokens by one."""

    def __init__(self, tokens, width, step=1):
        self.step = step
        super().__init__(tokens, width, width, tokenwise=False)

    def _apply(self, x):
        return np.roll(x, self.step, axis=0)

    @property
    def _transposed(self):
        return Cyclic(self.tokens, self.rows, -self.step)


class Doubling(Operator):
    """A tokenwise operator with no rule."""

    def __init__(self, tokens, width):
        super().__init__(tokens, width, width, tokenwise=True)

    def _apply(self, x):
        return 2.0 * x

    @property
    def _transposed(self):
        return self


def dense_of(op):
    """The matrix by one column at a time: no rule of materialise is involved."""
    columns = [op.matvec(column) for column in np.eye(op.shape[1])]
    return np.stack(columns, axis=1)


def leaf(draw, n, rows, cols, rng):
    """A random operator and its matrix, made by loops."""
    kinds = ["dense", "shared", "lowrank", "zero", "outer", "mix", "alone"]
    if rows == cols:
        kinds += ["identity", "diagonal", "scaling", "cyclic", "doubling", "norm"]
    kind = draw(st.sampled_from(kinds))
    normal = rng.standard_normal
    lead = draw(st.sampled_from([1, n]))
    eye = np.eye(n)

    def spread(blocks):
        return sum(np.kron(np.outer(eye[i], eye[i]), blocks[i % len(blocks)]) for i in range(n))

    if kind == "dense":
        blocks = normal((n, rows, cols))
        return Dense(blocks, n), spread(blocks)
    if kind == "shared":
        block = normal((rows, cols))
        return Dense(block, n), np.kron(eye, block)
    if kind == "lowrank":
        rank = draw(st.integers(1, 3))
        left, right = normal((lead, rows, rank)), normal((n, cols, rank))
        return LowRank(left, right, n), spread([left[i % lead] @ right[i].T for i in range(n)])
    if kind == "zero":
        return Zero(n, rows, cols), np.zeros((n * rows, n * cols))
    if kind == "outer":
        p, u, v = normal((2, n, n)), normal((2, n, rows)), normal((2, n, cols))
        op = Contraction([[(p, "hij"), (u, "hir"), (v, "hjc")]], n, rows, cols)
        dense = np.zeros((n, rows, n, cols))
        for h in range(2):
            for i in range(n):
                for j in range(n):
                    dense[i, :, j, :] += p[h, i, j] * np.outer(u[h, i], v[h, j])
        return op, dense.reshape(n * rows, n * cols)
    if kind == "mix":
        p, a, b = normal((2, n, n)), normal((2, rows, 3)), normal((2, 3, cols))
        diagonal = normal((n, rows, cols))
        op = Contraction([[(p, "hij"), (a, "hra"), (b, "hac")], [(diagonal, "irc")]], n, rows, cols)
        dense = sum(np.kron(p[h], a[h] @ b[h]) for h in range(2)) + spread(diagonal)
        return op, dense
    if kind == "alone":
        blocks = normal((n, rows, cols))
        return Contraction([[(blocks, "irc")]], n, rows, cols), spread(blocks)
    if kind == "identity":
        return Identity(n, rows), np.eye(n * rows)
    if kind == "diagonal":
        entries = normal((lead, rows))
        return Diagonal(entries, n), spread([np.diag(row) for row in entries])
    if kind == "scaling":
        factors = normal(lead)
        return Scaling(factors, n, rows), spread([f * np.eye(rows) for f in factors])
    if kind == "cyclic":
        return Cyclic(n, rows), np.kron(np.roll(eye, 1, axis=0), np.eye(rows))
    if kind == "doubling":
        return Doubling(n, rows), 2.0 * np.eye(n * rows)
    gain, u = normal((1, rows)), normal((n, rows, 1))
    op = Chain(Diagonal(gain, n), Sum(Identity(n, rows), LowRank(-u, u, n)))
    return op, spread([np.diag(gain[0]) @ (np.eye(rows) - u[i] @ u[i].T) for i in range(n)])


def tree(draw, n, rows, cols, rng, depth):
    kind = draw(st.sampled_from(["leaf", "chain", "sum", "transpose"])) if depth else "leaf"
    if kind == "leaf":
        return leaf(draw, n, rows, cols, rng)
    if kind == "transpose":
        op, dense = tree(draw, n, cols, rows, rng, depth - 1)
        return op.T, dense.T
    count = draw(st.integers(1, 4))
    if kind == "sum":
        parts = [tree(draw, n, rows, cols, rng, depth - 1) for _ in range(count)]
        return Sum(*(op for op, _ in parts)), sum(dense for _, dense in parts)
    sides = [rows, *(draw(st.sampled_from([rows, cols, 2, 9])) for _ in range(count - 1)), cols]
    parts = [tree(draw, n, sides[k], sides[k + 1], rng, depth - 1) for k in range(count)]
    dense = np.eye(n * rows)
    for _, part in parts:
        dense = dense @ part
    return Chain(*(op for op, _ in parts)), dense


@st.composite
def compositions(draw):
    n = draw(st.integers(1, 4))
    rows = draw(st.sampled_from([1, 3, 8, 12]))
    cols = draw(st.sampled_from([rows, 1, 5, 12]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return tree(draw, n, rows, cols, rng, draw(st.integers(1, 3)))


@settings(max_examples=300, deadline=None)
@given(compositions())
def test_random_compositions(case):
    op, dense = case
    # Up to four nested levels of products of width 12: rounding relative to the largest entry.
    atol = 1e-11 * max(1.0, float(np.abs(dense).max()))
    np.testing.assert_allclose(materialise(op), dense, atol=atol, rtol=0)
    np.testing.assert_allclose(op @ np.eye(op.shape[1]), dense, atol=atol, rtol=0)
    np.testing.assert_allclose(op.rmatmat(np.eye(op.shape[0])), dense.T, atol=atol, rtol=0)
    grid = dense.reshape(op.tokens, op.rows, op.tokens, op.cols)
    np.testing.assert_allclose(token_pair_blocks(op), grid.transpose(0, 2, 1, 3), atol=atol, rtol=0)
    if op.tokenwise:
        diagonal = grid[np.arange(op.tokens), :, np.arange(op.tokens), :]
        np.testing.assert_allclose(token_blocks(op), diagonal, atol=atol, rtol=0)


def layer(n, d, heads, seed):
    """A pre-norm transformer layer: FFN after attention, both on normed states, both with skips."""
    draw = np.random.default_rng(seed).standard_normal
    width, f = d // heads, 2 * d
    attention = Contraction(
        [
            [
                (draw((heads, n, n)), "hij"),
                (draw((heads, d, width)), "hra"),
                (draw((heads, width, d)), "hac"),
            ],
            [
                (draw((heads, n, n)), "hij"),
                (draw((heads, n, n, d)), "hijr"),
                (draw((heads, n, d)), "hic"),
            ],
            [(draw((n, d, d)), "irc")],
        ],
        n,
        d,
        d,
    )

    def norm():
        return Chain(
            Scaling(draw(n), n, d),
            Diagonal(draw((1, d)), n),
            Sum(Identity(n, d), LowRank(draw((n, d, 2)), draw((n, d, 2)), n)),
        )

    ffn = Chain(Dense(draw((d, f)), n), Diagonal(draw((n, f)), n), Dense(draw((f, d)), n))
    skip = Identity(n, d)
    return Chain(Sum(skip, ffn @ norm()), Sum(skip, attention @ norm()))


@pytest.mark.parametrize("build", ["one", "transposed", "post", "stack", "between"])
def test_transformer_layers(build):
    n, d = 5, 16
    one, two = layer(n, d, 2, 0), layer(n, d, 2, 1)
    normed = Chain(Scaling(np.arange(1.0, n + 1), n, d), Diagonal(np.ones((1, d)) * 2, n))
    op = {
        "one": one,
        "transposed": one.T,
        "post": normed @ one,
        "stack": two @ one,
        "between": two @ Dense(np.eye(d)[::-1], n) @ normed @ one,
    }[build]
    dense = dense_of(op)
    # Two layers of gaussian weights: entries reach 1e5.
    np.testing.assert_allclose(materialise(op), dense, atol=1e-12 * np.abs(dense).max(), rtol=0)


@pytest.mark.parametrize("shape", [(12, 8), (8, 12)])
def test_a_low_rank_that_changes_the_width_beside_a_mixing_factor(shape):
    draw = np.random.default_rng(0).standard_normal
    n, (rows, cols) = 3, shape
    p, weight = draw((n, n)), draw((5, rows))
    left, right = draw((n, rows, 1)), draw((n, cols, 1))
    op = Contraction([[(p, "ij"), (weight, "rc")]], n, 5, rows) @ LowRank(left, right, n)
    expected = np.zeros((n, 5, n, cols))
    for i in range(n):
        for j in range(n):
            expected[i, :, j, :] = p[i, j] * weight @ left[j] @ right[j].T
    expected = expected.reshape(5 * n, cols * n)
    np.testing.assert_allclose(materialise(op), expected, atol=1e-12)
    np.testing.assert_allclose(materialise(op.T), expected.T, atol=1e-12)


def test_many_block_rows_are_written_in_parts(monkeypatch):
    monkeypatch.setattr(sys.modules["derive.linalg.grid"], "_ENTRIES_IN_WORK", 300)
    op = layer(5, 8, 2, 3)
    dense = dense_of(op)
    np.testing.assert_allclose(materialise(op), dense, atol=1e-12 * np.abs(dense).max(), rtol=0)


def test_long_chain_materialises():
    rng = np.random.default_rng(0)
    layers = [Dense(np.linalg.qr(rng.standard_normal((4, 4)))[0], 2) for _ in range(100)]
    expected = np.eye(8)
    for op in layers:
        expected = expected @ np.kron(np.eye(2), op.matrix[0])
    np.testing.assert_allclose(materialise(Chain(*layers)), expected, atol=1e-12)


def test_low_rank_is_never_densified_before_a_product():
    rng = np.random.default_rng(0)
    wide = 1500
    op = Chain(
        Dense(rng.standard_normal((3, wide)), 1),
        Diagonal(rng.standard_normal((1, wide)), 1),
        LowRank(rng.standard_normal((1, wide, 2)), rng.standard_normal((1, wide, 2)), 1),
        Dense(rng.standard_normal((wide, 3)), 1),
    )
    tracemalloc.start()
    blocks = token_blocks(op)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert blocks.shape == (1, 3, 3)
    assert peak < wide * wide * 8 / 10


def test_thin_chain_runs_through_its_bottleneck():
    rng = np.random.default_rng(0)
    wide = 1500
    column, row = rng.standard_normal((wide, 1)), rng.standard_normal((1, wide))
    op = Chain(Dense(row, 1), Dense(column, 1), Dense(row, 1), Dense(column, 1))
    tracemalloc.start()
    value = token_blocks(op)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert value[0, 0, 0] == pytest.approx((row @ column).item() ** 2, rel=1e-12)
    assert peak < wide * wide * 8 / 10


def test_token_blocks_form_no_sequence_matrix():
    n, d = 64, 32
    op = Chain(Dense(np.ones((n, d, d)), n), Diagonal(np.ones((n, d)), n))
    tracemalloc.start()
    token_blocks(op)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (n * d) ** 2 * 8 / 8


def test_token_blocks_are_a_fresh_writeable_array():
    matrix = np.ones((1, 2, 2))
    blocks = token_blocks(Dense(matrix, 3))
    blocks[0] = 7.0
    assert (matrix == 1).all()
    assert (blocks[1] == 1).all()


def test_an_array_is_its_own_matrix():
    matrix = np.eye(2)
    assert materialise(matrix) is matrix


@pytest.mark.parametrize("form", [materialise, token_blocks, token_pair_blocks])
def test_too_large_a_result_is_refused(form):
    op = Identity(4, 10)
    with pytest.raises(DomainError, match=r"max_bytes: expected room.*got max_bytes=100"):
        form(op, max_bytes=100)


def test_the_default_refuses_more_than_4_gib():
    with pytest.raises(DomainError, match=r"max_bytes: .*\(50000, 50000\), 20000000000 bytes"):
        materialise(Identity(50, 1000))


def test_room_is_counted_exactly():
    assert materialise(Identity(2, 2), max_bytes=128).shape == (4, 4)
    with pytest.raises(DomainError, match="max_bytes"):
        materialise(Identity(2, 2), max_bytes=127)


def test_mixing_operators_have_no_token_blocks():
    op = Contraction([[(np.eye(2), "ij"), (np.eye(2), "rc")]], 2, 2, 2)
    with pytest.raises(ShapeError, match=r"op: .*block diagonal over tokens, got Contraction"):
        token_blocks(op)


@pytest.mark.parametrize("form", [materialise, token_blocks, token_pair_blocks])
def test_unknown_things_are_named(form):
    with pytest.raises(UnknownNodeError, match=r"op: expected an Operator.*got list"):
        form([[1.0]])
