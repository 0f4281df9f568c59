"""The whole singular spectrum of a product, against multiprecision singular values."""

import math

import mpmath as mp
import numpy as np
import pytest

from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg import Diagonal, Identity, end_to_end, log_singular_values


def exact(factors, digits=700):
    with mp.workdps(digits):
        product = mp.eye(factors[0].shape[1])
        for factor in factors:
            product = mp.matrix(factor.tolist()) * product
        values = mp.svd_r(product, compute_uv=False)
        return np.array([float(mp.log(value)) for value in values])


def rotation(rng, d):
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def _products():
    rng = np.random.default_rng(1)
    frame = rotation(rng, 4)
    skew = np.eye(4) + 0.3 * rng.standard_normal((4, 4))
    upper = np.triu(rng.standard_normal((4, 4)), 1) + np.diag([0.1, 0.5, 1.0, 2.0])
    # (factors, tolerance of each log): L cond(factor) eps, with room for a constant.
    return {
        "gaussian": ([rng.standard_normal((4, 4)) for _ in range(60)], 1e-12),
        "residual": ([np.eye(4) + 0.3 * rng.standard_normal((4, 4)) for _ in range(60)], 1e-12),
        "graded, one frame": ([frame @ np.diag([3, 1, 0.1, 0.01]) @ frame.T] * 60, 1e-11),
        "graded, skew frame": (
            [skew @ np.diag([1, 0.1, 1e-3, 1e-4]) @ np.linalg.inv(skew)] * 60,
            1e-9,
        ),
        "diagonal, slow direction first": ([np.diag([0.1, 0.5, 1.0, 2.0])] * 60, 1e-12),
        "triangular, slow direction first": ([upper] * 60, 1e-11),
        "lower triangular": ([upper.T] * 60, 1e-11),
        "all equal": ([2.3 * rotation(rng, 4) for _ in range(60)], 1e-12),
        "one layer": ([rng.standard_normal((4, 4))], 1e-13),
        "near identity": ([np.eye(4) + 0.1 * rng.standard_normal((4, 4)) for _ in range(3)], 1e-13),
        "wide then narrow": (
            [rng.standard_normal((7, 4)), rng.standard_normal((4, 7)), rng.standard_normal((5, 4))],
            1e-12,
        ),
    }


PRODUCTS = _products()


@pytest.mark.parametrize(("factors", "tol"), PRODUCTS.values(), ids=PRODUCTS.keys())
def test_every_value_matches_700_digits(factors, tol):
    np.testing.assert_allclose(log_singular_values(factors), exact(factors), atol=tol, rtol=0)


@pytest.mark.parametrize(("factors", "tol"), PRODUCTS.values(), ids=PRODUCTS.keys())
def test_the_transposed_product_has_the_same_values(factors, tol):
    turned = [factor.T for factor in reversed(factors)]
    values = log_singular_values(turned)
    np.testing.assert_allclose(values[:4], log_singular_values(factors)[:4], atol=2 * tol, rtol=0)


def test_what_one_matrix_loses():
    """At 60 graded layers the one-matrix spectrum is noise below the second value."""
    factors, _ = PRODUCTS["graded, one frame"]
    truth = exact(factors)
    assert abs(end_to_end(factors).log_singular_values()[3] - truth[3]) > 100
    assert abs(log_singular_values(factors)[3] - truth[3]) < 1e-11


def test_the_determinant_at_depth_1000():
    rng = np.random.default_rng(5)
    d = 8
    factors = [np.eye(d) + 0.4 * rng.standard_normal((d, d)) for _ in range(1000)]
    logs = log_singular_values(factors)
    expected = math.fsum(np.linalg.slogdet(factor)[1] for factor in factors)
    assert logs.sum() == pytest.approx(expected, abs=1e-9)
    assert (np.diff(logs) <= 0).all()
    assert logs[0] == pytest.approx(end_to_end(factors).log_norm(), abs=1e-10)


