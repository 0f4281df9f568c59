"""Every operator against a dense matrix written with loops and Kronecker products."""

import copy
import pickle
import tracemalloc
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy.sparse import eye_array
from scipy.sparse.linalg import aslinearoperator

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
    materialise,
)

# A handful of products of entries of order one, in double precision.
TOL = 1e-12
N = 3


def block_diagonal(blocks):
    n, rows, cols = len(blocks), *blocks[0].shape
    dense = np.zeros((n * rows, n * cols))
    for i, block in enumerate(blocks):
        dense[i * rows : (i + 1) * rows, i * cols : (i + 1) * cols] = block
    return dense


def pair_grid(n, rows, cols, block):
    dense = np.zeros((n * rows, n * cols))
    for i in range(n):
        for j in range(n):
            dense[i * rows : (i + 1) * rows, j * cols : (j + 1) * cols] = block(i, j)
    return dense


def attention(n=N, d=4, heads=2, width=3, seed=5):
    """The value, key and query paths of attention, and the same matrix by loops over tokens."""
    draw = np.random.default_rng(seed).standard_normal
    p, spread = draw((heads, n, n)), draw((heads, n, n, width))
    keys, queries = draw((heads, n, width)), draw((heads, n, width))
    wo, wv, wq, wk = (
        draw((heads, d, width)),
        *(draw((heads, width, d)) for _ in range(3)),
    )
    op = Contraction(
        [
            [(p, "hij"), (wo, "hra"), (wv, "hac")],
            [(p, "hij"), (spread, "hija"), (queries, "hib"), (wk, "hbc"), (wo, "hra")],
            [(p, "hik"), (spread, "hika"), (keys, "hkb"), (wq, "hbc"), (wo, "hra")],
        ],
        n,
        d,
        d,
    )

    def block(i, j):
        total = np.zeros((d, d))
        for h in range(heads):
            total += p[h, i, j] * wo[h] @ wv[h]
            total += p[h, i, j] * wo[h] @ np.outer(spread[h, i, j], queries[h, i]) @ wk[h]
            if i == j:
                for k in range(n):
                    total += p[h, i, k] * wo[h] @ np.outer(spread[h, i, k], keys[h, k]) @ wq[h]
        return total

    return op, pair_grid(n, d, d, block)


def _cases():
    draw = np.random.default_rng(0).standard_normal
    own, shared = draw((N, 4)), draw((1, 4))
    left, right = draw((N, 5, 2)), draw((1, 4, 2))
    weights, weight = draw((N, 2, 4)), draw((2, 4))
    scale = draw(N)
    mix, row, col = draw((N, N)), draw(5), draw(4)
    grid = draw((N, 2, N, 4))
    everywhere = draw((N, 2, 4))
    return {
        "identity": (Identity(N, 4), np.eye(12)),
        "zero": (Zero(N, 2, 4), np.zeros((6, 12))),
        "diagonal": (Diagonal(own, N), np.diag(own.ravel())),
        "diagonal, shared": (Diagonal(shared, N), np.kron(np.eye(N), np.diag(shared[0]))),
        "scaling": (Scaling(scale, N, 4), np.kron(np.diag(scale), np.eye(4))),
        "scaling, shared": (Scaling([2.5], N, 4), 2.5 * np.eye(12)),
        "low rank": (
            LowRank(left, right, N),
            block_diagonal([left[i] @ right[0].T for i in range(N)]),
        ),
        "dense": (Dense(weights, N), block_diagonal(list(weights))),
        "dense, shared": (Dense(weight, N), np.kron(np.eye(N), weight)),
        "contraction, outer": (
            Contraction([[(mix, "ij"), (row, "r"), (col, "c")]], N, 5, 4),
            np.kron(mix, np.outer(row, col)),
        ),
        "contraction, full grid": (
            Contraction([[(grid, "irjc")]], N, 2, 4),
            grid.reshape(2 * N, 4 * N),
        ),
        "contraction, tokenwise": (
            Contraction([[(own, ("i", "r")), (own, ("i", "c"))]], N, 4, 4),
            block_diagonal([np.outer(own[i], own[i]) for i in range(N)]),
        ),
        "contraction, tokenwise, shared": (
            Contraction([[(weight, ("r", "c"))]], N, 2, 4),
            np.kron(np.eye(N), weight),
        ),
        "contraction, same output everywhere": (
            Contraction([[(everywhere, "jrc")]], N, 2, 4),
            pair_grid(N, 2, 4, lambda i, j: everywhere[j]),
        ),
        "contraction, summed lone label": (
            Contraction([[(mix, "ij"), (draw_ := np.ones((2, 4, 3)), "rcm")]], N, 2, 4),
            np.kron(mix, draw_.sum(axis=2)),
        ),
        "attention": attention(),
        "sum": (
            Sum(Diagonal(own, N), Scaling(scale, N, 4)),
            np.diag(own.ravel()) + np.kron(np.diag(scale), np.eye(4)),
        ),
        "sum of zeros": (Sum(Zero(N, 2, 4), Zero(N, 2, 4)), np.zeros((6, 12))),
        "chain": (
            Chain(Dense(weight, N), Diagonal(own, N)),
            np.kron(np.eye(N), weight) @ np.diag(own.ravel()),
        ),
        "chain of identities": (Chain(Identity(N, 4), Identity(N, 4)), np.eye(12)),
    }


