"""Lyapunov exponents against closed forms, multiprecision products and plain NumPy."""

import math
import tracemalloc

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import polygamma, psi

from derive.errors import DomainError, ShapeError, UnknownNodeError, WeightError
from derive.linalg import (
    Chain,
    DeflatedFactor,
    Dense,
    Diagonal,
    Identity,
    LyapunovSpectrum,
    kaplan_yorke_dimension,
    lyapunov_spectrum,
    materialise,
)

NEG_INF = -math.inf


def gaussian(d, count, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((d, d)) for _ in range(count))


def newman(d):
    """Exponents of products of real Gaussian matrices (Newman 1986), and the variance per factor.

    The i-th diagonal entry of R is a chi variable with d - i + 1 degrees of freedom.
    """
    half = (d - np.arange(d)) / 2
    return 0.5 * (math.log(2) + psi(half)), 0.25 * polygamma(1, half)


def every_layer(factors, d):
    """The textbook loop: QR after every factor, from the frame that the library starts with."""
    frame = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    logs, count = np.zeros(d), 0
    for factor in factors:
        frame, triangle = np.linalg.qr(factor @ frame)
        logs += np.log(np.abs(np.diag(triangle)))
        count += 1
    return np.sort(logs / count)[::-1]


def exact_diagonal(factors, columns, digits=60):
    """log|R_ii| of the product times the library's first frame, in multiprecision."""
    d = factors[0].shape[0]
    frame = np.linalg.qr(np.random.default_rng(0).normal(size=(d, columns)))[0]
    with mp.workdps(digits + 40 * len(factors)):
        image = mp.matrix(frame.tolist())
        for factor in factors:
            image = mp.matrix(factor.tolist()) * image
        basis, logs = [], []
        for k in range(columns):
            column = image[:, k]
            for one in basis:
                column -= (one.T * column)[0] * one
            norm = mp.norm(column)
            basis.append(column / norm)
            logs.append(float(mp.log(norm)))
    return np.array(logs)


# -- closed forms


@pytest.mark.parametrize("d", [1, 2, 5])
def test_gaussian_factors_have_newmans_exponents(d):
    found = lyapunov_spectrum(gaussian(d, 4000), transient=50, batch=100)
    expected, variance = newman(d)
    assert np.all(np.abs(found.exponents - expected) < 4 * found.stderr)
    # The error bars are those of the exact variance, within what 39 batches leave open.
    np.testing.assert_allclose(found.stderr, np.sqrt(variance / 3950), rtol=0.5)
    assert found.sum == pytest.approx(found.exponents.sum())
    wrong = 0.5 * (math.log(2) + psi((d - np.arange(d) + 1) / 2))  # one degree of freedom too many
    assert np.any(np.abs(found.exponents - wrong) > 8 * found.stderr)


def test_the_interval_covers_as_often_as_it_says():
    """50 independent runs: 95 % intervals miss 2.5 times on average, more than 8 with p < 0.001."""
    expected = newman(3)[0]
    missed = np.zeros(3)
    for seed in range(50):
        found = lyapunov_spectrum(gaussian(3, 300, seed + 1), batch=15)
        low, high = found.interval(0.95)
        missed += (expected < low) | (expected > high)
    assert missed.max() <= 8
    assert missed.sum() >= 1  # nor are they much too wide


def test_independent_diagonals_and_triangles():
    """Exponents are the means of the logarithms of the diagonal, whatever stands above it."""
    rng = np.random.default_rng(3)
    scales = np.array([2.0, 0.7, 0.1])
    logs = np.log(scales) + 0.1 * rng.standard_normal((3000, 3))
    upper = [np.diag(np.exp(row)) + 0.3 * np.triu(rng.standard_normal((3, 3)), 1) for row in logs]
    for factors in (upper, [m.T for m in upper], [np.diag(np.exp(row)) for row in logs]):
        found = lyapunov_spectrum(factors, transient=200, batch=100)
        # The frame is off by at most its condition, spread over 2800 factors.
        np.testing.assert_allclose(found.exponents, logs[200:].mean(axis=0), atol=5 / 2800)


