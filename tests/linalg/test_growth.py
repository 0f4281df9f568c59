"""Spectra of the products at every depth, against multiprecision products formed afresh."""

import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.errors import DomainError, ShapeError, WeightError
from derive.linalg import (
    Dense,
    Diagonal,
    Spectrum,
    alignments,
    end_to_end,
    growth,
    log_singular_values,
    product_spectra,
)

from .test_spectrum import rotation

SIDES = ("input", "output")


def _products():
    rng = np.random.default_rng(3)
    frame = rotation(rng, 4)
    centre = np.eye(4) - 0.25
    # (factors, tolerance of each log): L cond(factor) eps, with room for a constant.
    return {
        "residual": ([np.eye(4) + 0.3 * rng.standard_normal((4, 4)) for _ in range(40)], 1e-12),
        "graded": ([frame @ np.diag([3, 1, 0.1, 0.01]) @ frame.T] * 40, 1e-11),
        "slow direction first": ([np.diag([0.1, 0.5, 1.0, 2.0])] * 40, 1e-12),
        "far beyond doubles": ([frame @ np.diag([1, 0.1, 1e-3, 1e-8]) @ frame.T] * 60, 1e-6),
        "projected": ([centre @ rng.standard_normal((4, 4)) for _ in range(40)], 1e-11),
        "narrow": (
            [rng.standard_normal((3, 4)), rng.standard_normal((5, 3)), rng.standard_normal((4, 5))],
            1e-12,
        ),
    }


PRODUCTS = _products()


