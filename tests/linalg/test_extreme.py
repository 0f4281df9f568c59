"""Extreme singular triplets: values against dense NumPy and mpmath, residuals, refusals."""

import math

import mpmath as mp
import numpy as np
import pytest

from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg import Dense, Diagonal, bottom_triplets, extreme, top_triplets


def rotation(rng, d):
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def gaussian(rng, shape, layers):
    return [np.eye(*shape) + 0.4 * rng.standard_normal(shape) for _ in range(layers)]


def dense(factors):
    out = np.eye(factors[0].shape[1])
    for factor in factors:
        out = factor @ out
    return out


def require_triplets(found, matrix, tol=1e-11):
    """u, v orthonormal, M v = s u, M'u = s v, relative to the norm: by the dense matrix."""
    norm = np.linalg.norm(matrix, 2)
    values = np.exp(found.log_values)
    for vectors in (found.left, found.right):
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-12)
    assert np.abs(matrix @ found.right - found.left * values).max() < tol * norm
    assert np.abs(matrix.T @ found.left - found.right * values).max() < tol * norm


@pytest.mark.parametrize("form_limit", [2048, 4], ids=["formed", "block Krylov"])
@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("layers", [1, 6])
def test_the_largest(k, layers, form_limit):
    factors = gaussian(np.random.default_rng(k), (24, 24), layers)
    matrix = dense(factors)
    found = top_triplets(factors, k, form_limit=form_limit)
    assert found.method == ("formed" if form_limit > 24 else "block Krylov")
    expected = np.linalg.svd(matrix, compute_uv=False)[:k]
    np.testing.assert_allclose(np.exp(found.log_values), expected, rtol=1e-11)
    require_triplets(found, matrix, 1e-10)
    assert found.residuals.shape == (k, 2)
    assert found.residuals.max() < 1e-10


def test_rectangular_products():
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((9, 5)), rng.standard_normal((7, 9))]
    for limit in (100, 3):
        found = top_triplets(factors, 5, form_limit=limit)
        require_triplets(found, dense(factors), 1e-10)
    with pytest.raises(ShapeError, match=r"factors\[0\]: expected a square matrix"):
        bottom_triplets(factors, 1)


@pytest.mark.parametrize("values", [[2.0, 2.0, 2.0, 1.0], [1.0] * 4], ids=["threefold", "identity"])
def test_repeated_values_are_found_as_often_as_they_are(values):
    rng = np.random.default_rng(2)
    matrix = rotation(rng, 4) @ np.diag(values) @ rotation(rng, 4)
    for limit in (100, 2):
        found = top_triplets([matrix], 3, form_limit=limit)
        np.testing.assert_allclose(np.exp(found.log_values), values[:3], rtol=1e-13)


@pytest.mark.parametrize(("k", "layers"), [(1, 1), (3, 1), (1, 40)])
def test_the_smallest_against_sixty_digits(k, layers):
    factors = gaussian(np.random.default_rng(layers), (6, 6), layers)
    found = bottom_triplets(factors, k)
    with mp.workdps(60):
        product = mp.eye(6)
        for factor in factors:
            product = mp.matrix(factor.tolist()) * product
        left, values, right = mp.svd_r(product)
        for place in range(k):
            last = 5 - place
            assert found.log_values[place] == pytest.approx(float(mp.log(values[last])), abs=1e-10)
            u = np.array([float(left[row, last]) for row in range(6)])
            v = np.array([float(right[last, col]) for col in range(6)])
            assert abs(found.left[:, place] @ u) == pytest.approx(1.0, abs=1e-12)
            assert abs(found.right[:, place] @ v) == pytest.approx(1.0, abs=1e-12)
    assert found.method == "inverse"
    assert found.inverse_residuals.max() < 1e-10


def test_the_smallest_lies_below_rounding_of_the_largest():
    """An SVD of the product finds noise where the inverse finds the value."""
    rng = np.random.default_rng(4)
    frame = rotation(rng, 4)
    factors = [frame @ np.diag([1.0, 0.5, 0.1, 0.01]) @ frame.T] * 60
    (found,) = bottom_triplets(factors, 1).log_values
    assert found == pytest.approx(60 * math.log(0.01), abs=1e-9)
    noise = np.linalg.svd(dense(factors), compute_uv=False)[-1]
    assert abs(math.log(noise) - found) > 50


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_a_thousand_layers_neither_overflow_nor_underflow(scale):
    factors = [scale * np.diag([1.0, 0.5, 0.25])] * 1000
    top, bottom = top_triplets(factors, 1), bottom_triplets(factors, 1)
    krylov = top_triplets(factors, 1, form_limit=2)
    for found in (top, krylov):
        assert found.log_values[0] == pytest.approx(1000 * math.log(scale), rel=1e-13)
    expected = 1000 * math.log(scale * 0.25)
    np.testing.assert_allclose(bottom.log_values, expected, rtol=1e-13)


