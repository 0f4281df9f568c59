"""Jacobians by automatic differentiation: right, in float64, in eval mode, never silently 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from derive.backends import (
    SYSTEMS,
    autodiff_jacobian,
    build,
    check_weights,
    float64_throughout,
    jacobian,
    output,
    stack,
    state,
)
from derive.errors import DomainError, ShapeError, UnknownNodeError, WeightError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def system_cases() -> list[Any]:
    return [
        pytest.param(name, marks=[] if name.startswith("torch") else pytest.mark.transformers)
        for name in SYSTEMS
    ]


def needs_transformers(system: str) -> None:
    if not system.startswith("torch"):
        pytest.importorskip("transformers")


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


def finite_differences(call: Any, x: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """Return the central differences (y(x + h e) - y(x - h e)) / 2h, column by column."""
    columns = []
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = h
        columns.append((output(call, x + step) - output(call, x - step)).ravel() / (2 * h))
    return np.array(columns).T


# Central differences err by h^2/6 |y'''| ~ 1e-10 and by rounding, 1e-16 / h ~ 1e-11, both times
# the derivatives' size; 1e-10 .. 1e-9 was seen.
FINITE_DIFFERENCES = 1e-8


@pytest.mark.parametrize("system", system_cases())
def test_agrees_with_finite_differences(system: str) -> None:
    needs_transformers(system)
    block = build(system, width=8, heads=2, tokens=3)
    x = state(block)
    with float64_throughout():
        assert relative(jacobian(block, x), finite_differences(block, x)) < FINITE_DIFFERENCES


@pytest.mark.parametrize("system", system_cases())
def test_stack_is_the_ordered_product(system: str) -> None:
    needs_transformers(system)
    blocks = stack(system, 12)
    x = state(blocks[0])
    whole = autodiff_jacobian(blocks, x)
    product = np.eye(x.size)
    with float64_throughout():
        for block in blocks:
            product = jacobian(block, x) @ product
            x = output(block, x)
    # Two orders of the same float64 operations: 2e-15 was seen.
    assert relative(product, whole) < 1e-12
    assert 1e-3 < np.linalg.norm(whole, 2) < 1e3


@pytest.mark.parametrize("system", system_cases())
def test_causal_means_no_later_token(system: str) -> None:
    needs_transformers(system)
    block = build(system)
    jac = autodiff_jacobian(block, state(block)).reshape(4, 16, 4, 16).transpose(0, 2, 1, 3)
    later = [np.abs(jac[i, j]).max() for i in range(4) for j in range(i + 1, 4)]
    earlier = [np.abs(jac[i, j]).max() for i in range(4) for j in range(i + 1)]
    assert min(earlier) > 0
    assert max(later) == 0 if system in ("gpt2", "llama") else min(later) > 0


@pytest.mark.transformers
def test_hidden_float32_is_promoted() -> None:
    pytest.importorskip("transformers")
    block = build("llama")
    x = state(block)
    native = jacobian(block, x)
    with float64_throughout() as report:
        promoted = jacobian(block, x)
    # float32 in RMSNorm and softmax: 4e-8 to 5e-7 is usual.
    assert 1e-9 < relative(native, promoted) < 1e-5
    assert relative(native, finite_differences(block, x)) > 1e-6
    assert report.dtype == "float64"
    # Two norms and one softmax, in each of the three evaluations.
    assert report.promoted == 9
    np.testing.assert_array_equal(autodiff_jacobian(block, x), promoted)


@pytest.mark.parametrize("system", system_cases())
@pytest.mark.parametrize("guard", [torch.inference_mode, torch.no_grad], ids=lambda g: g.__name__)
def test_a_surrounding_guard_changes_nothing(system: str, guard: Any) -> None:
    needs_transformers(system)
    block = build(system, tokens=2)
    x = state(block)
    expected = autodiff_jacobian(block, x)
    with guard():
        np.testing.assert_array_equal(autodiff_jacobian(block, x), expected)
        # Weights that are made inside are ordinary ones.
        inside = build(system, tokens=2)
        np.testing.assert_array_equal(autodiff_jacobian(inside, torch.tensor(x)), expected)
    np.testing.assert_array_equal(autodiff_jacobian(inside, x), expected)


def test_parameters_made_under_inference_mode() -> None:
    with torch.inference_mode():
        module = torch.nn.Linear(3, 3, dtype=torch.float64)
    with pytest.raises(WeightError, match="'weight' was made under inference_mode"):
        jacobian(module, np.ones((2, 3)))


def cut_by_detach(x: Any) -> Any:
    return (x**2).detach()


def cut_by_no_grad(x: Any) -> Any:
    with torch.no_grad():
        return x**2


@pytest.mark.parametrize("call", [cut_by_detach, cut_by_no_grad], ids=lambda c: c.__name__)
def test_a_cut_gradient_is_not_a_zero_jacobian(call: Any) -> None:
    with pytest.raises(DomainError, match="cuts the gradient"):
        jacobian(call, np.ones((2, 3)))


def test_a_constant_map_has_a_zero_jacobian() -> None:
    assert not jacobian(torch.ones_like, np.ones((2, 3))).any()


class Branch(torch.nn.Module):
    """A module of a user's own: dropout, a part that is in eval mode already, float32."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.dropout = torch.nn.Dropout(0.5)
        self.frozen = torch.nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return x + self.frozen(self.dropout(torch.tanh(self.linear(x))))


