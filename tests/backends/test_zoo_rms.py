"""Decoder layers with RMSNorm: the closed form agrees with autodiff, and a wrong one does not."""

from __future__ import annotations

import functools
from importlib import import_module

import numpy as np
import pytest
import sympy as sp

import derive
from derive.backends import float64_throughout, output, state
from derive.backends.zoo import ZOO, build_zoo
from derive.blocks.activations import activation, clamped_shift, clamped_swish, xielu
from derive.blocks.mla import LatentAttention
from derive.blocks.moe import MoE, step
from derive.calculus.atoms import Diag
from derive.calculus.tensor import Product, Sum, Transposed
from derive.crosscheck import check, check_block, relative_error
from derive.errors import DomainError, UnknownNameError, UnknownNodeError, WeightError
from derive.linalg import materialise
from derive.lower import activation_function, evaluate, lower

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.torch, pytest.mark.transformers]

MODULES = [
    f"derive.backends.zoo.{name}" for name in ("decoders_rms", "decoders_sandwich", "decoders_moe")
]
for module in MODULES:
    import_module(module)
SYSTEMS = [name for name, system in ZOO.items() if system.build.__module__ in MODULES]
WITHOUT_GAIN = {"hrm", "nanochat", "dory"}
EXPERTS = ["mixtral", "gpt-oss", "minimax", "deepseek-v3-moe"]


@functools.cache
def real_block(system):
    return build_zoo(system)


@functools.cache
def derived(system):
    return derive.jacobian(real_block(system).expression, derive.state("x"))


def edited(expr, change):
    if isinstance(expr, Sum | Product):
        expr = expr.func(*[edited(a, change) for a in expr.args])
    return change(expr)


def without_radial_projection(expr):
    def radial(term):
        return isinstance(term, Product) and any(
            isinstance(a, Transposed) and str(a).startswith("xhat") for a in term.args
        )

    if isinstance(expr, Sum):
        return expr.func(*[t for t in expr.args if not radial(t)])
    return expr


def without_gain(expr):
    if isinstance(expr, Product):
        return expr.func(*[a for a in expr.args if not (isinstance(a, Diag) and "gain" in str(a))])
    return expr


MUTATIONS = {
    "drop the radial projection": lambda jacobian: edited(jacobian, without_radial_projection),
    "drop the gain": lambda jacobian: edited(jacobian, without_gain),
    "factor 1.0001": lambda jacobian: sp.Rational(10001, 10000) * jacobian,
    "flip the sign": lambda jacobian: -1 * jacobian,
}


def test_every_layer_asked_for_is_there():
    assert len(SYSTEMS) == 21


@pytest.mark.parametrize("system", SYSTEMS)
def test_closed_form_is_the_jacobian_of_the_layer(system):
    real = real_block(system)
    row = check_block(real, state(real))
    assert row.max_rel_error <= real.tolerance == 1e-12
    assert row.dtype == "float64"
    assert row.ok


@pytest.mark.parametrize("system", SYSTEMS)
def test_expression_is_the_layer_for_another_seed(system):
    real = build_zoo(system, 5)
    x = state(real, 7)
    with float64_throughout():
        reference = output(real, x)
    assert relative_error(evaluate(real.expression, real.weights, x), reference) <= 1e-12


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_wrong_closed_form_is_rejected(system, mutation):
    change = MUTATIONS[mutation]
    if mutation == "drop the gain" and system in WITHOUT_GAIN:
        assert change(derived(system)) == derived(system)
        return
    assert change(derived(system)) != derived(system)
    row = check_block(real_block(system), state(real_block(system)), mutate=change)
    assert row.max_rel_error > 1e-5
    assert not row.ok


@pytest.mark.parametrize("system", SYSTEMS)
def test_weights_are_random_and_frozen(system):
    real = real_block(system)
    gains = {k: v for k, v in real.weights.items() if k.startswith("gain") and k != "gain_Q"}
    assert bool(gains) == (system not in WITHOUT_GAIN)
    for gain in gains.values():
        assert np.ptp(gain) > 0.1
        assert 0.5 <= gain.min() <= gain.max() <= 1.5
    for name, weight in real.weights.items():
        assert weight.dtype == (bool if name == "mask" else float)
        assert not weight.flags.writeable
    assert not any(p.requires_grad for p in real.module.parameters())
    assert all(p.dtype == torch.float64 for p in real.module.parameters())


