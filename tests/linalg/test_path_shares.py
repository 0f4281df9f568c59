"""Sums over paths by length and by branch, against the enumeration of every single path."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg import Identity, ScaledMatrix, end_to_end, log_product_remainder_bound
from derive.linalg.contributions import branch_contributions, layers_product
from derive.linalg.path_shares import (
    effective_lengths,
    log_graded_remainder_bound,
    norm_shares,
    overlap,
    path_energies,
)
from derive.linalg.paths import graded_path_sums
from derive.linalg.strong_paths import strongest_paths

SKIP, A, F, BOTH = (), ("A",), ("F",), ("A", "F")


def enumerated(layers):
    """Yield (branches with their layers, matrix) of every path."""
    width = next(iter(layers[0].values())).shape[0]
    for choice in itertools.product(*(layer.items() for layer in layers)):
        matrix = np.eye(width)
        for _, term in choice:
            matrix = term @ matrix
        taken = tuple((k, name) for k, (label, _) in enumerate(choice) for name in label)
        yield taken, matrix


def residual(depth, d, seed=0, scale=0.5):
    """Layers I + A."""
    rng = np.random.default_rng(seed)
    return [{SKIP: np.eye(d), A: scale * rng.normal(size=(d, d))} for _ in range(depth)]


def general(depth, d, seed=0, scale=0.5):
    """Layers of every kind: no identity, two branches in parallel or in series, no skip at all."""
    rng = np.random.default_rng(seed)
    kinds = ([SKIP, A], [SKIP, A, F], [SKIP, A, F, BOTH], [A, F], [A])
    return [
        {label: scale * rng.normal(size=(d, d)) for label in kinds[k % len(kinds)]}
        for k in range(depth)
    ]


CASES = {
    "residual": residual(12, 2),
    "residual, large": residual(9, 3, scale=2.0),
    "general": general(5, 3),
    "one layer": general(1, 2),
    "no skip": [{A: np.array([[2.0, 1.0], [0.0, 1.0]])}] * 3,
}


@pytest.fixture(params=CASES, ids=CASES)
def layers(request):
    return CASES[request.param]


def test_sums_by_length_are_those_of_all_paths(layers):
    by_length = defaultdict(int)
    for taken, matrix in enumerated(layers):
        by_length[len(taken)] = by_length[len(taken)] + matrix
    sums = graded_path_sums(layers)
    whole = layers_product(layers).value()
    scale = np.abs(whole).max()
    for k, found in enumerate(sums):
        np.testing.assert_allclose(found.value(), by_length[k], atol=1e-12 * max(1, scale))
    np.testing.assert_allclose(sum(s.value() for s in sums), whole, atol=1e-12 * max(1, scale))


def test_a_cut_keeps_the_short_lengths(layers):
    full = graded_path_sums(layers)
    for longest in range(len(full)):
        for cut, whole in zip(graded_path_sums(layers, longest), full, strict=False):
            np.testing.assert_allclose(cut.value(), whole.value(), atol=1e-12)


def test_energies_are_those_of_all_paths(layers):
    energies = defaultdict(float)
    for taken, matrix in enumerated(layers):
        energies[len(taken)] += np.sum(matrix**2)
    found = path_energies(layers)
    assert len(found) == max(energies) + 1
    # Sums of positive numbers: rounding only.
    for k, log_energy in enumerate(found):
        assert np.exp(log_energy) == pytest.approx(energies[k], rel=1e-12, abs=0)


def test_overlaps_add_up_to_one_and_reject_a_missing_length(layers):
    sums, whole = graded_path_sums(layers), layers_product(layers)
    shares = [overlap(s, whole) for s in sums]
    dense = sum(matrix for _, matrix in enumerated(layers))
    for share, s in zip(shares, sums, strict=True):
        assert share == pytest.approx(np.sum(s.value() * dense) / np.sum(dense**2), abs=1e-11)
    assert math.fsum(shares) == pytest.approx(1.0, abs=1e-11)
    largest = max(range(len(shares)), key=lambda k: abs(shares[k]))
    if len(shares) > 1:
        assert abs(math.fsum(shares[:largest] + shares[largest + 1 :]) - 1) > 0.05


LABELS = ([SKIP, A], [SKIP, A, F], [SKIP, A, F, BOTH], [A, F], [A], [SKIP], [SKIP, BOTH])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(LABELS), min_size=1, max_size=6),
    st.integers(1, 4),
    st.floats(-3, 3),
    st.integers(0, 2**32 - 1),
)
def test_any_layers_of_any_scale(kinds, d, log_scale, seed):
    """Sums add up to the product, and energies to those of the paths, whatever the terms are."""
    rng = np.random.default_rng(seed)
    scale = 10.0**log_scale
    layers = [{label: scale * rng.normal(size=(d, d)) for label in labels} for labels in kinds]
    sums = graded_path_sums(layers)
    product = end_to_end([sum(layer.values()) for layer in layers])
    # What rounding leaves is relative to the largest summand.
    size = max(s.log_norm() for s in sums)
    total = sum(s.matrix * np.exp(s.log_scale - size) for s in sums)
    expected = product.matrix * np.exp(product.log_scale - size)
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-12)
    energies = defaultdict(float)
    for taken, matrix in enumerated(layers):
        energies[len(taken)] += np.sum(matrix**2)
    for k, log_energy in enumerate(path_energies(layers)):
        assert np.exp(log_energy) == pytest.approx(energies[k], rel=1e-11, abs=0)


def test_norm_shares(layers):
    sums = graded_path_sums(layers)
    norms = np.array([np.linalg.norm(s.value()) for s in sums])
    np.testing.assert_allclose(norm_shares(sums), norms / norms.sum(), atol=1e-13)


def test_effective_lengths_are_expectations_over_all_paths(layers):
    whole = sum(matrix for _, matrix in enumerated(layers))
    square, energy = np.sum(whole**2), sum(np.sum(m**2) for _, m in enumerated(layers))
    by_overlap = sum(len(t) * np.sum(m * whole) for t, m in enumerated(layers)) / square
    by_energy = sum(len(t) * np.sum(m**2) for t, m in enumerated(layers)) / energy
    found = effective_lengths(layers)
    assert found.overlap == pytest.approx(by_overlap, rel=1e-10, abs=1e-10)
    assert found.energy == pytest.approx(by_energy, rel=1e-12)
    assert found.log_energy == pytest.approx(math.log(energy), abs=1e-12)


def test_contributions_are_sums_over_the_paths_through_a_branch(layers):
    whole = sum(matrix for _, matrix in enumerated(layers))
    through = defaultdict(int)
    for taken, matrix in enumerated(layers):
        for step in set(taken):
            through[step] = through[step] + matrix
    found = branch_contributions(layers)
    assert [(c.layer, c.branch) for c in found] == sorted(through)
    for c in found:
        total = through[c.layer, c.branch]
        assert c.log_norm == pytest.approx(math.log(np.linalg.norm(total)), abs=1e-11)
        relative = np.linalg.norm(total) / np.linalg.norm(whole)
        assert c.relative_norm == pytest.approx(relative, rel=1e-11)
        assert c.overlap == pytest.approx(np.sum(total * whole) / np.sum(whole**2), abs=1e-11)
    assert math.fsum(c.overlap for c in found) == pytest.approx(
        effective_lengths(layers).overlap, abs=1e-10
    )


@pytest.mark.parametrize("longest", [0, 1, 2, 3])
def test_strongest_paths_are_those_of_the_enumeration(layers, longest):
    norms = {
        taken: np.linalg.norm(matrix, 2)
        for taken, matrix in enumerated(layers)
        if len(taken) <= longest
    }
    found = strongest_paths(layers, 4, longest, max_candidates=5000)
    expected = sorted(norms.values(), reverse=True)[:4]
    assert found.certified
    assert found.examined <= len(norms)
    np.testing.assert_allclose(np.exp([p.log_norm for p in found.paths]), expected, rtol=1e-11)
    for p in found.paths:
        assert math.exp(p.log_norm) == pytest.approx(norms[p.branches], rel=1e-11)
        assert p.log_norm <= p.log_bound + 1e-12


def test_a_search_that_was_cut_short_says_so_and_bounds_the_rest():
    layers = residual(8, 3, scale=1.0)
    cut = strongest_paths(layers, 3, 3, max_candidates=5)
    assert not cut.certified
    assert cut.examined == 5
    norms = sorted(
        (np.linalg.norm(m, 2) for taken, m in enumerated(layers) if len(taken) <= 3), reverse=True
    )
    best = np.exp(cut.paths[0].log_norm)
    assert best == pytest.approx(norms[0]) or norms[0] <= np.exp(cut.log_rest) * (1 + 1e-12)
    assert norms[6] <= np.exp(cut.log_rest)


def test_best_first_looks_at_few_of_many_paths():
    layers = [{SKIP: np.eye(2), A: np.diag([0.5**k, 0.1])} for k in range(60)]
    found = strongest_paths(layers, 3, 3)
    assert found.certified
    assert found.examined < 30  # of 36,051
    assert [p.branches for p in found.paths[:2]] in (
        [((0, "A"),), ()],
        [(), ((0, "A"),)],
    )


@pytest.mark.parametrize("a", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("depth", [1, 7, 40])
def test_scalar_branches_are_binomial(a, depth):
    layers = [{SKIP: np.eye(2), A: a * np.eye(2)}] * depth
    sums = graded_path_sums(layers)
    expected = [math.log(math.comb(depth, k)) + k * math.log(a) for k in range(depth + 1)]
    np.testing.assert_allclose([s.log_norm() for s in sums], expected, atol=1e-11)
    # Under both weights k is binomial: of p = a/(1+a), and of p = a^2/(1+a^2) for the squares.
    found = effective_lengths(layers)
    assert found.overlap == pytest.approx(depth * a / (1 + a), rel=1e-12)
    assert found.energy == pytest.approx(depth * a**2 / (1 + a**2), rel=1e-12)


def test_a_thousand_layers_neither_overflow_nor_underflow():
    depth, a = 1000, 1.3
    layers = [{SKIP: Identity(1, 2), A: a * np.eye(2)}] * depth
    sums = graded_path_sums(layers)
    log_binomial = [
        math.lgamma(depth + 1) - math.lgamma(k + 1) - math.lgamma(depth - k + 1)
        for k in range(depth + 1)
    ]
    expected = np.array(log_binomial) + np.arange(depth + 1) * math.log(a)
    found = np.array([s.log_norm() for s in sums])
    assert found.max() > 800  # exp(800) is no double
    # lgamma at 1000 is right to 1e-12; a thousand roundings in the recurrence.
    np.testing.assert_allclose(found, expected, atol=1e-11)
    whole = layers_product(layers)
    assert math.fsum(overlap(s, whole) for s in sums) == pytest.approx(1.0, abs=1e-11)
    energies = path_energies(layers, 3)
    np.testing.assert_allclose(
        energies, [math.log(2) + log_binomial[k] + 2 * k * math.log(a) for k in range(4)]
    )
    tiny = graded_path_sums([{SKIP: 1e-200 * np.eye(2), A: 1e-300 * np.eye(2)}] * depth, 1)
    assert tiny[1].log_norm() == pytest.approx(
        math.log(1000) + (999 * -200 - 300) * math.log(10), rel=1e-12
    )


def test_the_graded_bound_is_that_of_plain_layers_and_holds_for_others(layers):
    sums = graded_path_sums(layers)
    for k in range(len(sums)):
        left_out = sum((s.value() for s in sums[k + 1 :]), np.zeros(sums[0].shape))
        size, bound = np.linalg.norm(left_out, 2), log_graded_remainder_bound(layers, k)
        assert size <= np.exp(bound) * (1 + 1e-12)
    assert log_graded_remainder_bound(layers, len(sums) - 1) == -math.inf


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1e-3, 5.0), max_size=8), st.integers(0, 8))
def test_the_graded_bound_agrees_with_the_one_of_residual_layers(norms, order):
    layers = [{SKIP: 1.0, A: a} for a in norms]
    expected = log_product_remainder_bound(norms, order)
    assert log_graded_remainder_bound(layers, order) == pytest.approx(expected, abs=1e-12)


def test_the_graded_bound_is_reached_by_scalars_and_not_below_them():
    layers = [{SKIP: 2 * np.eye(1), A: np.eye(1), BOTH: 3 * np.eye(1)}] * 4
    sums = [s.value()[0, 0] for s in graded_path_sums(layers)]
    for k in range(len(sums) - 1):
        expected = math.log(sum(sums[k + 1 :]))
        assert log_graded_remainder_bound(layers, k) == pytest.approx(expected, abs=1e-12)


def test_zero_branches_have_no_share():
    layers = [{SKIP: np.eye(2), A: np.zeros((2, 2))}] * 3
    sums = graded_path_sums(layers)
    assert [s.log_norm() for s in sums] == [0, -math.inf, -math.inf, -math.inf]
    assert [overlap(s, layers_product(layers)) for s in sums] == [1, 0, 0, 0]
    assert effective_lengths(layers).energy == 0.0
    assert [p.branches for p in strongest_paths(layers).paths] == [()]


def test_a_zero_product_has_no_shares():
    layers = [{A: np.zeros((2, 2))}] * 2
    sums, whole = graded_path_sums(layers), layers_product(layers)
    assert math.isnan(overlap(sums[2], whole))
    assert np.isnan(norm_shares(sums)).all()
    assert math.isnan(effective_lengths(layers).energy)
    assert strongest_paths(layers).paths == ()


def test_no_layers_are_the_identity():
    (only,) = graded_path_sums([], size=3)
    np.testing.assert_array_equal(only.value(), np.eye(3))
    assert effective_lengths([], size=3).overlap == 0.0
    assert branch_contributions([], size=3) == []
    assert [p.log_norm for p in strongest_paths([], size=3).paths] == [0.0]


MISTAKES = {
    "length": (
        lambda: graded_path_sums(residual(2, 2), 3),
        DomainError,
        "max_length: expected 0 to 2",
    ),
    "energy length": (
        lambda: path_energies(residual(2, 2), 3),
        DomainError,
        "max_length: expected 0 to 2",
    ),
    "memory": (
        lambda: graded_path_sums([{SKIP: Identity(1, 3000), A: Identity(1, 3000)}] * 100),
        DomainError,
        "within 1 GiB",
    ),
    "prefixes": (
        lambda: branch_contributions([{SKIP: Identity(1, 3000), A: Identity(1, 3000)}] * 100),
        DomainError,
        "101 prefixes of shape .* within 4 GiB",
    ),
    "empty": (lambda: graded_path_sums([]), ShapeError, "at least one factor, or size="),
    "no term": (lambda: graded_path_sums([{}]), ShapeError, r"layers\[0\]: expected at least one"),
    "not square": (
        lambda: graded_path_sums([{SKIP: np.ones((2, 3))}]),
        ShapeError,
        r"layers\[0\]\[\(\)\]: expected shape",
    ),
    "sizes": (
        lambda: graded_path_sums([{SKIP: np.eye(2)}, {SKIP: np.eye(3)}]),
        ShapeError,
        r"layers\[1\]\[\(\)\]: expected shape \(2, 2\)",
    ),
    "label": (
        lambda: graded_path_sums([{"F": np.eye(2)}]),
        UnknownNodeError,
        "labels that are tuples",
    ),
    "mapping": (lambda: graded_path_sums([np.eye(2)]), UnknownNodeError, "expected a mapping"),
    "one layer": (lambda: graded_path_sums({SKIP: np.eye(2)}), UnknownNodeError, "expected a list"),
    "overflow": (
        lambda: graded_path_sums([{A: np.full((9, 9), 1e308)}] * 2),
        DomainError,
        "overflow within one layer",
    ),
    "overlap": (
        lambda: overlap(ScaledMatrix(np.eye(2)), ScaledMatrix(np.eye(3))),
        ShapeError,
        "part: expected shape",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_named(case):
    call, error, message = MISTAKES[case]
    with pytest.raises(error, match=message):
        call()
