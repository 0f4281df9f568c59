"""Ordered products in log scale, against plain products and 60-digit arithmetic."""

import math
import sys

import mpmath as mp
import numpy as np
import pytest

from derive.errors import DomainError, ShapeError, UnknownNodeError, WeightError
from derive.linalg import (
    Contraction,
    Dense,
    Diagonal,
    Identity,
    ScaledMatrix,
    end_to_end,
    gradient_log_norms,
    log_norm,
    materialise,
)


def gaussian(depth, d, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal((d, d)) for _ in range(depth)]


def exact_product(factors, digits=60):
    with mp.workdps(digits):
        product = mp.eye(factors[0].shape[1])
        for factor in factors:
            product = mp.matrix(factor.tolist()) * product
        return product


def exact_log_singular_values(factors, digits=60):
    with mp.workdps(digits):
        values = mp.svd_r(exact_product(factors, digits), compute_uv=False)
        return np.array([float(mp.log(value)) for value in values])


def sequence_layer(seed, n=3, d=4):
    draw = np.random.default_rng(seed).standard_normal
    mix = Contraction([[(draw((n, n)), "ij"), (draw((d, d)), "rc")]], n, d, d)
    return Identity(n, d) + mix @ Diagonal(draw((n, d)), n)


def test_end_to_end_is_the_product_with_the_last_layer_leftmost():
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 1.0], [5.0, 0.0]])
    np.testing.assert_array_equal(end_to_end([a, b]).value(), b @ a)


@pytest.mark.parametrize("start", range(5))
def test_from_layer_leaves_out_the_layers_before(start):
    factors = [np.ones((3, 2)), *gaussian(2, 3), np.ones((5, 3))]
    expected = np.eye(5 if start == 4 else factors[start].shape[1])
    for factor in factors[start:]:
        expected = factor @ expected
    np.testing.assert_allclose(end_to_end(factors, start).value(), expected, rtol=1e-13)


def test_operators_and_arrays_mix():
    one, two = sequence_layer(0), sequence_layer(1)
    full = np.random.default_rng(2).standard_normal((12, 12))
    expected = materialise(two) @ full @ materialise(one)
    np.testing.assert_allclose(end_to_end([one, full, two]).value(), expected, rtol=1e-11)


def test_tokenwise_products_stay_block_diagonal():
    rng = np.random.default_rng(0)
    blocks = [rng.standard_normal((3, 4, 4)) for _ in range(5)]
    expected = np.zeros((12, 12))
    for i in range(3):
        part = np.eye(4)
        for layer in blocks:
            part = layer[i] @ part
        expected[4 * i : 4 * i + 4, 4 * i : 4 * i + 4] = part
    value = end_to_end([Dense(layer, 3) for layer in blocks]).value()
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


def test_a_tokenwise_product_of_shared_blocks():
    value = end_to_end([Dense([[1.0, 2.0]], 2), Diagonal([[3.0]], 2)]).value()
    np.testing.assert_array_equal(value, [[3.0, 6.0, 0.0, 0.0], [0.0, 0.0, 3.0, 6.0]])


@pytest.mark.parametrize(("alpha", "depth"), [(2.3, 1000), (1e-3, 1000), (1e150, 20), (1e-150, 20)])
@pytest.mark.parametrize("kind", ["array", "tokenwise"])
def test_a_thousand_layers_neither_overflow_nor_underflow(alpha, depth, kind):
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    factor = alpha * rotation if kind == "array" else Dense(alpha * rotation, 2)
    result = end_to_end([factor] * depth)
    assert np.isfinite(result.matrix).all()
    assert result.log_norm() == pytest.approx(depth * math.log(alpha), rel=1e-13)
    width = factor.shape[0]
    expected = np.full(width, depth * math.log(alpha))
    np.testing.assert_allclose(result.log_singular_values(), expected, rtol=1e-12)
    gradients = gradient_log_norms([factor] * depth, np.ones(width))
    layers = np.arange(depth, -1, -1)
    np.testing.assert_allclose(gradients, layers * math.log(alpha) + 0.5 * math.log(width))


def test_log_norm_of_a_thousand_layers_matches_60_digits():
    factors = gaussian(1000, 3, seed=3)
    expected = exact_log_singular_values(factors)[0]
    # 1000 products, each with a relative error of a few 1e-16.
    assert log_norm(factors) == pytest.approx(expected, abs=1e-11)
    assert end_to_end(factors).log_norm() == pytest.approx(expected, abs=1e-11)


def test_frobenius_norm_of_a_thousand_layers_matches_60_digits():
    factors = gaussian(1000, 3, seed=4, scale=1.7)
    product = exact_product(factors)
    with mp.workdps(60):
        expected = float(mp.log(mp.sqrt(sum(entry**2 for entry in product))))
    assert end_to_end(factors).log_norm("fro") == pytest.approx(expected, abs=1e-11)