def test_constant_factor_gives_the_logarithms_of_its_eigenvalues():
    rng = np.random.default_rng(5)
    frame = np.eye(4) + 0.3 * rng.standard_normal((4, 4))
    matrix = frame @ np.diag([3.0, 1.1, 0.5, 1e-3]) @ np.linalg.inv(frame)
    found = lyapunov_spectrum([matrix] * 600, transient=200)
    np.testing.assert_allclose(found.exponents, np.log([3.0, 1.1, 0.5, 1e-3]), atol=1e-10)
    assert np.all(found.stderr < 1e-12)


def test_symmetric_sums():
    """The sum of the exponents is the mean of log|det|, in every run and not only in the limit."""
    factors = list(gaussian(4, 90))
    found = lyapunov_spectrum(factors, batch=7)
    expected = np.mean([np.linalg.slogdet(m)[1] for m in factors])
    assert found.sum == pytest.approx(expected, abs=1e-12)
    assert found.finite_sum == found.sum
    assert len(found.batch_means) == 12
    assert found.layers == 90


# -- against multiprecision


@pytest.mark.parametrize("d", [2, 3, 4])
def test_diagonal_of_r_against_multiprecision(d):
    factors = list(gaussian(d, 40))
    found = lyapunov_spectrum(factors, batch=40)
    expected = np.sort(exact_diagonal(factors, d))[::-1]
    np.testing.assert_allclose(found.exponents * 40, expected, atol=1e-9)


def test_singular_values_of_a_product_within_one_over_l():
    """|log sigma_i - log|R_ii|| stays bounded: it is a matter of the frame, not of L."""
    factors = list(gaussian(3, 400))
    with mp.workdps(500):
        product = mp.eye(3)
        for factor in factors:
            product = mp.matrix(factor.tolist()) * product
        values = [float(mp.log(v)) for v in mp.svd_r(product, compute_uv=False)]
    found = lyapunov_spectrum(factors, batch=40)
    np.testing.assert_allclose(found.exponents, np.array(values) / 400, atol=5 / 400)
    assert found.sum == pytest.approx(sum(values) / 400, abs=1e-11)


@pytest.mark.parametrize("small", [1e-5, 1e-12, 1e-30])
def test_weak_direction_known_apart(small):
    """A left direction contracted by far less than a rounding error of the factor's entries."""
    rng = np.random.default_rng(7)
    layers, exact = [], []
    for _ in range(12):
        body, row = rng.standard_normal((3, 4)), rng.standard_normal(4)
        rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        with mp.workdps(80):
            whole = mp.matrix(np.vstack([body, row]).tolist())
            whole[3, :] *= mp.mpf(small)
            exact.append(mp.matrix(rotation.tolist()) * whole)
        factor = np.array(exact[-1].tolist(), dtype=float)
        # rotation is orthogonal to rounding only: w'J = row needs w with w'rotation = e_4
        w = np.linalg.solve(rotation.T, np.eye(4)[3])
        layers.append(DeflatedFactor(factor, None, 2 * w[None, :, None], (2 * small * row[None],)))
    found = lyapunov_spectrum(layers, batch=12)
    frame = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    with mp.workdps(600):
        product = mp.matrix(frame.tolist())
        for factor in exact:
            product = factor * product
        log_det = float(mp.log(abs(mp.det(product)))) / 12
    assert found.sum == pytest.approx(log_det, abs=1e-10)
    if small < 1e-16:  # rounding errors of the entries alone would say about -36
        plain = lyapunov_spectrum([layer.factor for layer in layers], batch=12)
        assert plain.exponents[3] == NEG_INF
        assert found.exponents[3] < -60


# -- null directions


def projection(d):
    return np.eye(d) - np.ones((d, d)) / d


def test_exact_null_direction_is_minus_infinity():
    def layers(deflated):
        for matrix in gaussian(5, 300, seed=2):
            factor = projection(5) @ matrix
            yield DeflatedFactor(factor, np.ones((1, 5, 1))) if deflated else factor

    for deflated in (True, False):
        found = lyapunov_spectrum(layers(deflated), batch=20)
        assert found.exponents[-1] == NEG_INF
        assert found.stderr[-1] == 0
        assert found.null_directions == 1
        assert np.all(np.isfinite(found.exponents[:-1]))
        assert found.sum == NEG_INF
        # Within the image the factors are Gaussian matrices of dimension 4.
        assert np.all(np.abs(found.exponents[:-1] - newman(4)[0]) < 5 * found.stderr[:-1])


