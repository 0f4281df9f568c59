"""Replayed lowering and evaluation: the same numbers as the walk over the expression."""

import numpy as np
import pytest

import derive
from derive import lower as module
from derive.blocks.attention import Attention
from derive.blocks.norms import L2Norm, LayerNorm, RMSNorm
from derive.blocks.placements import PLACEMENTS
from derive.initialise import initial_weights
from derive.linalg import materialise
from derive.lower import Environment, Lowering, evaluate, lower

x = derive.state("x")
WIDTH, TOKENS = 6, 3
VALUES = {"alpha": 1.3, "beta": 0.7, "g": 1.1, "a": 0.9}

BLOCKS = {
    f"{placement}, {norm}, {sublayer}": derive.block(placement, norm, sublayer, x)
    for placement in PLACEMENTS
    for norm in ("layernorm", "rmsnorm")
    for sublayer in ("ffn:relu", "causal-attention")
}
BLOCKS |= {
    f"pre, {norm}": derive.block("pre", norm, "gated", x)
    for norm in ("l2norm", "scalenorm", "dyt", "batchnorm", "groupnorm")
}
BLOCKS |= {
    name: x + attention(derive.RMSNorm()(x))
    for name, attention in {
        "rotary": Attention(rotary=True),
        "query and key norm": Attention(query_norm=RMSNorm("q"), key_norm=RMSNorm("k")),
        "full norm": Attention(query_norm=RMSNorm("q"), key_norm=RMSNorm("k"), full_norm=True),
        "cosine": Attention(query_norm=L2Norm("q"), key_norm=L2Norm("k")),
        "softcap": Attention(softcap=5),
        "score bias": Attention(score_bias=True),
        "gate": Attention(gate=derive.activation("sigmoid")),
        "output norm": Attention(out_norm=LayerNorm("o")),
    }.items()
}


def drawn(block, seed):
    """Random weights, gains and biases too, and a state."""
    rng = np.random.default_rng(seed)
    sizes = {"width": WIDTH, "heads": 2, "tokens": TOKENS, "hidden": 5, "groups": 2}
    weights = initial_weights(block, seed=seed, values=VALUES, **sizes)
    for name, value in weights.items():
        if isinstance(value, np.ndarray) and name[0] not in "RE":
            weights[name] = value + 0.3 * rng.normal(size=value.shape)
    weights |= {"eps": 0.01 * (seed + 1), "B": rng.normal(size=(2, TOKENS, TOKENS))}
    weights |= {"alpha": 1.3 + seed, "beta": 0.7 - 0.1 * seed}
    return weights, rng.normal(size=(TOKENS, WIDTH))


def walked(found, weights, state):
    """Lower and evaluate by the walk alone."""
    env = Environment(weights, state)
    env.prepare(found.jacobian)
    env.prepare(found.block)
    return materialise(Lowering(env)(found.jacobian)), env._family(env(found.block))


@pytest.mark.parametrize("name", BLOCKS)
def test_other_weights_give_what_the_walk_gives(name):
    block = BLOCKS[name]
    found = derive.derivation(block, x)
    before = None
    for seed in range(3):
        weights, state = drawn(block, seed)
        kept = {k: np.array(v, copy=True) for k, v in weights.items()}
        operator, value = lower(found.jacobian, weights, state), evaluate(block, weights, state)
        jacobian, expected = walked(found, weights, state)
        scale = np.abs(jacobian).max()
        np.testing.assert_allclose(materialise(operator), jacobian, rtol=0, atol=1e-14 * scale)
        np.testing.assert_allclose(materialise(operator.T), jacobian.T, rtol=0, atol=1e-14 * scale)
        vectors = np.random.default_rng(1).normal(size=(state.size, 2))
        np.testing.assert_allclose(operator @ vectors, jacobian @ vectors, atol=1e-13 * scale)
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-14 * np.abs(expected).max())
        for key, array in kept.items():  # nothing is written into
            np.testing.assert_array_equal(weights[key], array)
        if before is not None:
            assert np.abs(jacobian - before).max() > 1e-3
        before = jacobian


def test_an_earlier_operator_keeps_its_numbers():
    """What was lowered first does not change when the recording is replayed."""
    found = derive.derivation(derive.block("pre", "layernorm", "causal-attention", x), x)
    made = [drawn(found.block, seed) for seed in range(4)]
    operators = [lower(found.jacobian, *one) for one in made]
    for operator, one in zip(operators, made, strict=True):
        jacobian, _ = walked(found, *one)
        np.testing.assert_allclose(materialise(operator), jacobian, rtol=0, atol=1e-14)


def test_other_shapes_are_recorded_anew():
    block = derive.block("post", "rmsnorm", "ffn", x)
    found = derive.derivation(block, x)
    for width in (4, 7, 4):
        weights = initial_weights(block, width=width, seed=width)
        state = np.random.default_rng(0).normal(size=(2, width))
        jacobian, _ = walked(found, weights, state)
        np.testing.assert_allclose(
            materialise(lower(found.jacobian, weights, state)), jacobian, rtol=0, atol=1e-14
        )


def test_another_mask_is_not_replayed():
    block = x + Attention(masked=True)(x)
    found = derive.derivation(block, x)
    for seed in range(3):
        weights, state = drawn(block, seed)
        weights["mask"] = np.random.default_rng(seed).random((TOKENS, TOKENS)) < 0.6
        weights["mask"] |= np.eye(TOKENS, dtype=bool)
        jacobian, _ = walked(found, weights, state)
        np.testing.assert_allclose(
            materialise(lower(found.jacobian, weights, state)), jacobian, rtol=0, atol=1e-14
        )


def test_errors_are_those_of_the_walk():
    block = derive.block("pre", "layernorm", "ffn", x)
    found = derive.derivation(block, x)
    weights, state = drawn(block, 0)
    for _ in range(2):
        lower(found.jacobian, weights, state)
    with pytest.raises(derive.errors.WeightError, match="gain"):
        lower(found.jacobian, {**weights, "gain": np.full(WIDTH, np.nan)}, state)
    with pytest.raises(derive.errors.WeightError, match="state"):
        lower(found.jacobian, weights, np.full_like(state, np.inf))
    without = derive.derivation(derive.block("pre", derive.LayerNorm(eps=0), "ffn", x), x)
    lower(without.jacobian, weights, state)
    with pytest.raises(derive.errors.DomainError):
        lower(without.jacobian, weights, np.ones_like(state))


def test_most_blocks_are_replayed():
    """The comparison above would be empty if nothing were ever replayed."""
    found = derive.derivation(derive.block("pre", "layernorm", "ffn:relu", x), x)
    lower(found.jacobian, *drawn(found.block, 0))
    weights, state = drawn(found.block, 1)
    (recording,) = module._recordings(
        module._lowered, found.jacobian, *module._shapes(weights, state)
    )
    assert recording is not None
    assert set(recording.inputs) >= {"W_1", "W_2", "gain", "the state"}