def test_train_mode_is_left_and_restored() -> None:
    module = Branch().train()
    module.frozen.eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    first, second = jacobian(module, x), jacobian(module, x)
    np.testing.assert_array_equal(first, second)
    assert relative(first, finite_differences(module, x)) < FINITE_DIFFERENCES
    assert (module.training, module.dropout.training, module.frozen.training) == (True, True, False)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert all(p.grad is None and p.dtype == torch.float32 for p in module.parameters())


def test_modes_are_restored_after_an_error() -> None:
    module = Branch().train()
    with pytest.raises(ShapeError):
        jacobian(module, np.ones(3))
    assert module.training
    assert module.dropout.training
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.get_default_dtype() == torch.float32


def test_dropout_behind_a_callable() -> None:
    module = Branch().double().train()
    x = np.ones((32, 3))  # two draws of the masks agree in (5/8)^96 of all cases
    with pytest.raises(DomainError, match=r"expected a deterministic map.*module="):
        jacobian(lambda z: module(z), x)
    expected = jacobian(module, x)
    np.testing.assert_array_equal(jacobian(lambda z: module(z), x, module=module), expected)


def test_frozen_encoder_layer_avoids_the_fused_path() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, dtype=torch.float64)
    layer.requires_grad_(False).eval()
    x = np.random.default_rng(0).standard_normal((3, 8))
    expected = jacobian(layer.requires_grad_(True), x)
    with torch.inference_mode():
        np.testing.assert_array_equal(jacobian(layer.requires_grad_(False), x), expected)
    assert relative(expected, finite_differences(layer, x)) < FINITE_DIFFERENCES


def test_output_may_be_a_tuple() -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(output(lambda z: (2 * z, None), x), 2 * x)
    np.testing.assert_array_equal(jacobian(lambda z: (2 * z, None), x), 2 * np.eye(6))


def test_layout_is_numerator_rows_by_token() -> None:
    # y_0 = x_1 [3 0; 0 5] + ..., so that each index shows in one entry.
    def call(x: Any) -> Any:
        y = torch.zeros_like(x)
        y[0, 1, 0] = 7 * x[0, 0, 1]
        return y

    expected = np.zeros((4, 4))
    expected[2, 1] = 7.0
    np.testing.assert_array_equal(jacobian(call, np.ones((2, 2))), expected)


def test_chunks_and_batch_axis_change_nothing() -> None:
    block = build("torch-pre")
    x = state(block)
    expected = autodiff_jacobian(block, x)
    # Batched products may round differently: a few units in the last place.
    assert relative(autodiff_jacobian(block, x[None], chunk_size=5), expected) < 1e-13


def with_nan() -> Any:
    module = Branch()
    module.linear.weight.data[0, 0] = float("nan")
    return module


@pytest.mark.parametrize(
    ("call", "x", "kind", "message"),
    [
        (with_nan(), np.ones((2, 3)), WeightError, "Branch: parameter 'linear.weight'.*1 of 9"),
        (torch.sin, np.ones(3), ShapeError, r"argument x: .*got \(3,\)"),
        (torch.sin, np.ones((2, 2, 3)), ShapeError, "argument x"),
        (torch.sin, np.full((2, 3), np.nan), DomainError, "argument x: expected finite"),
        (lambda z: z.sum(-1), np.ones((2, 3)), ShapeError, r"expected an output of shape \(1, 2"),
        (lambda z: "no", np.ones((2, 3)), ShapeError, "expected a tensor.*got str"),
        (torch.sqrt, np.zeros((2, 3)), DomainError, "the Jacobian to be finite"),
        (torch.log, np.ones((2, 3)) * 0, DomainError, "to be finite"),
        (3, np.ones((2, 3)), UnknownNodeError, "argument call: .*got 3"),
        ([], np.ones((2, 3)), UnknownNodeError, "non-empty list"),
        ([torch.sin], np.ones((2, 3)), UnknownNodeError, "RealBlock at position 0"),
    ],
    ids=[
        "nan-weight",
        "1-d",
        "batch",
        "nan-input",
        "output-shape",
        "output-type",
        "infinite-slope",
        "infinite-output",
        "not-callable",
        "empty-stack",
        "not-a-block",
    ],
)
def test_errors(call: Any, x: np.ndarray, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        jacobian(call, x)


def test_errors_of_blocks_and_modules() -> None:
    block = build("torch-pre")
    with pytest.raises(ShapeError, match=r"expected shape \(4, 16\) for block 0 .*got \(5, 16\)"):
        jacobian(block, np.ones((5, 16)))
    with pytest.raises(UnknownNodeError, match=r"argument module: expected a torch\.nn.Module"):
        jacobian(torch.sin, np.ones((2, 3)), module=3)


def test_buffers_may_hold_minus_infinity() -> None:
    module = torch.nn.Identity()
    module.register_buffer("mask", torch.tensor([0.0, -float("inf")]))
    check_weights(module)
    module.mask[0] = float("nan")
    with pytest.raises(WeightError, match="buffer 'mask'"):
        check_weights(module)