def test_a_zero_product_has_log_norm_minus_infinity():
    factors = [np.eye(2), np.zeros((2, 2)), np.eye(2)]
    assert log_norm(factors) == -math.inf
    assert end_to_end(factors).log_norm("fro") == -math.inf
    assert (end_to_end(factors).log_singular_values() == -math.inf).all()
    assert (end_to_end(factors).value() == 0).all()
    gradients = gradient_log_norms(factors, [3.0, 4.0])
    assert (gradients[:2] == -math.inf).all()
    np.testing.assert_allclose(gradients[2:], math.log(5))


def test_a_null_direction_has_log_minus_infinity():
    result = end_to_end([np.diag([1.0, 0.0]), np.diag([3.0, 2.0])])
    np.testing.assert_allclose(result.log_singular_values(), [math.log(3.0), -math.inf])


@pytest.mark.parametrize("kind", ["array", "operator"])
def test_gradient_norms_are_those_of_the_partial_products(kind):
    if kind == "array":
        factors = [np.ones((4, 2)), *gaussian(3, 4)]
        dense = factors
    else:
        factors = [sequence_layer(k) for k in range(4)]
        dense = [materialise(op) for op in factors]
    g = np.random.default_rng(9).standard_normal(dense[-1].shape[0])
    expected = [math.log(np.linalg.norm(g))]
    vector = g
    for matrix in reversed(dense):
        vector = matrix.T @ vector
        expected.insert(0, math.log(np.linalg.norm(vector)))
    np.testing.assert_allclose(gradient_log_norms(factors, g), expected, rtol=1e-12)


def test_the_gradient_sweep_forms_no_matrix():
    n, d = 2000, 32
    factors = [Dense(np.eye(d), n)] * 3
    # As a matrix, each would take 32 GB.
    logs = gradient_log_norms(factors, np.ones(n * d))
    np.testing.assert_allclose(logs, 0.5 * math.log(n * d))


def test_a_zero_cotangent_has_no_gradient():
    np.testing.assert_array_equal(gradient_log_norms(gaussian(3, 2), [0.0, 0.0]), [-math.inf] * 4)


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_cotangents_of_extreme_size(size):
    logs = gradient_log_norms([np.eye(2)], [3 * size, 4 * size])
    np.testing.assert_allclose(logs, math.log(5) + math.log(size))


def test_no_layers_is_the_identity():
    np.testing.assert_array_equal(end_to_end([], size=3).value(), np.eye(3))
    assert log_norm([], size=3) == 0.0
    np.testing.assert_allclose(gradient_log_norms([], [3.0, 4.0]), [math.log(5)])


@pytest.fixture
def iterated(monkeypatch):
    """Products of more than 10 components count as large."""
    monkeypatch.setattr(sys.modules["derive.linalg.products"], "FORM_LIMIT", 10)
    draw = np.random.default_rng(0).standard_normal
    n, d = 30, 4
    return [
        Contraction(
            [[(draw((n, n)), "ij"), (draw((d, d)), "rc")], [(5 * draw((n, d, d)), "irc")]], n, d, d
        )
        for _ in range(3)
    ]


def test_a_large_product_is_iterated_to_its_residual(iterated):
    expected = np.log(np.linalg.svd(end_to_end(iterated).value(), compute_uv=False)[0])
    assert log_norm(iterated) == pytest.approx(expected, abs=1e-10)


def test_a_rectangular_product_is_iterated(iterated):
    factors = [np.random.default_rng(1).standard_normal((40, 3)), *gaussian(2, 40)]
    expected = np.log(np.linalg.norm(factors[2] @ factors[1] @ factors[0], 2))
    assert log_norm(factors) == pytest.approx(expected, abs=1e-10)