CASES = _cases()


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    return request.param


def test_apply_is_the_dense_product(case):
    op, dense = case
    x = np.random.default_rng(1).standard_normal((op.shape[1], 7))
    np.testing.assert_allclose(op @ x, dense @ x, atol=TOL)
    np.testing.assert_allclose(op @ x[:, 0], dense @ x[:, 0], atol=TOL)
    assert (op @ x[:, 0]).shape == (op.shape[0],)
    assert op.matvec(x[:, :1]).shape == (op.shape[0], 1)


def test_many_columns_agree_with_few(case):
    op, dense = case
    x = np.random.default_rng(1).standard_normal((op.shape[1], 40))
    np.testing.assert_allclose(op @ x, dense @ x, atol=TOL)


def test_adjoint_moves_across_the_inner_product(case):
    op, _ = case
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal(op.shape[1]), rng.standard_normal(op.shape[0])
    assert y @ (op @ x) == pytest.approx(op.rmatvec(y) @ x, abs=TOL)
    assert y @ (op @ x) == pytest.approx((op.H @ y) @ x, abs=TOL)


def test_transpose_is_structured(case):
    op, dense = case
    assert isinstance(op.T, Operator)
    assert (op.T.tokens, op.T.rows, op.T.cols) == (op.tokens, op.cols, op.rows)
    assert op.T.tokenwise == op.tokenwise
    np.testing.assert_allclose(op.rmatmat(np.eye(op.shape[0])), dense.T, atol=TOL)
    np.testing.assert_allclose(op.T.T @ np.eye(op.shape[1]), dense, atol=TOL)


def test_tokenwise_operators_are_those_with_zero_off_diagonal_blocks(case):
    op, dense = case
    grid = dense.reshape(op.tokens, op.rows, op.tokens, op.cols).transpose(0, 2, 1, 3)
    assert op.tokenwise == (not grid[~np.eye(op.tokens, dtype=bool)].any())


def test_materialise_is_the_dense_matrix(case):
    op, dense = case
    np.testing.assert_allclose(materialise(op), dense, atol=TOL)
    np.testing.assert_allclose(materialise(op), op @ np.eye(op.shape[1]), atol=TOL)
    np.testing.assert_allclose(materialise(op.T), dense.T, atol=TOL)


def test_arrays_multiply_from_the_left(case):
    op, dense = case
    y = np.random.default_rng(3).standard_normal((2, op.shape[0]))
    np.testing.assert_allclose(y @ op, y @ dense, atol=TOL)
    np.testing.assert_allclose(y[0] @ op, y[0] @ dense, atol=TOL)