def exact(factors, width, digits=1200):
    with mp.workdps(digits):
        product = mp.eye(width)
        for factor in factors:
            product = mp.matrix(factor.tolist()) * product
        values = mp.svd_r(product, compute_uv=False)
        null = mp.mpf(10) ** (-digits // 2)  # what is exactly zero is zero to all digits
        return np.array([float(mp.log(v)) if v > null else -np.inf for v in values])


def part(factors, place, side):
    return factors[:place] if side == "input" else factors[place:]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("case", PRODUCTS)
def test_every_value_at_every_depth(case, side):
    factors, tol = PRODUCTS[case]
    places = [p for p in (0, 1, 2, 3, 17, 40, 59, 60) if p <= len(factors)]
    for place, found in zip(places, product_spectra(factors, places, side=side), strict=True):
        chosen = part(factors, place, side)
        expected = exact(chosen, chosen[0].shape[1]) if chosen else np.zeros(4)
        if case == "projected":  # the last value is zero but for the rounding of C's entries
            expected[-1] = -np.inf if chosen else 0.0
        np.testing.assert_allclose(found.log_values, expected, rtol=0, atol=tol)


def test_one_matrix_would_be_rejected():
    """The spectrum of the product as one matrix fails the same comparison."""
    factors, tol = PRODUCTS["graded"]
    truth = exact(factors, 4)
    assert np.abs(end_to_end(factors).log_singular_values() - truth).max() > 10 > tol
    assert np.abs(product_spectra(factors, [40])[0].log_values - truth).max() < tol


@pytest.mark.parametrize("side", SIDES)
def test_two_passes_where_the_grading_is_not_sure(side, monkeypatch):
    factors, _ = PRODUCTS["graded"]
    quick = product_spectra(factors, [5, 30], side=side)
    assert {s.method for s in quick} == {"jacobi"}
    monkeypatch.setattr(growth, "_SURE", 0.0)
    sure = product_spectra(factors, [5, 30], side=side)
    assert {s.method for s in sure} == {"two passes"}
    for a, b in zip(quick, sure, strict=True):
        np.testing.assert_allclose(a.log_values, b.log_values, rtol=0, atol=1e-11)


@pytest.mark.parametrize("side", SIDES)
def test_leading_vectors_and_their_alignment(side):
    rng = np.random.default_rng(8)
    factors = [np.eye(5) + 0.3 * rng.standard_normal((5, 5)) for _ in range(6)]
    spectra = product_spectra(factors, side=side)
    shared = []
    for place, found in enumerate(spectra):
        matrix = np.eye(5)
        for factor in part(factors, place, side):
            matrix = factor @ matrix
        left, _, right = np.linalg.svd(matrix)
        shared.append(right[0] if side == "input" else left[:, 0])
        if not part(factors, place, side):
            assert np.isnan(found.left).all()
            continue
        assert abs(found.left @ left[:, 0]) == pytest.approx(1.0, abs=1e-12)
        assert abs(found.right @ right[0]) == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(
            matrix @ found.right, found.left * math.exp(found.log_norm), atol=1e-12
        )
    cosines = alignments(spectra, side)
    assert len(cosines) == 7
    undefined = {0, 1} if side == "input" else {0, 6}  # next to the identity, or the first
    for place in range(7):
        if place in undefined:
            assert math.isnan(cosines[place])
        else:
            assert cosines[place] == pytest.approx(
                abs(shared[place] @ shared[place - 1]), abs=1e-11
            )
    assert alignments([], side) == []


def test_measures_of_a_known_spectrum():
    values = np.array([4.0, 2.0, 2.0, 1e-9, 1e-30, 0.0])
    with np.errstate(divide="ignore"):
        vector = np.zeros(6)
        found = Spectrum(np.log(values) + 5000.0, (6, 6), vector, vector, "svd")
    assert found.log_norm == pytest.approx(5000 + math.log(4))
    assert found.log_frobenius == pytest.approx(5000 + math.log(math.sqrt(24)))
    assert found.log_condition == math.inf
    assert [found.numerical_rank(t) for t in (None, 0.6, 0.0, 1e-20)] == [4, 1, 5, 4]
    p = np.array([0.5, 0.25, 0.25])
    assert found.effective_rank == pytest.approx(math.exp(-np.sum(p * np.log(p))), rel=1e-8)
    assert found.participation_ratio == pytest.approx(24**2 / (256 + 16 + 16), rel=1e-12)
    with pytest.raises(DomainError, match=r"tol: expected a number in \[0, 1\), got 1"):
        found.numerical_rank(1)


@pytest.mark.parametrize("measure", ["effective_rank", "participation_ratio"])
def test_ranks_of_an_identity_and_of_rank_one(measure):
    identity, one = product_spectra([np.ones((4, 4))])
    assert getattr(identity, measure) == pytest.approx(4.0, rel=1e-14)
    assert getattr(one, measure) == pytest.approx(1.0, rel=1e-12)
    assert one.numerical_rank() == 1
    assert one.log_condition == math.inf


def test_a_zero_product():
    (found,) = product_spectra([np.eye(3), np.zeros((3, 3)), np.eye(3)], [3])
    assert np.isneginf(found.log_values).all()
    assert found.numerical_rank() == found.effective_rank == found.participation_ratio == 0
    assert found.log_frobenius == -math.inf
    assert found.log_condition == math.inf
    assert np.isnan(found.right).all()


@pytest.mark.parametrize("side", SIDES)
def test_tokens_that_do_not_mix_are_blocks(side):
    rng = np.random.default_rng(1)
    factors = [Dense(rng.standard_normal((3, 4, 4)), 3) for _ in range(4)]
    dense = [f @ np.eye(12) for f in factors]
    limited = product_spectra(factors, side=side, form_limit=4)
    for blocks, whole in zip(limited, product_spectra(dense, side=side), strict=True):
        np.testing.assert_allclose(blocks.log_values, whole.log_values, rtol=0, atol=1e-12)
        assert blocks.shape == (12, 12)
        if np.isfinite(whole.right).all():
            assert abs(blocks.right @ whole.right) == pytest.approx(1.0, abs=1e-10)
            assert abs(blocks.left @ whole.left) == pytest.approx(1.0, abs=1e-10)
    with pytest.raises(DomainError, match=r"expected blocks of at most 4 rows .* got 12; take"):
        product_spectra(dense, form_limit=4)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_a_thousand_layers_neither_overflow_nor_underflow(scale):
    factors = [Diagonal([scale * np.array([1.0, 0.5, 0.1])], 1)] * 1000
    for side in SIDES:
        for found, layers in zip(
            product_spectra(factors, [500, 1000], side=side), (500, 1000), strict=True
        ):
            depth = layers if side == "input" else 1000 - layers
            expected = depth * np.log(scale * np.array([1.0, 0.5, 0.1]))
            np.testing.assert_allclose(found.log_values, expected, rtol=1e-13, atol=1e-13)


def test_a_dense_spectrum_over_thousands_of_powers_of_two():
    """No gaps: the groups of rows that do not meet are found inside a continuous spectrum."""
    rng = np.random.default_rng(0)
    d, depth = 24, 400
    factors = [rng.standard_normal((d, d)) / math.sqrt(d) for _ in range(depth)]
    (found,) = product_spectra(factors, [depth])
    determinant = math.fsum(np.linalg.slogdet(f)[1] for f in factors)
    assert found.log_values.sum() == pytest.approx(determinant, abs=1e-7)
    np.testing.assert_allclose(found.log_values, log_singular_values(factors), rtol=0, atol=1e-8)


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=6),
    st.lists(st.integers(-300, 300), min_size=5, max_size=5),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_shapes_and_scales(widths, scales, seed):
    """Powers of two come out exactly; the transposed product has the same values from the end."""
    rng = np.random.default_rng(seed)
    plain = [rng.standard_normal((b, a)) for a, b in pairwise(widths)]
    factors = [f * 2.0**e for f, e in zip(plain, scales, strict=False)]
    shift = sum(scales[: len(factors)]) * math.log(2)
    depth = len(factors)
    (found,) = product_spectra(factors, [depth])
    (unscaled,) = product_spectra(plain, [depth])
    assert found.shape == (widths[-1], widths[0])
    np.testing.assert_allclose(found.log_values, unscaled.log_values + shift, rtol=0, atol=1e-9)
    (turned,) = product_spectra([f.T for f in factors[::-1]], [0], side="output")
    finite = np.isfinite(found.log_values) & (found.log_values > found.log_norm - 20)
    np.testing.assert_allclose(
        turned.log_values[finite], found.log_values[finite], rtol=0, atol=1e-6
    )


def test_no_layers():
    for side in SIDES:
        (found,) = product_spectra([], side=side, size=3)
        np.testing.assert_array_equal(found.log_values, np.zeros(3))
        assert found.log_condition == 0.0
        assert found.numerical_rank() == 3


BAD = {
    "beyond the end": (
        lambda: product_spectra([np.eye(2)], [2]),
        DomainError,
        "places: expected 0 to 1",
    ),
    "negative": (
        lambda: product_spectra([np.eye(2)], [-1]),
        DomainError,
        "places: expected an integer",
    ),
    "side": (
        lambda: product_spectra([np.eye(2)], side="top"),
        DomainError,
        "side: expected 'input'",
    ),
    "empty": (lambda: product_spectra([]), ShapeError, "factors: expected at least one factor"),
    "tol": (
        lambda: product_spectra([np.eye(2)], rank_tol=1),
        DomainError,
        "rank_tol: expected None",
    ),
    "nan": (lambda: product_spectra([np.full((2, 2), np.nan)]), WeightError, "expected finite"),
    "shapes": (
        lambda: product_spectra([np.eye(2), np.eye(3)]),
        ShapeError,
        r"factors\[1\]: expected 2 columns",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_named(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()