def test_tokens_that_do_not_mix_are_blocks(monkeypatch):
    rng = np.random.default_rng(1)
    factors = [Dense(rng.standard_normal((3, 4, 4)), 3) for _ in range(3)]
    matrix = dense([f @ np.eye(12) for f in factors])
    monkeypatch.setattr(extreme, "FORM_LIMIT", 4)
    found = top_triplets(factors, 5, form_limit=4)
    assert found.method == "formed"
    require_triplets(found, matrix)
    np.testing.assert_allclose(
        np.exp(found.log_values), np.linalg.svd(matrix, compute_uv=False)[:5], rtol=1e-12
    )
    least = bottom_triplets(factors, 5, form_limit=4)
    np.testing.assert_allclose(
        np.exp(least.log_values), np.linalg.svd(matrix, compute_uv=False)[:-6:-1], rtol=1e-11
    )
    require_triplets(least, matrix)


def test_one_operator_or_matrix_is_a_product_too():
    for single in (Diagonal([[3.0, 2.0]], 1), np.diag([3.0, 2.0])):
        assert math.exp(top_triplets(single, 1).log_values[0]) == pytest.approx(3.0)
        assert math.exp(bottom_triplets(single, 1).log_values[0]) == pytest.approx(2.0)


def test_no_layers_and_the_zero_product():
    np.testing.assert_array_equal(top_triplets([], 2, size=3).log_values, np.zeros(2))
    for limit in (10, 1):
        found = top_triplets([np.zeros((3, 3))], 2, form_limit=limit)
        assert np.isneginf(found.log_values).all()
        assert not found.residuals.any()


# -- what is refused


def test_an_answer_that_has_not_converged_is_refused():
    factors = gaussian(np.random.default_rng(0), (60, 60), 2)
    with pytest.raises(DomainError, match=r"max_steps: expected residuals up to 1.0e-10 within 2"):
        top_triplets(factors, 2, form_limit=10, max_steps=2)


@pytest.mark.parametrize("find", [top_triplets, bottom_triplets])
def test_a_wrong_triplet_is_refused(find, monkeypatch):
    """A vector turned by 1e-6 leaves a residual of 1e-6 times the gap."""
    right_answer = extreme._leading

    def wrong(blocks, count):
        logs, left, right = right_answer(blocks, count)
        right = right + 1e-6 * np.roll(right, 1, axis=0)
        return logs, left, right

    monkeypatch.setattr(extreme, "_leading", wrong)
    with pytest.raises(
        DomainError, match=r"tol: expected residuals up to 1.0e-10 .* not converged"
    ):
        find(gaussian(np.random.default_rng(0), (5, 5), 3), 2)


def test_noise_is_not_a_triplet():
    """The third value is 1e-180 of the largest: any vector would pass the residual check."""
    factors = [np.diag([1.0, 0.5, 1e-3])] * 60
    with pytest.raises(DomainError, match=r"k: expected at most 1, the values above .* k = 3"):
        top_triplets(factors, 3)
    with pytest.raises(DomainError, match="above rounding of the inverse of the smallest, got"):
        bottom_triplets(factors, 3)


SINGULAR = [np.eye(3), np.diag([1.0, 1.0, 0.0]), np.eye(3) - 1 / 3]


@pytest.mark.parametrize("factor", SINGULAR[1:], ids=["zero", "projection"])
def test_the_smallest_of_a_singular_product_are_refused(factor):
    with pytest.raises(DomainError, match=r"factors\[1\]: expected a matrix that can be inverted"):
        bottom_triplets([np.eye(3), factor], 1)


BAD = {
    "k too large": (lambda f: top_triplets(f, 4), DomainError, "k: expected 1 to 3 singular"),
    "k zero": (lambda f: top_triplets(f, 0), DomainError, "k: expected an integer >= 1"),
    "tol": (lambda f: top_triplets(f, 1, tol=2), DomainError, "tol: expected a number between"),
    "too large to invert": (
        lambda f: bottom_triplets(f, 1, form_limit=2),
        DomainError,
        "factors: expected blocks of at most 2 rows to invert, got 3",
    ),
    "no list": (lambda f: top_triplets(3, 1), UnknownNodeError, "factors: expected a list"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_named(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call([np.eye(3)])