def test_scalar_algebra(case):
    op, dense = case
    for built, expected in (
        (2.5 * op, 2.5 * dense),
        (op * np.float64(2.5), 2.5 * dense),
        (-op, -dense),
        (op / 4, dense / 4),
        (op + op, 2 * dense),
        (op - 3 * op, -2 * dense),
    ):
        assert isinstance(built, Operator)
        np.testing.assert_allclose(materialise(built), expected, atol=TOL)


def test_result_does_not_alias_the_input(case):
    op, _ = case
    x = np.ones((op.shape[1], 2))
    image = op @ x
    image[...] = np.nan
    assert (x == 1).all()


def test_results_of_products_are_float64():
    for op, _ in CASES.values():
        assert (op @ np.ones(op.shape[1], dtype=np.int64)).dtype == np.float64
        assert op.dtype == np.float64


def test_pickle_and_deepcopy_keep_the_operator(case):
    op, dense = case
    for twin in (pickle.loads(pickle.dumps(op)), copy.deepcopy(op)):
        np.testing.assert_allclose(materialise(twin), dense, atol=TOL)


def test_powers_multiply():
    op, dense = attention()
    np.testing.assert_allclose(materialise(op**3), dense @ dense @ dense, rtol=TOL, atol=1e-9)
    assert isinstance(op**0, Identity)
    assert op**1 is op


def test_chain_is_flat_and_drops_identities():
    op = Identity(2, 3)
    layer = Diagonal([[1.0, 2.0, 3.0]], 2)
    product: Operator = op
    for _ in range(1000):
        product = layer @ product
    assert isinstance(product, Chain)
    assert product.factors == (layer,) * 1000
    nested = Chain(Chain(layer, op), Chain(op, Chain(layer)))
    assert nested.factors == (layer, layer)
    assert (layer @ op) is layer
    assert isinstance(op @ op, Identity)
    assert len(product.T.factors) == 1000


def test_sum_is_flat_and_drops_zeros():
    a, b, zero = Identity(2, 3), Scaling([2.0], 2, 3), Zero(2, 3, 3)
    assert Sum(Sum(a, b), Sum(zero, Sum(b))).terms == (a, b, b)
    total: Operator = a
    for _ in range(1000):
        total = total + b
    assert isinstance(total, Sum)
    assert len(total.terms) == 1001
    np.testing.assert_allclose(total @ np.ones(6), np.full(6, 2001.0))


def test_chain_applies_the_last_factor_first():
    a, b = Dense([[0.0, 1.0], [0.0, 0.0]], 1), Diagonal([[2.0, 3.0]], 1)
    np.testing.assert_array_equal(Chain(a, b) @ np.array([1.0, 1.0]), [3.0, 0.0])
    np.testing.assert_array_equal(Chain(b, a) @ np.array([1.0, 1.0]), [2.0, 0.0])


@pytest.mark.parametrize(
    ("op", "tokenwise"),
    [
        (Identity(2, 2), True),
        (Contraction([[(np.eye(2), "ij"), (np.eye(2), "rc")]], 2, 2, 2), False),
        (Contraction([[(np.eye(2), "rc")]], 2, 2, 2), True),
        (Sum(Identity(2, 2), Dense(np.eye(2), 2)), True),
        (
            Sum(Identity(2, 2), Contraction([[(np.eye(2), "ij"), (np.eye(2), "rc")]], 2, 2, 2)),
            False,
        ),
    ],
    ids=["identity", "mixing", "diagonal term", "sum", "mixing sum"],
)
def test_tokenwise_says_whether_tokens_mix(op, tokenwise):
    assert op.tokenwise is tokenwise
    assert op.T.tokenwise is tokenwise
    assert Chain(op, op).tokenwise is tokenwise