def test_a_large_product_is_not_formed(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("formed")

    monkeypatch.setattr(sys.modules["derive.linalg.products"], "materialise", refuse)
    tall = Dense(np.random.default_rng(0).standard_normal((40, 40)), 60)
    expected = math.log(np.linalg.norm(tall.matrix[0], 2))
    assert log_norm([tall]) == pytest.approx(expected, abs=1e-9)


def test_large_products_of_many_layers_do_not_overflow():
    factors = [Diagonal(np.linspace(1, 2.3, 2100)[None], 1)] * 1000
    assert log_norm(factors) == pytest.approx(1000 * math.log(2.3), rel=1e-12)


def test_a_large_zero_product():
    zero = np.zeros((1, 2100))
    zero[0, 0] = 1.0
    other = np.zeros((1, 2100))
    other[0, 1] = 1.0
    assert log_norm([Diagonal(zero, 1), Diagonal(other, 1)]) == -math.inf


def test_an_iteration_that_does_not_converge_says_so(iterated):
    with pytest.raises(DomainError, match=r"max_steps: .*residual of 1.0e-10 within 2 Lanczos"):
        log_norm(iterated, max_steps=2)


def test_value_is_exact_for_powers_of_two():
    matrix = np.array([[1.0, 3.0], [-5.0, 0.1]])
    result = end_to_end([matrix, 2.0**40 * np.eye(2), 2.0**-70 * np.eye(2)])
    np.testing.assert_array_equal(result.value(), matrix * 2.0**-30)


def test_value_reaches_the_largest_double():
    largest = np.finfo(float).max / 2
    assert ScaledMatrix(np.array([[largest]])).value()[0, 0] == largest
    small = ScaledMatrix(np.array([[1e-300]]), 800.0)
    assert small.value()[0, 0] == pytest.approx(math.exp(800 - 300 * math.log(10)), rel=1e-12)
    assert ScaledMatrix(np.eye(1), -1000.0).value()[0, 0] == 0.0


def test_value_that_would_overflow_is_refused():
    with pytest.raises(DomainError, match=r"log_scale: expected entries below exp\(709.8\), got"):
        end_to_end([2.3 * np.eye(2)] * 1000).value()


def test_scaled_matrices_multiply():
    a, b = ScaledMatrix(np.full((2, 2), 1e200), 5.0), ScaledMatrix(np.full((2, 2), 1e100), 7.0)
    product = a @ b
    expected = math.log(4.0) + 300 * math.log(10) + 12.0
    assert product.log_norm() == pytest.approx(expected, rel=1e-13)


def test_log_norms_of_extreme_matrices():
    for size in (1e-300, 1e300):
        matrix = ScaledMatrix(size * np.array([[3.0, 0.0], [4.0, 0.0]]), -2.0)
        expected = math.log(5) + math.log(size) - 2.0
        assert matrix.log_norm() == pytest.approx(expected, rel=1e-13)
        assert matrix.log_norm("fro") == pytest.approx(expected, rel=1e-13)


EYE = np.eye(2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: end_to_end([]), ShapeError, "factors: .*or size=.*got an empty list and no size"),
        (lambda: log_norm([]), ShapeError, "factors: expected at least one factor"),
        (lambda: end_to_end([], size=0), DomainError, "size: expected an integer >= 1, got 0"),
        (lambda: end_to_end([EYE], size=3), ShapeError, r"size: expected 2, .*factors\[0\], got 3"),
        (lambda: end_to_end([EYE], 2), DomainError, "from_layer: expected 0 to 1, got 2"),
        (lambda: end_to_end([EYE], -1), DomainError, "from_layer: expected an integer >= 0"),
        (
            lambda: end_to_end([EYE, np.eye(3)]),
            ShapeError,
            r"factors\[1\]: expected 2 columns, the rows of factors\[0\], got shape \(3, 3\)",
        ),
        (lambda: end_to_end(EYE), ShapeError, r"factors\[0\]: expected an array with 2 axes"),
        (
            lambda: end_to_end([[1.0]]),
            UnknownNodeError,
            r"factors\[0\]: expected an Operator.*list",
        ),
        (
            lambda: end_to_end(Identity(1, 2)),
            UnknownNodeError,
            "factors: expected a list.*Identity",
        ),
        (lambda: end_to_end(3), UnknownNodeError, "factors: expected a list of factors.*int"),
        (
            lambda: end_to_end([np.full((2, 2), np.inf)]),
            WeightError,
            r"factors\[0\]: expected finite",
        ),
        (
            lambda: gradient_log_norms([EYE], np.ones(3)),
            ShapeError,
            "cotangent: expected length 2, the rows of the last factor, got 3",
        ),
        (
            lambda: gradient_log_norms([EYE], np.ones((2, 1))),
            ShapeError,
            "cotangent: expected an array with 1 axes",
        ),
        (lambda: gradient_log_norms([EYE], [np.nan, 1]), WeightError, "cotangent: expected finite"),
        (lambda: log_norm([EYE], tol=0.0), DomainError, "tol: expected a number between 0 and 1"),
        (lambda: log_norm([EYE], max_steps=0), DomainError, "max_steps: expected an integer >= 1"),
        (lambda: ScaledMatrix(np.ones(3)), ShapeError, "matrix: expected an array with 2 axes"),
        (lambda: ScaledMatrix(EYE, math.inf), DomainError, "log_scale: expected a finite number"),
        (lambda: ScaledMatrix(EYE).log_norm(1), DomainError, "ord: expected 2 or 'fro', got 1"),
        (
            lambda: ScaledMatrix(EYE) @ ScaledMatrix(np.eye(3)),
            ShapeError,
            r"right operand: expected 2 rows, got shape \(3, 3\)",
        ),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [end_to_end, log_norm, lambda factors: gradient_log_norms(factors, np.ones(3))],
    ids=["end to end", "log norm", "gradients"],
)
def test_an_overflow_within_one_factor_is_named(call):
    huge = np.full((3, 3), 1.7e308)
    with pytest.raises(DomainError, match="factors: expected products within double precision"):
        call([np.ones((3, 3)), huge])