def test_a_direction_is_not_taken_for_null():
    factors = [np.diag([1.0, 1e-6]) @ m for m in gaussian(2, 200)]
    found = lyapunov_spectrum(factors)
    assert found.null_directions == 0
    np.testing.assert_allclose(found.exponents, every_layer(factors, 2), atol=1e-8)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_rank_of_ordinary_factors(rank):
    rng = np.random.default_rng(4)
    factors = [rng.standard_normal((4, rank)) @ rng.standard_normal((rank, 4)) for _ in range(50)]
    found = lyapunov_spectrum(factors, batch=10)
    assert found.null_directions == 4 - rank
    assert np.all(np.isneginf(found.exponents[rank:]))
    if rank:
        # prod of u_l v_l' has the core v_l' u_{l-1}: the sum is the mean of its log|det|
        assert np.all(np.isfinite(found.exponents[:rank]))


def test_nullity_without_vectors():
    """Right null vectors only: the frame has fewer columns, and nothing is projected."""
    factors = [DeflatedFactor(m @ projection(4), nullity=1) for m in gaussian(4, 60)]
    found = lyapunov_spectrum(factors, batch=10)
    assert found.null_directions == 1
    plain = lyapunov_spectrum([f.factor for f in factors], batch=10)
    assert plain.null_directions == 1
    assert found.sum == plain.sum == NEG_INF


def test_tokens_apart_are_as_one_matrix():
    """Factors that act on each token alone: the union of the tokens' exponents."""
    rng = np.random.default_rng(8)
    gains = [rng.uniform(0.5, 2.0, size=(3, 4)) for _ in range(200)]
    blocks = [rng.standard_normal((3, 4, 4)) for _ in range(200)]
    ops = [
        Chain(Diagonal(g, 3), Dense(projection(4), 3), Dense(b, 3))
        for g, b in zip(gains, blocks, strict=True)
    ]
    deflated = [DeflatedFactor(op, (1 / g)[:, :, None]) for op, g in zip(ops, gains, strict=True)]
    found = lyapunov_spectrum(deflated, transient=100, batch=20)
    assert found.null_directions == 3
    assert found.size == 12
    each = [
        lyapunov_spectrum(
            [materialise(op)[4 * k : 4 * k + 4, 4 * k : 4 * k + 4] for op in ops],
            transient=100,
            batch=20,
        )
        for k in range(3)
    ]
    expected = np.sort(np.concatenate([one.exponents for one in each]))[::-1]
    # The frames start elsewhere: a transient apart, the numbers are the same.
    np.testing.assert_allclose(found.exponents, expected, atol=0.02)
    whole = lyapunov_spectrum([materialise(op) for op in ops], transient=100, batch=20)
    assert whole.null_directions == 3
    np.testing.assert_allclose(whole.finite_sum, found.finite_sum, atol=0.02)


# -- blocks of factors


def test_adaptive_blocks_give_what_every_factor_gives():
    factors = [np.eye(6) + 0.05 * m for m in gaussian(6, 500)]
    adaptive = lyapunov_spectrum(factors, batch=100)
    each = lyapunov_spectrum(factors, batch=100, every=1)
    assert each.factorisations == 500
    assert adaptive.factorisations < 60
    np.testing.assert_allclose(adaptive.exponents, each.exponents, atol=1e-9)
    np.testing.assert_allclose(each.exponents, every_layer(factors, 6), atol=1e-13)
    assert lyapunov_spectrum(factors, batch=100, every=5).factorisations == 100


def test_blocks_are_halved_when_the_condition_number_jumps():
    """Long blocks are earned by calm factors; then each factor loses five digits."""
    rng = np.random.default_rng(6)
    calm = [np.eye(3)] * 200
    wild = [
        np.linalg.qr(rng.standard_normal((3, 3)))[0] @ np.diag([1, 1e-3, 1e-5]) for _ in range(100)
    ]
    found = lyapunov_spectrum(calm + wild, batch=300)
    expected = exact_diagonal(wild, 3) / 300
    np.testing.assert_allclose(found.exponents, np.sort(expected)[::-1], atol=1e-7)
    assert found.factorisations > 100
    unchecked = lyapunov_spectrum(calm + wild, batch=300, every=50)
    assert not np.allclose(unchecked.exponents, np.sort(expected)[::-1], atol=1e-2)