def test_operators_are_frozen():
    op = Diagonal([[1.0, 2.0]], 3)
    with pytest.raises(FrozenInstanceError, match=r"Diagonal is frozen.*'tokens'"):
        op.tokens = 4
    with pytest.raises(FrozenInstanceError, match=r"Diagonal is frozen.*'entries'"):
        del op.entries
    with pytest.raises(ValueError, match="read-only"):
        op.entries[0, 0] = 5.0


def test_arrays_given_stay_writeable():
    entries = np.ones((1, 2))
    Diagonal(entries, 3)
    entries[0, 0] = 2.0


def test_foreign_linear_operators_compose_the_foreign_way():
    op = Diagonal([[1.0, 2.0]], 2)
    other = aslinearoperator(np.full((4, 4), 3.0))
    dense = np.diag([1.0, 2.0, 1.0, 2.0])
    np.testing.assert_allclose((op @ other) @ np.eye(4), dense @ np.full((4, 4), 3.0))
    np.testing.assert_allclose((op + other) @ np.eye(4), dense + 3.0)


def test_matvec_forms_no_pair_blocks():
    n, d = 32, 64
    draw = np.random.default_rng(0).standard_normal
    heads, width = 4, 16
    op = Contraction(
        [
            [
                (draw((heads, n, n)), "hij"),
                (draw((heads, d, width)), "hra"),
                (draw((heads, width, d)), "hac"),
            ],
            [
                (draw((heads, n, n)), "hik"),
                (draw((heads, n, n, width)), "hika"),
                (draw((heads, n, width)), "hkb"),
                (draw((heads, width, d)), "hbc"),
                (draw((heads, d, width)), "hra"),
            ],
        ],
        n,
        d,
        d,
    )
    x = draw(n * d)
    op @ x, op.rmatvec(x)
    tracemalloc.start()
    op @ x, op.rmatvec(x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < n * n * d * d * 8 / 16


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Identity(0, 3), DomainError, "tokens: expected an integer >= 1, got 0"),
        (lambda: Identity(2, 1.5), DomainError, "width: expected an integer >= 1, got float 1.5"),
        (lambda: Identity(2, True), DomainError, "width: expected an integer >= 1, got True"),
        (lambda: Zero(2, -1, 3), DomainError, "rows: expected an integer >= 1, got -1"),
        (lambda: Diagonal([1.0, 2.0], 2), ShapeError, "entries: expected an array with 2 axes"),
        (lambda: Diagonal(np.ones((3, 2)), 2), ShapeError, "entries: .*leading axis of 2.*1 if"),
        (lambda: Diagonal([[np.nan, 1]], 2), WeightError, "entries: expected finite entries"),
        (lambda: Diagonal([[1j, 1]], 2), WeightError, "entries: expected real.*complex128"),
        (lambda: Diagonal([["a"]], 2), WeightError, "entries: expected real numbers"),
        (lambda: Diagonal([[1, 2], [3]], 2), WeightError, "entries: .*ragged"),
        (lambda: Diagonal(np.ones((1, 0)), 2), ShapeError, "entries: expected no axis of length 0"),
        (lambda: Scaling([1.0, 2.0, 3.0], 2, 4), ShapeError, "factors: expected a leading axis"),
        (
            lambda: LowRank(np.ones((1, 3, 2)), np.ones((1, 3, 1)), 2),
            ShapeError,
            "right: expected the rank of left, 2",
        ),
        (lambda: Dense(np.ones(3), 2), ShapeError, "matrix: expected an array with 2 or 3 axes"),
        (lambda: Dense(np.ones((3, 2, 2)), 2), ShapeError, "matrix: expected a leading axis of 2"),
        (lambda: Sum(), ShapeError, "Sum: expected at least one operator"),
        (lambda: Chain(), ShapeError, "Chain: expected at least one operator"),
        (lambda: Sum(np.eye(2)), UnknownNodeError, "Sum, operand 0: expected an Operator.*ndarray"),
        (
            lambda: Sum(Identity(2, 2), Identity(2, 3)),
            ShapeError,
            r"Sum, operand 1: expected the shape of Identity\(tokens=2, rows=2.*got.*rows=3",
        ),
        (
            lambda: Identity(2, 2) + Identity(4, 1),
            ShapeError,
            "Sum, operand 1: .*tokens=4",
        ),
        (
            lambda: Identity(2, 3) @ Zero(2, 2, 3),
            ShapeError,
            "Chain, operand 1: expected tokens=2, rows=3.*got Zero",
        ),
        (
            lambda: Identity(2, 2) @ Identity(4, 1),
            ShapeError,
            "Chain, operand 1: expected tokens=2, rows=2",
        ),
        (lambda: Identity(2, 2) / 0, DomainError, "divisor: expected a nonzero"),
        (lambda: Identity(2, 2) * "a", UnknownNodeError, "scalar factor: .*got str"),
        (lambda: 1j * Identity(2, 2), WeightError, "scalar factor: expected real"),
        (lambda: np.nan * Identity(2, 2), WeightError, "scalar factor: expected finite"),
        (lambda: Zero(2, 2, 3) ** 2, ShapeError, r"exponent: expected a square.*\(4, 6\)"),
        (lambda: Identity(2, 2) ** -1, DomainError, "exponent: expected an integer >= 0"),
        (lambda: Identity(2, 2) @ np.ones(3), ShapeError, r"x: expected shape \(4,\).*got \(3,\)"),
        (lambda: Identity(2, 2).rmatvec(np.ones(3)), ShapeError, r"x: expected shape \(4,\)"),
        (lambda: Identity(2, 2) @ np.ones((3, 2)), ShapeError, r"X: expected shape \(4, k\)"),
        (lambda: Identity(2, 2).rmatmat(np.ones((3, 2))), ShapeError, r"X: expected shape \(4, k"),
        (lambda: Identity(2, 2) @ eye_array(4), UnknownNodeError, "X: expected a dense array"),
        (lambda: Contraction([], 2, 2, 2), ShapeError, "terms: expected at least one"),
        (
            lambda: Contraction([[(np.eye(2), "ij"), (np.ones(2), "r")]], 2, 2, 2),
            ShapeError,
            r"terms\[0\]: expected a factor with label 'c'",
        ),
        (
            lambda: Contraction([[(np.eye(2), "ij"), (np.ones(2), "c")]], 2, 2, 2),
            ShapeError,
            r"terms\[0\]: expected a factor with label 'r'",
        ),
        (
            lambda: Contraction([[(np.eye(3), "rc")]], 2, 2, 3),
            ShapeError,
            r"terms\[0\]\[0\]: expected size 2 for label 'r'",
        ),
        (
            lambda: Contraction([[(np.ones((2, 3)), "ra"), (np.ones((4, 2)), "ac")]], 2, 2, 2),
            ShapeError,
            r"terms\[0\]\[1\]: expected size 3 for label 'a'",
        ),
        (
            lambda: Contraction([[(np.eye(2), "rr")]], 2, 2, 2),
            ShapeError,
            r"terms\[0\]\[0\]: expected distinct labels",
        ),
        (
            lambda: Contraction([[(np.eye(2), "r")]], 2, 2, 2),
            ShapeError,
            r"terms\[0\]\[0\]: expected one label for each axis",
        ),
        (
            lambda: Contraction([[(np.eye(2), ("r", "*c"))]], 2, 2, 2),
            ShapeError,
            r"terms\[0\]\[0\]: expected labels that are identifiers",
        ),
        (
            lambda: Contraction([[np.eye(2)]], 2, 2, 2),
            UnknownNodeError,
            r"terms\[0\]\[0\]: expected a pair \(array, labels\), got ndarray",
        ),
        (
            lambda: Contraction([[(np.full((2, 2), np.inf), "rc")]], 2, 2, 2),
            WeightError,
            r"terms\[0\]\[0\]: expected finite",
        ),
    ],
)
def test_mistakes_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()
