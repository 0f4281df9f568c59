"""Norms of token-to-token blocks, against the blocks of the dense product."""

import numpy as np
import pytest

from derive.errors import ShapeError
from derive.linalg import Dense
from derive.linalg.token_map import token_pair_log_norms

TOKENS, WIDTH = 3, 4


def block_norms(matrix):
    rows, cols = (side // TOKENS for side in matrix.shape)
    blocks = matrix.reshape(TOKENS, rows, TOKENS, cols)
    return np.linalg.norm(blocks, axis=(1, 3))


def causal(rng, rows, cols):
    matrix = rng.standard_normal((TOKENS, rows, TOKENS, cols))
    for i in range(TOKENS):
        matrix[i, :, i + 1 :] = 0
    return matrix.reshape(TOKENS * rows, TOKENS * cols)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_dense_products(scale):
    rng = np.random.default_rng(0)
    factors = [causal(rng, 5, WIDTH), causal(rng, WIDTH, 5)]
    expected = block_norms(factors[1] @ factors[0])
    found = token_pair_log_norms([scale * f for f in factors], TOKENS)
    seen = np.tri(TOKENS, dtype=bool)
    np.testing.assert_allclose(
        found[seen], np.log(expected[seen]) + 2 * np.log(scale), rtol=0, atol=1e-11
    )
    assert np.isneginf(found[~seen]).all()


def test_a_swapped_map_is_rejected():
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((TOKENS * WIDTH,) * 2)]
    expected = np.log(block_norms(factors[0]))
    assert np.abs(token_pair_log_norms(factors, TOKENS) - expected).max() < 1e-12
    assert np.abs(token_pair_log_norms(factors, TOKENS).T - expected).max() > 1e-2


def test_tokens_that_do_not_mix():
    rng = np.random.default_rng(0)
    factors = [Dense(rng.standard_normal((TOKENS, WIDTH, WIDTH)), TOKENS) for _ in range(3)]
    matrix = np.eye(TOKENS * WIDTH)
    for factor in factors:
        matrix = factor @ matrix
    found = token_pair_log_norms(factors, TOKENS)
    with np.errstate(divide="ignore"):
        expected = np.log(block_norms(matrix))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tokens", [0, 5])
def test_mistakes_are_named(tokens):
    with pytest.raises(ShapeError, match=r"tokens: expected a divisor of the shape \(6, 6\)"):
        token_pair_log_norms([np.eye(6)], tokens)
    with pytest.raises(ShapeError, match="factors: expected at least one factor"):
        token_pair_log_norms([], 1)
