"""Singular spectra of stacks over depth: sixty digits, known laws, the rows of the danger table.

What is compared is the product of one list of float64 matrices; the oracle multiplies them in
multiprecision.
"""

import json
import math

import mpmath as mp
import numpy as np
import pytest

import derive
from derive.blocks.placements import MIXES, STREAMS
from derive.depth import Stack, placed_stack
from derive.depth.spectrum import listed_depths, spectra, spectrum_row, token_log_norms
from derive.errors import DomainError, ShapeError
from derive.linalg import materialise, product_spectra

x = derive.state("x")
EPS = np.finfo(float).eps


def build(
    placement, norm, sublayer, layers, *, width, tokens=1, std=0.3, eps=1e-5, seed=0, **values
):
    block = derive.block(placement, norm, sublayer, x)
    stack = Stack.initialised(
        block,
        x,
        layers,
        width=width,
        tokens=tokens,
        heads=2,
        hidden=width,
        std=std,
        eps=eps,
        seed=seed,
        values={"alpha": 0.5, "beta": 0.9, **values},
    )
    return stack, np.random.default_rng(seed).normal(size=(tokens, width))


def digits_of_product(matrices, digits=60):
    """Log singular values of the product of float64 matrices, at so many digits."""
    with mp.workdps(digits):
        product = mp.eye(matrices[0].shape[1])
        for matrix in matrices:
            product = mp.matrix(matrix.tolist()) * product
        values = mp.svd_r(product, compute_uv=False)
        return np.array([float(mp.log(v)) if v > 0 else -np.inf for v in values])


def require_sixty_digits(stack, state, side):
    matrices = [materialise(j) for j in stack.jacobians(state)]
    places = [len(matrices)] if side == "input" else [0]
    (found,) = product_spectra(matrices, places, side=side)
    expected = digits_of_product(matrices)
    assert not np.isnan(found.log_values).any()
    assert np.isfinite(found.log_norm)
    kept = expected > expected[0] - 50 * math.log(10)  # what sixty digits of the product hold
    values = [np.linalg.svd(m, compute_uv=False) for m in matrices]
    worst = max(v[0] / v[v > 1e-13 * v[0]][-1] for v in values)
    tol = 10 * len(matrices) * worst * EPS
    assert tol < 1e-4
    np.testing.assert_allclose(found.log_values[kept], expected[kept], rtol=0, atol=tol)


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize("placement", ["post", "pre", "sandwich"])
def test_a_hundred_layers_to_sixty_digits(placement, side):
    require_sixty_digits(*build(placement, "layernorm", "ffn", 100, width=4), side)


@pytest.mark.slow
@pytest.mark.parametrize("placement", derive.PLACEMENTS)
def test_a_thousand_layers_of_every_placement_to_sixty_digits(placement):
    layered = derive.PLACEMENTS[placement].is_layer
    tokens = 2 if layered else 1
    std = 0.05 if placement in ("no-norm", "pre-mlp") else 0.3
    stack, state = build(placement, "layernorm", "ffn", 1000, width=4, tokens=tokens, std=std)
    require_sixty_digits(stack, state, "input")


@pytest.mark.slow
@pytest.mark.parametrize("placement", [*STREAMS, *MIXES])
def test_a_thousand_layers_of_streams_and_mixtures_to_sixty_digits(placement):
    values = {"a": 0.1, "b1": 0.5, "b2": 0.5, "c1": 0.5, "c2": 0.5} if placement == "mhc" else {}
    stack = placed_stack(placement, 1000, width=4, hidden=4, std=0.3, seed=0, values=values)
    require_sixty_digits(stack, np.random.default_rng(0).normal(size=(1, 4)), "input")


# -- laws that hold whatever the weights


