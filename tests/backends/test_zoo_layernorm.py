"""The layers of the zoo with LayerNorm, and T5: they agree, and nothing about them is idle."""

from __future__ import annotations

import dataclasses
from importlib import import_module

import numpy as np
import pytest

import derive
from derive.backends import autodiff_jacobian, float64_throughout, output, state
from derive.backends.zoo import ZOO, build_zoo
from derive.calculus.atoms import Diag, Ones
from derive.calculus.tensor import Product, Sum
from derive.crosscheck import check_block, closed_jacobian, relative_error
from derive.errors import WeightError
from derive.lower import evaluate

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.torch, pytest.mark.transformers]

MODULES = [
    f"derive.backends.zoo.{name}" for name in ("encoders", "encoder_decoder", "decoders_layernorm")
]
for module in MODULES:
    import_module(module)
SYSTEMS = [name for name, system in ZOO.items() if system.build.__module__ in MODULES]
RMS = {"t5-encoder", "t5-decoder"}
WITHOUT_GAIN = {"olmo"}


def edited(expr, change):
    if isinstance(expr, Sum | Product):
        expr = expr.func(*[edited(a, change) for a in expr.args])
    return change(expr)


def without_mean_projection(expr):
    if isinstance(expr, Sum):
        kept = [
            t
            for t in expr.args
            if not (isinstance(t, Product) and any(isinstance(a, Ones) for a in t.args))
        ]
        return expr.func(*kept)
    return expr


def without_gain(expr):
    if isinstance(expr, Product):
        return expr.func(*[a for a in expr.args if not (isinstance(a, Diag) and "gain" in str(a))])
    return expr


MUTATIONS = {
    "drop the mean projection": lambda jacobian: edited(jacobian, without_mean_projection),
    "drop the gain": lambda jacobian: edited(jacobian, without_gain),
    "flip the sign": lambda jacobian: -1 * jacobian,
}


def test_every_layer_asked_for_is_there():
    assert len(SYSTEMS) == 41


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("system", SYSTEMS)
def test_closed_form_is_the_jacobian_of_the_layer(system, seed):
    real = build_zoo(system, seed)
    row = check_block(real, state(real, seed + 1), tolerance=real.tolerance)
    assert row.max_rel_error <= 1e-12
    assert row.dtype == "float64"
    assert row.ok


@pytest.mark.parametrize("system", SYSTEMS)
def test_expression_is_the_layer(system):
    """Not only the derivative agrees: the value does."""
    real = build_zoo(system)
    x = state(real)
    with float64_throughout():
        reference = output(real, x)
    assert relative_error(evaluate(real.expression, real.weights, x), reference) <= 1e-12


@pytest.mark.parametrize("system", SYSTEMS)
def test_weights_are_random(system):
    real = build_zoo(system)
    gains = {k: v for k, v in real.weights.items() if k.startswith("gain")}
    assert bool(gains) == (system not in WITHOUT_GAIN)
    for gain in gains.values():
        assert np.ptp(gain) > 0.3
        assert 0.5 <= gain.min() <= gain.max() <= 1.5
    for name, weight in real.weights.items():
        assert weight.dtype == (bool if name == "mask" else float)
        assert not weight.flags.writeable
    assert not any(p.requires_grad for p in real.module.parameters())
    assert all(p.dtype == torch.float64 for p in real.module.parameters())


@pytest.mark.parametrize("system", SYSTEMS)
def test_seed_decides_the_weights(system):
    first, again, other = build_zoo(system, 0), build_zoo(system, 0), build_zoo(system, 1)
    assert all(np.array_equal(v, again.weights[k]) for k, v in first.weights.items())
    assert not np.array_equal(first.weights["W_Q"], other.weights["W_Q"])


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_wrong_closed_form_is_rejected(system, mutation):
    real = build_zoo(system)
    change = MUTATIONS[mutation]
    derived = derive.jacobian(real.expression, derive.state("x"))
    absent = (mutation == "drop the mean projection" and system in RMS) or (
        mutation == "drop the gain" and system in WITHOUT_GAIN
    )
    assert (change(derived) == derived) == absent
    if not absent:
        row = check_block(real, state(real), mutate=change, tolerance=real.tolerance)
        assert row.max_rel_error > 1e-3
        assert not row.ok


def changed(name, weight):
    """Another value of the same shape: no mask, a shifted bias, or one entry moved."""
    if name == "mask":
        return np.ones_like(weight)
    if weight.ndim == 0:
        return weight * 1.01
    moved = np.array(weight)
    if name.startswith("b_"):
        return moved + 0.5  # enough to carry some unit over the corner of a relu
    moved[(-1,) * weight.ndim] += 0.1
    return moved


# These need not enter the Jacobian: added last with no norm after it, or the same for all keys.
CONSTANT = ("b_K", "b_V", "b_O", "b_2", "b_down", "bias")


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_weight_is_idle(system):
    """A wrong entry of any weight shows, so the check does look at each of them."""
    real = build_zoo(system)
    x = state(real)
    reference = autodiff_jacobian(real, x)
    for name, weight in real.weights.items():
        if name.startswith(CONSTANT):
            continue
        weights = {**real.weights, name: changed(name, weight)}
        wrong = dataclasses.replace(real, weights=weights)
        assert relative_error(closed_jacobian(wrong, x), reference) > 1e-7, name


@pytest.mark.parametrize("system", SYSTEMS)
def test_weights_are_those_that_the_expression_names(system):
    """Each one is asked for: without it the evaluation fails and says which one is missing."""
    real = build_zoo(system)
    for name in set(real.weights) - {"mask"}:
        weights = {k: v for k, v in real.weights.items() if k != name}
        with pytest.raises(WeightError, match=f"weight {name}: missing"):
            evaluate(real.expression, weights, state(real))


def test_placements_are_the_words_of_the_catalogue():
    own = {"pre-mlp"}
    for system in SYSTEMS:
        real = build_zoo(system)
        assert real.placement in {*derive.PLACEMENTS, *own}, system