@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e-300])
def test_neither_overflow_nor_underflow(scale):
    factors = [scale * m for m in gaussian(3, 200)]
    found = lyapunov_spectrum(factors, batch=20)
    plain = lyapunov_spectrum(gaussian(3, 200), batch=20)
    np.testing.assert_allclose(found.exponents, plain.exponents + math.log(scale), atol=1e-11)


def test_leading_exponents_only():
    operators = [Dense(m, 1) for m in gaussian(20, 100)]
    every = lyapunov_spectrum(operators, transient=20, batch=10)
    for count in (1, 2, 7):  # 1 and 2 columns are applied to, 7 multiplied
        found = lyapunov_spectrum(operators, transient=20, batch=10, count=count)
        assert len(found.exponents) == count
        assert not found.complete
        assert math.isnan(found.sum)
        assert math.isnan(found.finite_sum_stderr)
        assert math.isnan(found.finite_sum)
        assert math.isnan(found.kaplan_yorke)
        np.testing.assert_allclose(found.exponents, every.exponents[:count], atol=0.05)
    assert lyapunov_spectrum(operators, count=99).complete
    shrinking = lyapunov_spectrum([0.01 * m for m in gaussian(20, 100)], count=2)
    assert shrinking.kaplan_yorke == 0


def test_no_factor_is_kept():
    tracemalloc.start()
    lyapunov_spectrum(gaussian(30, 500), batch=10**6, every=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500 * 30 * 30 * 8 / 5  # all factors together are five times that


@given(
    d=st.integers(1, 5),
    count=st.integers(1, 12),
    batch=st.integers(1, 5),
    seed=st.integers(0, 99),
    log_scale=st.floats(-30, 30),
)
@settings(max_examples=40, deadline=None)
def test_scaling_the_factors_shifts_the_exponents(d, count, batch, seed, log_scale):
    factors = list(gaussian(d, count, seed))
    plain = lyapunov_spectrum(factors, batch=batch)
    scaled = lyapunov_spectrum([math.exp(log_scale) * m for m in factors], batch=batch)
    np.testing.assert_allclose(
        scaled.exponents, plain.exponents + log_scale, atol=1e-7 * (1 + abs(log_scale))
    )
    assert len(plain.batch_means) == count // batch
    layers, estimates = plain.running()
    if count % batch == 0:
        np.testing.assert_allclose(estimates[-1], plain.exponents, atol=1e-12)
        assert layers[-1] == count


# -- what a spectrum says


def spectrum(batch_means, exponents=None):
    means = np.asarray(batch_means, dtype=float)
    values = means.mean(axis=0) if exponents is None else np.asarray(exponents, dtype=float)
    return LyapunovSpectrum(values, means, 10 * len(means), 0, 10, means.shape[1], 1)


def test_standard_errors_by_hand():
    found = spectrum([[1.0, NEG_INF], [2.0, NEG_INF], [6.0, NEG_INF]])
    assert found.stderr[0] == pytest.approx(math.sqrt((4 + 1 + 9) / (3 * 2)))
    assert found.stderr[1] == 0
    low, high = found.interval(0.95)
    assert (high[0] - low[0]) / 2 == pytest.approx(4.302652729911275 * found.stderr[0])  # t(2)
    assert (low[1], high[1]) == (NEG_INF, NEG_INF)
    assert found.finite_sum_stderr == pytest.approx(found.stderr[0])


def test_one_batch_has_no_error_bar():
    found = spectrum([[1.0, NEG_INF]])
    assert math.isnan(found.stderr[0])
    assert all(math.isnan(bound[0]) for bound in found.interval())
    assert np.isnan(found.drift).all()


def test_drift_is_seen_and_noise_is_not():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((40, 1))
    assert abs(spectrum(noise).drift[0]) < 3
    assert spectrum(noise + np.linspace(0, 10, 40)[:, None]).drift[0] > 6
    assert spectrum(noise - np.linspace(0, 10, 40)[:, None]).drift[0] < -6
    # A strict trend of five has tau = 1: z = 1 / sqrt(2 * 15 / (9 * 20)).
    assert spectrum(np.arange(5.0)[:, None] ** 3).drift[0] == pytest.approx(math.sqrt(6))
    assert np.all(spectrum([[1.0, NEG_INF]] * 8).drift == 0)


@pytest.mark.parametrize(
    ("exponents", "dimension"),
    [
        ([0.9056, 0.0, -14.5723], 2 + 0.9056 / 14.5723),  # Lorenz (Sprott 2003)
        ([0.42, -1.62], 1 + 0.42 / 1.62),
        ([-1.62, 0.42], 1 + 0.42 / 1.62),
        ([1.0, 0.5, -0.1], 3.0),
        ([2.0, 1.0], 2.0),
        ([-0.1, -2.0], 0.0),
        ([0.0, -1.0], 1.0),
        ([0.5, NEG_INF], 1.0),
        ([NEG_INF, NEG_INF], 0.0),
        ([1.0, -1.0, NEG_INF], 2.0),
    ],
)
def test_kaplan_yorke_dimension(exponents, dimension):
    assert kaplan_yorke_dimension(exponents) == pytest.approx(dimension, abs=1e-12)


# -- refusals


@pytest.mark.parametrize(
    ("factors", "options", "error", "message"),
    [
        ([], {}, DomainError, "more than transient = 0, got 0"),
        ([np.eye(2)] * 3, {"transient": 3}, DomainError, "more than transient = 3, got 3"),
        ([np.ones((2, 3))], {}, ShapeError, r"factors\[0\]: expected a square matrix"),
        ([np.eye(2), np.eye(3)], {}, ShapeError, r"factors\[1\]: expected the size 2"),
        ([np.eye(2), np.full((2, 2), np.nan)], {}, WeightError, r"factors\[1\]"),
        ([[[1.0]]], {}, UnknownNodeError, r"factors\[0\]"),
        (np.eye(2), {}, UnknownNodeError, "expected an iterable of factors"),
        (Identity(1, 2), {}, UnknownNodeError, "expected an iterable of factors"),
        ([np.eye(2)], {"batch": 0}, DomainError, "batch"),
        ([np.eye(2)], {"transient": -1}, DomainError, "transient"),
        ([np.eye(2)], {"count": 0}, DomainError, "count"),
        ([np.eye(2)], {"every": 1.5}, DomainError, "every"),
        ([np.eye(2)], {"max_condition": 1.0}, DomainError, "max_condition"),
        ([np.eye(2)], {"rank_tol": 1.0}, DomainError, "rank_tol"),
        ([np.eye(2) * 1e300, np.eye(2) * 1e300], {}, None, ""),
        (
            [Identity(2, 2), Chain(Dense(np.eye(4), 1))],
            {},
            ShapeError,
            r"factors\[1\]: expected a factor that acts on each of 2 tokens alone",
        ),
    ],
)
def test_refusals(factors, options, error, message):
    if error is None:
        assert np.all(np.isfinite(lyapunov_spectrum(factors, **options).exponents))
        return
    with pytest.raises(error, match=message):
        lyapunov_spectrum(factors, **options)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.ones((2, 3)),), ShapeError, "square"),
        ((np.eye(2), np.ones((2, 2))), ShapeError, "null: expected an array with 3 axes"),
        ((np.eye(2), np.ones((2, 2, 1))), ShapeError, r"null: expected shape \(1, 2, directions\)"),
        (
            (np.eye(2), None, np.ones((1, 2, 1))),
            ShapeError,
            "weak_rows: expected one for each of 1",
        ),
        (
            (np.eye(2), None, np.ones((1, 2, 1)), (np.ones((1, 3)),)),
            ShapeError,
            r"weak_rows\[0\]: expected shape \(1, 2\)",
        ),
        ((np.eye(2), None, None, (), 3), DomainError, "nullity: expected at most 2"),
        ((np.eye(2), np.ones((1, 2, 1)), None, (), 0), DomainError, "nullity"),
    ],
)
def test_deflated_factor_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        DeflatedFactor(*arguments)


@pytest.mark.parametrize(
    ("exponents", "error"),
    [([], ShapeError), ([[1.0]], ShapeError), ([np.nan], DomainError), ([np.inf], DomainError)],
)
def test_kaplan_yorke_refuses(exponents, error):
    with pytest.raises(error, match="exponents"):
        kaplan_yorke_dimension(exponents)


def test_bad_confidence_and_points():
    found = spectrum([[1.0], [2.0]])
    with pytest.raises(DomainError, match="confidence"):
        found.interval(1.0)
    with pytest.raises(DomainError, match="points"):
        found.running(0)
