"""Path sums against the enumeration of subsets and against the product they add up to."""

from itertools import combinations

import numpy as np
import pytest

from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg import (
    Contraction,
    Dense,
    Diagonal,
    Identity,
    Sum,
    end_to_end,
    first_order,
    materialise,
    path_sums,
)


def gaussian(depth, d, seed=0, scale=0.5):
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal((d, d)) for _ in range(depth)]


def enumerated(branches, length):
    total = np.zeros_like(branches[0])
    for chosen in combinations(range(len(branches)), length):
        product = np.eye(len(total))
        for place in chosen:
            product = branches[place] @ product
        total += product
    return total


@pytest.mark.parametrize("depth", range(1, 9))
def test_path_sums_are_sums_over_subsets(depth):
    branches = gaussian(depth, 3, seed=depth)
    sums = path_sums(branches)
    assert len(sums) == depth + 1
    for length, total in enumerate(sums):
        np.testing.assert_allclose(total, enumerated(branches, length), atol=1e-12)


def test_all_path_sums_add_up_to_the_product():
    branches = gaussian(12, 4, scale=0.3)
    product = end_to_end([np.eye(4) + branch for branch in branches]).value()
    np.testing.assert_allclose(sum(path_sums(branches)), product, atol=1e-11)


@pytest.mark.parametrize("longest", range(7))
def test_a_cut_expansion_keeps_the_short_paths(longest):
    branches = gaussian(6, 3)
    kept = path_sums(branches, longest)
    assert len(kept) == longest + 1
    for cut, full in zip(kept, path_sums(branches), strict=False):
        np.testing.assert_allclose(cut, full, atol=1e-12)


def test_scalar_branches_give_binomials():
    sums = path_sums([np.eye(1)] * 10)
    assert [float(total[0, 0]) for total in sums] == [1, 10, 45, 120, 210, 252, 210, 120, 45, 10, 1]


def mixing(seed, n=2, d=3):
    draw = np.random.default_rng(seed).standard_normal
    return Contraction([[(draw((n, n)), "ij"), (draw((d, d)), "rc")]], n, d, d)


def test_operators_give_the_sums_of_their_matrices():
    branches = [mixing(0), Diagonal(np.ones((1, 3)), 2) @ mixing(1), Dense(np.eye(3), 2)]
    dense = [materialise(branch) for branch in branches]
    for lazy, plain in zip(path_sums(branches), path_sums(dense), strict=True):
        np.testing.assert_allclose(lazy, plain, atol=1e-11)


@pytest.mark.parametrize("kind", ["arrays", "operators", "both"])
def test_first_order_is_the_identity_plus_the_branches(kind):
    arrays = gaussian(3, 6)
    operators = [mixing(seed) for seed in range(3)]
    branches = {
        "arrays": arrays,
        "operators": operators,
        "both": [arrays[0], operators[1], arrays[2]],
    }[kind]
    linear = first_order(branches)
    assert isinstance(linear, Sum)
    sums = path_sums(branches, 1)
    np.testing.assert_allclose(materialise(linear), sums[0] + sums[1], atol=1e-12)
    assert linear.tokens == (1 if kind == "arrays" else 2)


def test_no_branches_is_the_identity():
    (only,) = path_sums([], size=2)
    np.testing.assert_array_equal(only, np.eye(2))
    np.testing.assert_array_equal(materialise(first_order([], size=2)), np.eye(2))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: path_sums([]), ShapeError, "branches: expected at least one factor, or size="),
        (lambda: first_order([]), ShapeError, "branches: expected at least one factor, or size="),
        (
            lambda: path_sums([np.ones((2, 3))]),
            ShapeError,
            r"branches\[0\]: expected a square matrix, as I \+ A needs, got shape \(2, 3\)",
        ),
        (
            lambda: path_sums([np.eye(2), np.eye(3)]),
            ShapeError,
            r"branches\[1\]: expected 2 columns",
        ),
        (
            lambda: path_sums([np.eye(2)], 2),
            DomainError,
            "max_length: expected 0 to 1 branches, got 2",
        ),
        (lambda: path_sums([np.eye(2)], -1), DomainError, "max_length: expected an integer >= 0"),
        (
            lambda: path_sums([1e200 * np.eye(1)] * 2),
            DomainError,
            "branches: expected path sums within double precision, got an overflow",
        ),
        (lambda: path_sums([1.0]), UnknownNodeError, r"branches\[0\]: expected an Operator.*float"),
        (
            lambda: first_order([Identity(2, 2), Identity(4, 1)]),
            ShapeError,
            "Sum, operand 2: .*tokens=4",
        ),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