@pytest.mark.parametrize("system", SYSTEMS)
def test_seed_decides_the_weights(system):
    again, other = build_zoo(system, 0), build_zoo(system, 1)
    for name, weight in real_block(system).weights.items():
        assert np.array_equal(weight, again.weights[name])
    assert not np.array_equal(again.weights["W_Q"], other.weights["W_Q"])


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_weight_is_idle(system):
    """A wrong value of any weight changes the output; without it the evaluation names it."""
    real = real_block(system)
    x = state(real)
    rng = np.random.default_rng(3)
    reference = evaluate(real.expression, real.weights, x)
    for name, weight in real.weights.items():
        # An expert's place in the ranking moves by large changes only.
        moved = ~weight if name == "mask" else weight + 10 * rng.standard_normal(weight.shape)
        moved = np.tri(real.tokens, dtype=bool) if name == "mask" else moved
        if name == "mask" and np.array_equal(moved, weight):
            moved = np.ones_like(weight)
        wrong = evaluate(real.expression, {**real.weights, name: moved}, x)
        assert relative_error(wrong, reference) > 1e-6, name
        if name != "mask":
            rest = {k: v for k, v in real.weights.items() if k != name}
            with pytest.raises(WeightError, match=f"weight {name}: missing"):
                evaluate(real.expression, rest, x)


@pytest.mark.parametrize("system", SYSTEMS)
def test_fields_say_what_the_layer_is(system):
    real = real_block(system)
    assert real.placement in derive.PLACEMENTS
    assert real.norm == ("l2norm" if system == "dory" else "rmsnorm")
    assert (real.heads, real.width, real.tokens) == (4, 16, 4)
    assert real.causal
    assert not np.triu(real.weights["mask"], 1).any()
    assert real.eps[0] == real.eps[1] > 0


def test_eps_is_the_frameworks_own():
    assert real_block("glm4").eps == (1.5625e-07, 1.5625e-07)
    assert real_block("mixtral").eps == (1e-05, 1e-05)
    assert real_block("gemma2").eps == (1e-06, 1e-06)


@pytest.mark.parametrize("system", ["gemma2", "gemma3"])
def test_gain_of_gemma_is_one_plus_its_weight(system):
    real = real_block(system)
    weight = real.module.input_layernorm.weight.numpy()
    assert np.array_equal(real.weights["gain_1"], 1 + weight)
    assert abs(weight).max() <= 0.5


@pytest.mark.parametrize(
    "system", ["mistral", "exaone4", "gemma2", "gemma3", "gpt-oss", "afmoe", "dory"]
)
def test_window_is_in_the_mask(system):
    mask = real_block(system).weights["mask"]
    assert np.array_equal(mask, np.eye(4, dtype=bool) | np.eye(4, k=-1, dtype=bool))


@pytest.mark.parametrize("system", SYSTEMS)
def test_rotation_is_a_rotation_to_the_precision_of_its_tables(system):
    """The tables are float32; those of gpt-oss carry the factor of YaRN besides."""
    rotation = real_block(system).weights["R"]
    size = rotation.shape[-1]
    factor = rotation[0, 0, 0]
    assert (factor != 1) == (system == "gpt-oss")
    assert np.array_equal(rotation[0] @ rotation[0].T, factor**2 * np.eye(size))
    for matrix in rotation[1:]:
        assert np.abs(matrix @ matrix.T - factor**2 * np.eye(size)).max() < 1e-6
        assert np.abs(matrix - rotation[0]).max() > 0.1


@pytest.mark.parametrize(
    ("system", "fixed"),
    [("glm4", slice(2, 4)), ("deepseek-v3", slice(0, 2)), ("minicpm3", slice(0, 2))],
)
def test_features_without_position_are_not_rotated(system, fixed):
    rotation = real_block(system).weights["R"]
    assert np.array_equal(rotation[:, fixed, fixed], np.tile(np.eye(2), (4, 1, 1)))


@pytest.mark.parametrize("system", EXPERTS)
def test_closed_form_holds_in_the_routing_cells_of_a_stack(system):
    """The second layer's experts are chosen at its own input."""
    row = check(system, layers=2, seed=3)
    assert row.ok
    assert row.layers == 2


