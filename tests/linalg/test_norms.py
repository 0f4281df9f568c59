"""The spectral norm: exact where it can be, and never below the truth."""

import sys

import numpy as np
import pytest

from derive.errors import ShapeError, UnknownNodeError, WeightError
from derive.linalg import Contraction, Dense, LowRank, materialise, spectral_norm


def test_arrays_and_operators_have_their_largest_singular_value():
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((5, 3))
    mixing = Contraction([[(rng.standard_normal((2, 2)), "ij"), (matrix, "rc")]], 2, 5, 3)
    for op in (matrix, Dense(matrix, 4), mixing):
        expected = np.linalg.svd(materialise(op), compute_uv=False)[0]
        assert spectral_norm(op) == pytest.approx(expected, rel=1e-13)


def test_a_tokenwise_norm_is_the_largest_of_its_tokens():
    rng = np.random.default_rng(0)
    op = LowRank(rng.standard_normal((4, 3, 1)), rng.standard_normal((4, 3, 1)), 4)
    expected = max(np.linalg.norm(op.left[i]) * np.linalg.norm(op.right[i]) for i in range(4))
    assert spectral_norm(op) == pytest.approx(expected, rel=1e-13)


def test_a_tokenwise_norm_forms_no_sequence_matrix():
    # As a matrix it would take 51 GB.
    assert spectral_norm(Dense(2.3 * np.eye(40), 2000)) == pytest.approx(2.3, rel=1e-14)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_extreme_sizes(size):
    matrix = size * np.array([[3.0, 0.0], [4.0, 0.0]])
    assert spectral_norm(matrix) == pytest.approx(5 * size, rel=1e-14)


def test_zero_has_norm_zero():
    assert spectral_norm(np.zeros((2, 3))) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_above_the_limit_it_is_an_upper_bound(monkeypatch, seed):
    monkeypatch.setattr(sys.modules["derive.linalg.norms"], "EXACT_LIMIT", 4)
    matrix = np.random.default_rng(seed).standard_normal((6, 5)) * 7
    truth = np.linalg.norm(matrix, 2)
    bound = spectral_norm(matrix)
    assert truth <= bound * (1 + 1e-14)
    holder = np.sqrt(np.linalg.norm(matrix, 1) * np.linalg.norm(matrix, np.inf))
    assert bound == pytest.approx(min(np.linalg.norm(matrix), holder), rel=1e-13)


def test_each_bound_is_used_where_it_is_the_smaller(monkeypatch):
    monkeypatch.setattr(sys.modules["derive.linalg.norms"], "EXACT_LIMIT", 1)
    assert spectral_norm(3 * np.eye(4)) == pytest.approx(3.0)
    cross = np.zeros((4, 4))
    cross[0], cross[:, 0] = 1.0, 1.0
    assert spectral_norm(cross) == pytest.approx(np.sqrt(7.0))


@pytest.mark.parametrize(
    ("op", "error", "message"),
    [
        ([[1.0]], UnknownNodeError, "op: expected an Operator or an ndarray, got list"),
        (np.ones(3), ShapeError, "op: expected an array with 2 axes"),
        (np.full((2, 2), np.nan), WeightError, "op: expected finite"),
    ],
)
def test_mistakes_are_named(op, error, message):
    with pytest.raises(error, match=message):
        spectral_norm(op)