@pytest.mark.parametrize("d", [5, 12])
@pytest.mark.parametrize("depth", [1, 40, 400])
def test_a_projected_direction_is_exactly_null(d, depth):
    """Every layer ends in C = I - 11'/d, as LayerNorm does: the output has no component on 1."""
    rng = np.random.default_rng(d)
    centre = np.eye(d) - 1.0 / d
    factors = [centre @ rng.standard_normal((d, d)) for _ in range(depth)]
    logs = log_singular_values(factors)
    assert np.isfinite(logs[:-1]).all()
    assert logs[-1] == -math.inf


def test_null_directions_of_two_layers_add_up():
    lost = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    along = np.eye(5) - np.outer(lost, lost) / 4
    logs = log_singular_values([np.diag(lost), along, 2.3 * np.eye(5)] * 3)
    assert np.isinf(logs).tolist() == [False, False, False, True, True]


def test_a_null_direction_in_the_first_coordinate():
    logs = log_singular_values([np.diag([0.0, 2.0, 3.0])] * 50)
    expected = [50 * math.log(3), 50 * math.log(2), -math.inf]
    np.testing.assert_allclose(logs, expected, rtol=1e-13)


def test_a_range_that_the_next_layer_annihilates():
    first, second = np.diag([1.0, 1.0, 0.0]), np.diag([0.0, 0.0, 1.0])
    assert (log_singular_values([first, second]) == -math.inf).all()
    assert (log_singular_values([np.eye(3), np.zeros((3, 3))]) == -math.inf).all()


def test_a_bottleneck_leaves_its_width():
    rng = np.random.default_rng(0)
    logs = log_singular_values([rng.standard_normal((2, 5)), rng.standard_normal((5, 2))])
    assert np.isinf(logs).tolist() == [False, False, True, True, True]


def test_rank_tol_decides_what_counts_as_zero():
    factors = [np.diag([1.0, 1e-18])] * 2
    assert log_singular_values(factors)[1] == -math.inf
    np.testing.assert_allclose(
        log_singular_values(factors, rank_tol=0.0), [0.0, -36 * math.log(10)], atol=1e-12
    )
    assert log_singular_values([np.diag([1.0, 1e-3])], rank_tol=0.01)[1] == -math.inf


def test_a_small_factor_is_not_a_null_one():
    np.testing.assert_allclose(
        log_singular_values([1e-200 * np.eye(2)] * 30), 30 * math.log(1e-200), rtol=1e-13
    )


def test_operators_are_taken():
    values = log_singular_values([Diagonal([[2.0, 3.0]], 2)] * 1000)
    np.testing.assert_allclose(values, 1000 * np.log([3.0, 3.0, 2.0, 2.0]), rtol=1e-13)


def test_clusters_of_equal_and_close_values():
    rng = np.random.default_rng(0)
    left, right = rotation(rng, 6), rotation(rng, 6)
    values = np.array([1.0, 1.0, 1.0 - 1e-9, 1e-5, 1e-5, 1e-8])
    logs = log_singular_values([left @ np.diag(values) @ right])
    error = np.abs(logs - np.log(values))
    # One factor of condition 1e8: a value v is known to eps / v.
    assert (error < 10 * np.finfo(float).eps / values).all()


def test_no_layers_is_the_identity():
    np.testing.assert_array_equal(log_singular_values([], size=3), np.zeros(3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: log_singular_values([]), ShapeError, "factors: expected at least one factor"),
        (
            lambda: log_singular_values([np.eye(2)], rank_tol=-1.0),
            DomainError,
            r"rank_tol: expected None or a number in \[0, 1\), got -1.0",
        ),
        (
            lambda: log_singular_values([np.eye(2), np.eye(3)]),
            ShapeError,
            r"factors\[1\]: expected 2 columns",
        ),
        (lambda: log_singular_values(Identity(1, 2)), UnknownNodeError, "factors: expected a list"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