def test_the_determinant_is_the_product_of_determinants():
    stack, state = build("pre", "rmsnorm", "gated", 30, width=6)
    expected = np.cumsum(
        [0.0, *(np.linalg.slogdet(materialise(j))[1] for j in stack.jacobians(state))]
    )
    found = [s.log_values.sum() for s in spectra(stack, state)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sublayer", ["ffn", "causal-attention"])
def test_a_post_norm_stack_loses_one_direction_a_token_whatever_the_depth(sublayer):
    """1' diag(gain)^-1 J = 0: exactly one null direction a token, at every depth."""
    stack, state = build("post", "layernorm", sublayer, 12, width=6, tokens=2)
    for found in spectra(stack, state)[1:]:
        assert np.isneginf(found.log_values).sum() == 2
        assert found.log_condition == math.inf
        assert found.numerical_rank() <= 10


def test_depth_zero_and_the_identity():
    stack, state = build("pre", "layernorm", "ffn", 0, width=6)
    (found,) = spectra(stack, state)
    assert found.log_condition == 0.0
    assert found.effective_rank == pytest.approx(6.0, rel=1e-14)


# -- the danger table


def tied_post_rms():
    """Post-RMS, one draw of weights N(0, 1) x 0.05 in all of 1000 layers, tanh, d = 32, f = 128."""
    rng = np.random.default_rng(0)
    weights = {
        "eps": 1e-6,
        "gain": np.ones(32),
        "W_1": 0.05 * rng.normal(size=(128, 32)),
        "W_2": 0.05 * rng.normal(size=(32, 128)),
        "b_1": np.zeros(128),
        "b_2": np.zeros(32),
    }
    stack = Stack(derive.block("post", "rmsnorm", "ffn:tanh", x), x, [weights] * 1000)
    return stack, rng.normal(size=(1, 32))


def test_post_rms_with_weights_times_a_twentieth_has_numerical_rank_two_of_32():
    flint = pytest.importorskip("flint")
    stack, state = tied_post_rms()
    matrices = [materialise(j) for j in stack.jacobians(state)]
    (found,) = product_spectra(matrices, [1000])
    assert found.numerical_rank() == 2
    assert found.log_values[-1] < -10_000  # far below 1e-308, and still a number
    with flint.ctx.workprec(700):  # 210 digits; the first four values are within 40 of another
        product = flint.arb_mat(32, 32, np.eye(32).ravel().tolist())
        for matrix in matrices:
            product = flint.arb_mat(32, 32, matrix.ravel().tolist()) * product
            product = product.mid()
        digits = [e.str(150, radius=False) for e in product.entries()]
    with mp.workdps(150):
        entries = [mp.mpf(d) for d in digits]
        exact = mp.matrix(32, 32)
        for place, entry in enumerate(entries):
            exact[place // 32, place % 32] = entry
        values = mp.svd_r(exact, compute_uv=False)
        expected = [float(mp.log(values[k])) for k in range(4)]
    np.testing.assert_allclose(found.log_values[:4], expected, rtol=0, atol=1e-8)
    assert expected[1] - expected[0] > math.log(32 * EPS) > expected[2] - expected[0]


@pytest.mark.parametrize("alpha", [2.3, 0.4], ids=["overflow", "underflow"])
def test_alpha_to_the_thousandth(alpha):
    """2.3^1000 is 1e361. With a dead branch the product is alpha^L I, with a live one finite."""
    block = derive.block("alpha*x + F(N(x))", "rmsnorm", "ffn:relu", x)
    sizes = {"width": 4, "eps": 1.0, "alpha": alpha}  # with eps = 1 the branch stays below alpha
    live, state = build("alpha*x + F(N(x))", "rmsnorm", "ffn:relu", 1000, **sizes)
    state = state * (1e-250 if alpha > 1 else 1e150)
    dead = [{**w, "W_2": 0 * w["W_2"]} for w in live.weights]
    (found,) = spectra(Stack(block, x, dead), state, [1000])
    np.testing.assert_allclose(found.log_values, 1000 * math.log(alpha), rtol=1e-13)
    jacobians = live.jacobians(state)
    determinant = math.fsum(np.linalg.slogdet(materialise(j))[1] for j in jacobians)
    for side, place in (("input", 1000), ("output", 0)):
        (found,) = product_spectra(jacobians, [place], side=side)
        assert found.log_values.sum() == pytest.approx(determinant, rel=1e-10)


# -- tokens


@pytest.mark.parametrize("sublayer", ["attention", "causal-attention", "ffn"])
def test_the_map_of_tokens_is_that_of_the_dense_product(sublayer):
    stack, state = build("pre", "layernorm", sublayer, 5, width=6, tokens=3)
    blocks = stack.end_to_end(state).value().reshape(3, 6, 3, 6)
    with np.errstate(divide="ignore"):
        expected = np.log(np.linalg.norm(blocks, axis=(1, 3)))
    found = token_log_norms(stack, state)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    hidden = ~np.tri(3, dtype=bool)
    assert np.isneginf(found[hidden]).all() == (sublayer != "attention")


def test_the_map_of_streams_is_that_of_the_dense_product():
    stack = placed_stack("residual", 3, width=6, tokens=2, seed=1)
    state = np.random.default_rng(0).normal(size=(2, 6))
    blocks = stack.end_to_end(state).value().reshape(4, 6, 4, 6)  # two streams of two tokens
    with np.errstate(divide="ignore"):
        expected = np.log(np.linalg.norm(blocks, axis=(1, 3)))
    np.testing.assert_allclose(token_log_norms(stack, state), expected, rtol=0, atol=1e-12)


# -- the row that the command prints


def test_listed_depths_hold_both_ends():
    assert listed_depths(48) == [0, 6, 12, 18, 24, 30, 36, 42, 48]
    assert listed_depths(2) == [0, 1, 2]
    assert listed_depths(0) == [0]
    for layers in (1, 5, 7, 10, 1000):
        depths = listed_depths(layers)
        assert depths[0] == 0
        assert depths[-1] == layers
        assert len(depths) <= 9
        assert len(set(depths)) == len(depths)


KEYS = {
    "depth",
    "log_norm",
    "log_frobenius",
    "numerical_rank",
    "log_condition",
    "effective_rank",
    "participation_ratio",
    "alignment",
    "method",
    "null_directions",
    "log_singular_values",
}


def test_a_row_says_what_was_computed():
    stack, state = build("pre", "layernorm", "ffn", 4, width=6, tokens=2)
    row = spectrum_row(
        stack,
        state,
        places=[0, 4],
        drawn=[1, 2],
        cotangent=state,
        token_map=True,
        top=2,
        bottom=1,
    )
    assert [d["depth"] for d in row["depths"]] == [0, 4]
    assert [d["depth"] for d in row["drawn"]] == [0, 1, 2, 4]
    assert set(row["depths"][0]) == KEYS
    values = stack.log_singular_values(state)
    np.testing.assert_allclose(row["depths"][1]["log_singular_values"], values, atol=1e-12)
    np.testing.assert_allclose([t["log_value"] for t in row["top"]], values[:2], atol=1e-12)
    assert row["bottom"][0]["log_value"] == pytest.approx(values[-1], abs=1e-12)
    assert max(row["bottom"][0][k] for k in ("residual_right", "inverse_residual")) < 1e-10
    assert row["rank_tol"] == 12 * EPS
    assert row["product"] == "dx_l/dx_0"
    assert [set(layer) for layer in row["weight_log_norms"]] == [
        {"W_1", "W_2", "b_1", "b_2", "bias", "gain"}
    ] * 4
    np.testing.assert_allclose(row["token_log_norms"], token_log_norms(stack, state))
    json.dumps(row)


def test_the_map_of_no_layers_is_refused():
    stack, state = build("pre", "layernorm", "ffn", 0, width=4)
    with pytest.raises(ShapeError, match="factors: expected at least one factor, got an empty"):
        spectrum_row(stack, state, token_map=True)


def test_too_many_tokens_at_once_are_refused():
    stack, state = build("pre", "layernorm", "attention", 1, width=8, tokens=258)
    with pytest.raises(DomainError, match=r"expected blocks of at most 2048 .* got 2064; take the"):
        spectrum_row(stack, state)