@pytest.mark.parametrize("system", EXPERTS)
def test_routing_differs_between_tokens(system):
    real = real_block(system)
    seen = []
    router = getattr(real.module.mlp, "router", None) or real.module.mlp.gate
    hook = router.register_forward_hook(lambda _, __, result: seen.append(result[2]))
    with float64_throughout():
        output(real, state(real))
    hook.remove()
    assert len({tuple(sorted(row.tolist())) for row in seen[0]}) > 1


@pytest.mark.parametrize("router", ["softmax", "sigmoid"])
@pytest.mark.parametrize("correction", [False, True])
def test_mixture_against_numpy(router, correction):
    """Value and, by central differences, Jacobian of a mixture written out token by token."""
    rng = np.random.default_rng(0)
    d, f, count = 3, 5, 7
    weights = {
        "W_R": rng.standard_normal((count, d)),
        "W_gate": rng.standard_normal((count, f, d)),
        "W_up": rng.standard_normal((count, f, d)),
        "W_down": rng.standard_normal((count, d, f)),
    }
    if correction:
        weights["b_C"] = rng.standard_normal(count)
    score = np.exp if router == "softmax" else lambda t: 1 / (1 + np.exp(-t))

    def mixture(z):
        scores = score(weights["W_R"] @ z)
        best = np.argsort(scores + weights.get("b_C", 0.0))[-3:]
        out = np.zeros(d)
        for e in best:
            g = weights["W_gate"][e] @ z
            hidden = g / (1 + np.exp(-g)) * (weights["W_up"][e] @ z)
            out += scores[e] / scores[best].sum() * (weights["W_down"][e] @ hidden)
        return out

    x = derive.state("x")
    block = MoE(3, router=router, correction=correction)(x)
    points = rng.standard_normal((2, d))
    assert np.allclose(evaluate(block, weights, points), [mixture(z) for z in points], rtol=1e-12)
    found = materialise(lower(derive.jacobian(block, x), weights, points))
    h = 1e-6
    for k, z in enumerate(points):
        slopes = [(mixture(z + h * e) - mixture(z - h * e)) / (2 * h) for e in np.eye(d)]
        # Central differences lose h^2 and 1e-16 / h.
        block_k = found[d * k : d * (k + 1), d * k : d * (k + 1)]
        assert np.allclose(block_k, np.transpose(slopes), atol=1e-7)


def test_mixture_refuses_what_it_does_not_know():
    with pytest.raises(UnknownNameError, match="router: expected one of softmax, sigmoid"):
        MoE(2, router="hash")
    with pytest.raises(DomainError, match="selected: expected at least 1, got 0"):
        MoE(0)


def test_step_is_flat():
    t = sp.Symbol("t", real=True)
    assert sp.diff(step(3 * t - 1), t) == 0


def test_latent_attention_needs_its_norms_and_refuses_options():
    with pytest.raises(UnknownNodeError, match="expected a norm as query_norm"):
        LatentAttention()
    with pytest.raises(UnknownNodeError, match="the option gate does not apply"):
        LatentAttention(
            query_norm=derive.RMSNorm("q"), key_norm=derive.RMSNorm("k"), gate=activation("silu")
        )


TORCH = {
    "relu2": (activation("relu2"), lambda t: torch.relu(t) ** 2),
    "sigmoid": (activation("sigmoid"), torch.sigmoid),
    "clamped_swish": (
        clamped_swish(1.7, 0.5),
        lambda t: t.clamp(max=0.5) * torch.sigmoid(1.7 * t.clamp(max=0.5)),
    ),
    "clamped_shift": (clamped_shift(0.5), lambda t: 1 + t.clamp(-0.5, 0.5)),
    "xielu": (
        xielu(0.8, 0.7, 0.5, -0.01),
        lambda t: torch.where(
            t > 0,
            0.8 * t**2 + 0.5 * t,
            0.7 * (torch.expm1(t.clamp(max=-0.01)) - t) + 0.5 * t,
        ),
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_activations_against_torch(name):
    found, reference = TORCH[name]
    t = torch.linspace(-3, 3, 600, dtype=torch.float64, requires_grad=True)
    value = reference(t)
    value.sum().backward()
    at = t.detach().numpy()
    assert found.name == name
    # expm1 keeps digits that exp(t) - 1 loses: 2e-16 of 1.
    assert np.allclose(activation_function(found, 0)(at), value.detach().numpy(), atol=1e-15)
    assert np.allclose(activation_function(found, 1)(at), t.grad.numpy(), atol=1e-15)
