"""Ordered exponential and Magnus series: exact cases, commutators, mpmath, and true bounds."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.errors import DomainError, WeightError
from derive.linalg import Identity
from derive.linalg.continuum import log_continuum_bound, magnus, ordered_exponential, refinements


def gaussian(depth, d, scale, seed=0):
    rng = np.random.default_rng(seed)
    return [scale * rng.normal(size=(d, d)) / d**0.5 for _ in range(depth)]


def commutator(a, b):
    return a @ b - b @ a


def test_ordered_exponential_is_the_product_in_mpmath():
    branches = gaussian(6, 3, 1.0)
    with mpmath.workdps(40):
        exact = mpmath.eye(3)
        for a in branches:
            exact = mpmath.expm(mpmath.matrix(a.tolist())) * exact
        expected = np.array(exact.tolist(), dtype=float)
    found = ordered_exponential(branches).value()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * np.abs(expected).max())
    backwards = ordered_exponential(branches[::-1]).value()
    assert np.abs(backwards - expected).max() > 0.1 * np.abs(expected).max()


def test_first_terms_are_the_nested_commutators():
    branches = gaussian(5, 4, 0.5)
    found = magnus(branches, 2).terms
    np.testing.assert_allclose(found[0], sum(branches), atol=1e-14)
    second = sum(
        commutator(branches[later], branches[k]) / 2 for later in range(5) for k in range(later)
    )
    np.testing.assert_allclose(found[1], second, atol=1e-14)
    assert np.abs(found[1] + second).max() > 0.1  # the other order of the layers


def test_two_layers_give_baker_campbell_hausdorff():
    y, x = gaussian(2, 4, 0.7)  # exp(x) exp(y): y acts first
    terms = magnus([y, x], 4).terms
    third = (commutator(x, commutator(x, y)) + commutator(y, commutator(y, x))) / 12
    fourth = -commutator(y, commutator(x, commutator(x, y))) / 24
    np.testing.assert_allclose(terms[2], third, atol=1e-14)
    np.testing.assert_allclose(terms[3], fourth, atol=1e-14)


def test_third_term_is_the_double_integral_of_commutators():
    """Omega_3 = 1/6 int ([a1,[a2,a3]] + [a3,[a2,a1]]) over t1 > t2 > t3, layer by layer."""
    branches = gaussian(3, 3, 0.6)
    total = np.zeros((3, 3))
    for i in range(3):
        for j in range(i + 1):
            for k in range(j + 1):
                # volume of the ordered cell: 1 over the factorials of how often a layer repeats
                counts = [(i, j, k).count(layer) for layer in {i, j, k}]
                volume = 1 / math.prod(map(math.factorial, counts))
                a, b, c = branches[i], branches[j], branches[k]
                nested = commutator(a, commutator(b, c)) + commutator(c, commutator(b, a))
                total += volume * nested / 6
    np.testing.assert_allclose(magnus(branches, 3).terms[2], total, atol=1e-14)


def test_commuting_branches_need_one_term():
    base = gaussian(1, 4, 1.0)[0]
    found = magnus([c * base for c in (0.3, -0.2, 0.5, 0.1)], 4)
    # powers of norms about 2 cancel to zero: some machine epsilons
    assert max(found.norms[1:]) < 1e-14
    assert found.errors[0] < 1e-14


def test_nilpotent_branches_end_the_series():
    """Strictly upper triangular 3 x 3: commutators of two are the corner, of three nothing."""
    rng = np.random.default_rng(0)
    branches = [np.triu(rng.normal(size=(3, 3)), 1) for _ in range(6)]
    found = magnus(branches, 5)
    assert found.errors[0] > 1e-3
    assert found.errors[1] < 1e-15
    assert max(found.norms[2:]) < 1e-14
    assert found.norms[1] > 0.1


def test_the_series_converges_where_the_action_is_below_pi():
    small = magnus(gaussian(8, 5, 0.15), 8)
    assert small.converges
    assert small.action < math.pi
    assert all(b < a for a, b in itertools.pairwise(small.errors))
    assert small.errors[-1] < 1e-4
    large = magnus(gaussian(8, 5, 1.5), 8)
    assert not large.converges
    assert large.errors[-1] > 1e-2


def test_known_case_where_the_series_diverges():
    """Two rotations by more than pi in different planes: no logarithm near the origin is found."""
    turn = np.array([[0, -1.0, 0], [1, 0, 0], [0, 0, 0]])
    other = turn[[2, 0, 1]][:, [2, 0, 1]]
    found = magnus([3.5 * turn, 3.5 * other], 8)
    assert found.action == pytest.approx(7.0)
    assert not found.converges
    assert min(found.errors) > 0.05


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.floats(1e-4, 2.0),
    st.integers(1, 5),
    st.integers(0, 99),
)
def test_the_bound_on_the_continuum_error_holds(depth, d, scale, parts, seed):
    branches = gaussian(depth, d, scale, seed)
    (found,) = refinements(branches, [parts])
    product, exact = np.eye(d), np.eye(d)
    for a in branches:
        product = np.linalg.matrix_power(np.eye(d) + a / parts, parts) @ product
        values, vectors = np.linalg.eig(a)
        exact = (vectors * np.exp(values)) @ np.linalg.inv(vectors) @ exact
    error = np.linalg.norm(product - exact, 2)
    size = np.linalg.norm(exact, 2)
    assert math.exp(found.log_error) == pytest.approx(error, rel=1e-6, abs=1e-9 * size)
    # rounding of products of this size
    assert math.exp(found.log_error) <= math.exp(found.log_bound) + 1e-14 * size


@pytest.mark.parametrize("norm", [1e-12, 1e-6, 1e-3, 0.04, 0.06, 1.0, 30.0])
def test_the_bound_has_no_cancellation(norm):
    with mpmath.workdps(60):
        a = mpmath.mpf(norm)
        expected = mpmath.log(mpmath.exp(3 * a) - (1 + a) ** 3)
        refined = mpmath.log(mpmath.exp(3 * a) - (1 + a / 4) ** 12)
    assert log_continuum_bound([norm] * 3) == pytest.approx(float(expected), rel=1e-13, abs=1e-13)
    assert log_continuum_bound([norm] * 3, 4) == pytest.approx(float(refined), rel=1e-13, abs=1e-13)


def test_the_bound_is_reached_by_scalars():
    (found,) = refinements([0.3 * np.eye(2)] * 10, [1])
    assert found.log_error == pytest.approx(found.log_bound, abs=1e-12)
    assert found.log_error == pytest.approx(math.log(math.exp(3.0) - 1.3**10), abs=1e-12)


def test_thinner_layers_approach_the_limit_at_first_order():
    errors = [r.relative_error for r in refinements(gaussian(5, 4, 0.4), [8, 16, 32, 64])]
    ratios = [a / b for a, b in itertools.pairwise(errors)]
    assert all(1.9 < ratio < 2.1 for ratio in ratios)


def test_operators_and_depth_of_a_thousand():
    found = ordered_exponential([Identity(1, 2)] * 1000)
    assert found.log_norm() == pytest.approx(1000.0)
    (one,) = refinements([np.eye(2)] * 1000, [1])
    assert one.log_error == pytest.approx(1000.0)
    assert one.relative_error == pytest.approx(1.0)
    assert one.log_bound == pytest.approx(1000.0)


def test_no_layers():
    assert ordered_exponential([], size=2).log_norm() == 0.0
    found = magnus([], 2, size=2)
    assert (found.action, found.converges, found.errors) == (0.0, True, [0.0, 0.0])
    assert log_continuum_bound([]) == -math.inf
    assert log_continuum_bound([0.0, 0.0]) == -math.inf


MISTAKES = {
    "order 0": (lambda: magnus([np.eye(2)], 0), DomainError, "order: expected an integer >= 1"),
    "order 13": (lambda: magnus([np.eye(2)], 13), DomainError, "order: expected 1 to 12"),
    "overflow": (lambda: ordered_exponential([1e4 * np.eye(2)]), DomainError, "overflow of exp"),
    "negative": (lambda: log_continuum_bound([-1.0]), DomainError, "norms: expected numbers >= 0"),
    "nan": (lambda: log_continuum_bound([math.nan]), WeightError, "norms: expected finite"),
    "parts": (lambda: refinements([np.eye(2)], [0]), DomainError, "parts: expected an integer"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_named(case):
    call, error, message = MISTAKES[case]
    with pytest.raises(error, match=message):
        call()
