"""The closed form agrees with autodiff of real blocks, and a wrong closed form does not."""

import numpy as np
import pytest
import sympy as sp

import derive
from derive.backends import SYSTEMS
from derive.calculus.atoms import Diag, Ones
from derive.calculus.tensor import Product, Sum
from derive.errors import DomainError, MissingExtraError, UnknownNameError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from derive.backends import build, stack, state  # noqa: E402
from derive.crosscheck import check, check_block, closed_form, relative_error  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.transformers]


@pytest.mark.parametrize("layers", [1, 12])
@pytest.mark.parametrize("system", SYSTEMS)
def test_closed_form_is_the_jacobian_of_the_real_block(system, layers):
    row = check(system, layers=layers)
    assert row.max_rel_error <= 1e-12
    assert row.dtype == "float64"
    assert row.ok


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("system", SYSTEMS)
def test_other_weights_and_sizes(system, seed):
    assert check(system, seed=seed, tokens=5, width=24, heads=2).ok


def _edit(expr, change):
    """Rebuild an expression bottom-up, `change` applied to every sum and product."""
    if isinstance(expr, Sum | Product):
        expr = expr.func(*[_edit(a, change) for a in expr.args])
    return change(expr)


def _drop_terms(wanted):
    def change(expr):
        if isinstance(expr, Sum):
            return expr.func(*[t for t in expr.args if not wanted(t)])
        return expr

    return lambda jacobian: _edit(jacobian, change)


def _is_mean_projection(term):
    return isinstance(term, Product) and any(isinstance(a, Ones) for a in term.args)


def _is_radial_projection(term):
    return isinstance(term, Product) and any(str(a).startswith("xhat") for a in term.args)


def _drop_gain(jacobian):
    def change(expr):
        if isinstance(expr, Product):
            kept = [a for a in expr.args if not (isinstance(a, Diag) and "gain" in str(a))]
            return expr.func(*kept)
        return expr

    return _edit(jacobian, change)


MUTATIONS = {
    "drop the mean projection": _drop_terms(_is_mean_projection),
    "drop the radial projection": _drop_terms(_is_radial_projection),
    "drop the gain": _drop_gain,
    "factor 1.0001": lambda jacobian: sp.Rational(10001, 10000) * jacobian,
    "flip the sign": lambda jacobian: -1 * jacobian,
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_wrong_closed_form_is_rejected(system, mutation):
    real = build(system)
    change = MUTATIONS[mutation]
    derived = derive.jacobian(closed_form(real), derive.state("x"))
    if mutation == "drop the mean projection" and real.norm == "rmsnorm":
        assert change(derived) == derived  # there is no mean to drop
        return
    assert change(derived) != derived
    row = check_block(real, state(real), mutate=change)
    assert row.max_rel_error > 1e-5
    assert not row.ok


@pytest.mark.parametrize("system", SYSTEMS)
def test_swapped_placement_is_rejected(system):
    real = build(system)
    other = "pre" if real.placement == "post" else "post"
    row = check_block(real, state(real), placement=other)
    assert row.max_rel_error > 1e-2
    assert not row.ok


def test_wrong_layer_in_a_stack_is_rejected():
    blocks = stack("gpt2", 3)
    x = state(blocks[0])
    assert check_block(blocks, x).ok
    reordered = [blocks[1], blocks[0], blocks[2]]
    from derive.backends import autodiff_jacobian
    from derive.crosscheck import closed_jacobian

    assert relative_error(closed_jacobian(reordered, x), autodiff_jacobian(blocks, x)) > 1e-3


def test_own_module_is_read_and_checked():
    module = torch.nn.TransformerEncoderLayer(12, 3, 20, norm_first=True, batch_first=True)
    row = check(module)
    assert row.ok
    assert row.placement == "pre"
    assert row.width == 12


def test_reference_that_ran_in_lower_precision_is_not_ok(monkeypatch):
    """A small error does not excuse a float32 reference."""
    from derive.backends import PrecisionReport

    monkeypatch.setattr(PrecisionReport, "dtype", property(lambda self: "float32"))
    assert not check("torch-post").ok


def test_relative_error_is_infinite_where_something_is_not_finite():
    assert relative_error(np.array([[np.nan]]), np.ones((1, 1))) == np.inf
    assert relative_error(np.ones((2, 2)), np.ones((1, 1))) == np.inf


def test_bad_arguments_are_named():
    with pytest.raises(UnknownNameError, match="torch-post"):
        check("nope")
    with pytest.raises(DomainError, match="layers: expected at least 1, got 0"):
        check("bert", layers=0)


def test_missing_torch_names_the_extra(monkeypatch):
    import builtins

    real_import = builtins.__import__

    def no_torch(name, *args, **kwargs):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_torch)
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"normderive\[torch\]"):
        check("torch-post")
