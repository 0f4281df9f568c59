"""Remainder bounds: true, tight for scalars, and free of cancellation."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.errors import DomainError, ShapeError, UnknownNodeError, WeightError
from derive.linalg import (
    Diagonal,
    Identity,
    end_to_end,
    log_product_remainder_bound,
    log_remainder_bound,
    path_sums,
    product_remainder_bound,
    remainder_bound,
)


def exact_log_tail(total, order):
    """The log of the series from its first left-out term, summed at 60 digits."""
    with mp.workdps(60):
        term = mp.mpf(total) ** (order + 1) / mp.factorial(order + 1)
        tail, k = mp.mpf(0), order + 1
        while k <= total or term > tail * mp.mpf(10) ** -40:
            tail += term
            k += 1
            term *= mp.mpf(total) / k
        return float(mp.log(tail))


def exact_log_product_tail(norms, order):
    with mp.workdps(400):
        symmetric = [mp.mpf(1)] + [mp.mpf(0)] * len(norms)
        for norm in norms:
            for k in range(len(norms), 0, -1):
                symmetric[k] += mp.mpf(norm) * symmetric[k - 1]
        return float(mp.log(mp.fsum(symmetric[order + 1 :])))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 7),
    st.integers(0, 7),
    st.floats(1e-3, 2.0),
    st.integers(0, 2**32 - 1),
)
def test_the_bounds_hold(d, depth, order, scale, seed):
    rng = np.random.default_rng(seed)
    branches = [scale * rng.standard_normal((d, d)) for _ in range(depth)]
    sums = path_sums(branches)
    left_out = sum(sums[order + 1 :], np.zeros((d, d)))
    size = np.linalg.norm(left_out, 2)
    tight, loose = product_remainder_bound(branches, order), remainder_bound(branches, order)
    # Rounding of the bounds themselves.
    assert size <= tight * (1 + 1e-12)
    assert tight <= loose * (1 + 1e-12)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_the_bound_is_reached_by_scalars_as_depth_grows(order):
    a, gaps = 1.3, []
    for depth in (10, 100, 1000):
        branches = [a / depth * np.eye(2)] * depth
        product = end_to_end([np.eye(2) + branch for branch in branches]).value()
        rest = np.linalg.norm(product - sum(path_sums(branches, order)), 2)
        assert product_remainder_bound(branches, order) == pytest.approx(rest, rel=1e-10)
        gaps.append(remainder_bound(branches, order) / rest - 1)
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[2] < 0.02


@pytest.mark.parametrize("order", [0, 1, 2, 5, 30, 300])
@pytest.mark.parametrize("total", [1e-150, 1e-8, 0.1, 1.0, 2.0, 3.0, 31.0, 300.0, 700.0, 5000.0])
def test_the_log_bound_matches_60_digits(total, order):
    # Near a log of 1e5 one rounding is 1e-11.
    expected = exact_log_tail(total, order)
    assert log_remainder_bound([total], order) == pytest.approx(expected, rel=3e-15, abs=1e-12)


@pytest.mark.parametrize("total", [1e-12, 1e-8, 1e-4, 0.5, 20.0])
def test_the_bound_has_no_cancellation(total):
    expected = math.exp(exact_log_tail(total, 1))
    assert remainder_bound([total / 4] * 4) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("order", [0, 1, 2, 7])
@pytest.mark.parametrize("size", [1e-100, 1e-6, 1.0, 1e3, 1e100])
def test_the_log_product_bound_matches_400_digits(size, order):
    norms = size * np.linspace(0.5, 2.0, 12)
    expected = exact_log_product_tail(norms, order)
    result = log_product_remainder_bound(norms, order)
    assert result == pytest.approx(expected, rel=1e-14, abs=1e-13)


def test_a_thousand_large_norms_stay_in_log_scale():
    assert log_product_remainder_bound([1.3] * 1000) == pytest.approx(1000 * math.log(2.3))
    assert log_remainder_bound([1.3] * 1000) == pytest.approx(1300.0)
    for bound, name in (
        (remainder_bound, "log_remainder_bound"),
        (product_remainder_bound, "log_product_remainder_bound"),
    ):
        with pytest.raises(DomainError, match=rf"branches: expected a bound below.*use {name}"):
            bound([1.3] * 1000)


def test_branches_and_their_norms_give_the_same_bound():
    branches = [np.diag([0.3, 0.1]), Diagonal([[0.2, -0.4]], 1)]
    for bound in (remainder_bound, product_remainder_bound):
        assert bound(branches) == pytest.approx(bound([0.3, 0.4]), rel=1e-14)
        assert bound(np.array([0.3, 0.4])) == bound([0.3, 0.4])


def test_the_order_by_hand():
    assert product_remainder_bound([2.0, 3.0], 0) == pytest.approx(11.0)
    assert product_remainder_bound([2.0, 3.0], 1) == pytest.approx(6.0)
    assert product_remainder_bound([2.0, 3.0], 2) == 0.0
    assert remainder_bound([1.0], 0) == pytest.approx(math.e - 1)
    assert remainder_bound([1.0], 2) == pytest.approx(math.e - 2.5)


@pytest.mark.parametrize("bound", [log_remainder_bound, log_product_remainder_bound])
def test_nothing_left_out_is_minus_infinity(bound):
    assert bound([]) == -math.inf
    assert bound([0.0, 0.0]) == -math.inf
    assert bound([np.zeros((2, 2))]) == -math.inf


def test_zero_branches_take_no_path():
    assert log_product_remainder_bound([0.5, 0.0, 0.0], 1) == -math.inf
    assert product_remainder_bound([0.5, 0.0, 0.5]) == pytest.approx(0.25)


@pytest.mark.parametrize(
    "bound",
    [remainder_bound, log_remainder_bound, product_remainder_bound, log_product_remainder_bound],
)
@pytest.mark.parametrize(
    ("branches", "order", "error", "message"),
    [
        ([0.5], -1, DomainError, "order: expected an integer >= 0, got -1"),
        ([0.5, -0.1], 1, DomainError, "norms: expected numbers >= 0, got -0.1"),
        ([0.5, math.nan], 1, WeightError, "norms: expected finite entries"),
        ([0.5, np.eye(2)], 1, UnknownNodeError, r"branches\[1\]: expected the kind of branches\[0"),
        ([np.eye(2), 0.5], 1, UnknownNodeError, r"branches\[1\]: .*got float"),
        ([np.ones((2, 3))], 1, ShapeError, r"branches\[0\]: expected a square matrix"),
        (Identity(1, 2), 1, UnknownNodeError, "branches: expected a list.*got Identity"),
        (0.5, 1, UnknownNodeError, "branches: expected a list.*got float"),
    ],
)
def test_mistakes_are_named(bound, branches, order, error, message):
    with pytest.raises(error, match=message):
        bound(branches, order)
