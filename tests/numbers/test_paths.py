"""Paths of a stack: terms of its derived Jacobian against torch, and sums of all its paths."""

import itertools
import math

import numpy as np
import pytest

import derive
from derive.depth import Stack, placed_stack
from derive.depth.opaque import opaque_block
from derive.depth.paths import (
    continuum_row,
    expansion_row,
    layer_terms,
    path_expansion,
    stack_terms,
)
from derive.errors import DomainError
from derive.linalg import materialise
from derive.lower import AbstractMap

x = derive.state("x")


def stack_of(block, layers, width=6, tokens=2, std=0.6, **values):
    """A stack in which no gain is one and no bias zero."""
    stack = Stack.initialised(
        block, x, layers, width=width, tokens=tokens, heads=2, std=std, values=values
    )
    rng = np.random.default_rng(9)
    for weights in stack.weights:
        for name, value in weights.items():
            if name.split("_")[0] in ("gain", "bias", "b", "lam", "omega"):
                weights[name] = value + rng.uniform(-0.4, 0.4, size=np.shape(value))
    return stack


def start(width=6, tokens=2):
    return np.random.default_rng(3).normal(size=(tokens, width))


BLOCKS = {
    "pre": (derive.block("pre", "layernorm", "ffn"), {(), ("F",)}),
    "post": (derive.block("post", "rmsnorm", "gated"), {(), ("F",)}),
    "post, attention": (derive.block("post", "layernorm", "causal-attention"), {(), ("A",)}),
    "deepnorm": (derive.block("deepnorm", "layernorm", "ffn"), {(), ("F",)}),
    "parallel": (derive.block("parallel", "layernorm", "ffn"), {(), ("A",), ("F",)}),
    "sandwich": (derive.block("sandwich", "layernorm", "ffn"), {(), ("F",)}),
    "ngpt": (derive.block("ngpt", "layernorm", "ffn"), {(), ("F",)}),
    "b2t": (derive.block("b2t", "layernorm", "ffn"), {(), ("A",), ("F",), ("A", "F")}),
    "pre layer": (derive.layer("pre"), {(), ("A",), ("F",), ("A", "F")}),
    "post layer": (derive.layer("post", "rmsnorm"), {(), ("A",), ("F",), ("A", "F")}),
    "no skip": (derive.block("N(F(x))", "layernorm", "ffn"), {("F",)}),
    "two sublayers in a row": (
        derive.block("x + F(N(F(x)))", "layernorm", "ffn"),
        {(), ("F", "F")},
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_terms_have_their_names_and_add_up_to_the_jacobian(name):
    block, labels = BLOCKS[name]
    stack = stack_of(block, 2, alpha=1.3)
    for terms, whole in zip(stack_terms(stack, start()), stack.jacobians(start()), strict=True):
        assert set(terms) == labels
        expected = materialise(whole)
        total = sum(materialise(t) for t in terms.values())
        np.testing.assert_allclose(total, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["post", "parallel", "b2t", "pre layer", "post layer"])
def test_terms_are_those_of_stopped_gradients_in_torch(name):
    """A path through a set of sublayers is what is left where the others' gradients are stopped."""
    torch = pytest.importorskip("torch")
    block, _ = BLOCKS[name]
    stack = stack_of(block, 1)
    weights = {k: torch.tensor(np.asarray(v)) for k, v in stack.weights[0].items()}
    (terms,) = stack_terms(stack, start())
    nn = torch.nn.functional

    def norm(z, number=""):
        gain = weights[f"gain{number}"]
        if name in ("post", "post layer"):
            return nn.rms_norm(z, (6,), gain, 1e-5)
        return nn.layer_norm(z, (6,), gain, weights[f"bias{number}"], 1e-5)

    def ffn(z):
        if name == "post":
            return (nn.silu(z @ weights["W_gate"].T) * (z @ weights["W_up"].T)) @ weights[
                "W_down"
            ].T
        hidden = nn.gelu(nn.linear(z, weights["W_1"], weights["b_1"]))
        return nn.linear(hidden, weights["W_2"], weights["b_2"])

    def attention(z):
        out = 0
        for h in range(2):
            q, k, v = (z @ weights[f"W_{c}"][h].T for c in "QKV")
            out = out + torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1) @ v @ weights["W_O"][h].T
        return out

    def run(z, live):
        A = lambda v: attention(v if "A" in live else v.detach())  # noqa: E731
        F = lambda v: ffn(v if "F" in live else v.detach())  # noqa: E731
        if name == "post":
            return norm(z + F(z))
        if name == "parallel":
            return z + A(norm(z, "_1")) + F(norm(z, "_1"))
        if name == "b2t":
            y = norm(z + A(z), "_1")
            return norm(z + y + F(y), "_2")
        if name == "pre layer":
            y = z + A(norm(z, "_1"))
            return y + F(norm(y, "_2"))
        y = norm(z + A(z), "_1")
        return norm(y + F(y), "_2")

    def jacobian(live):
        found = torch.func.jacrev(lambda z: run(z, live))(torch.tensor(start()))
        return found.reshape(12, 12).numpy()

    scale = np.abs(jacobian("AF")).max()
    for live in ("", "A", "F", "AF"):
        expected = jacobian(live)
        allowed = [t for label, t in terms.items() if set(label) <= set(live)]
        total = sum(materialise(t) for t in allowed)
        np.testing.assert_allclose(total, expected, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("name", ["residual", "siamesenorm", "hyper-connections", "mix-ln"])
def test_streams_and_mixes_have_paths_as_well(name):
    """Terms are block matrices over the streams; deleting F from the equations leaves the skip."""
    stack = placed_stack(name, 4, width=4, tokens=2, std=0.7)
    point = start(4, 2)
    layers = stack_terms(stack, point)
    for terms, whole in zip(layers, stack.jacobians(point), strict=True):
        assert set(terms) == {(), ("F",)}
        expected = materialise(whole)
        total = sum(materialise(t) for t in terms.values())
        np.testing.assert_allclose(total, expected, rtol=0, atol=1e-13 * np.abs(expected).max())
        assert np.abs(materialise(terms[()]) - expected).max() > 1e-3
    found = path_expansion(stack, point)
    assert math.fsum(found.overlaps) == pytest.approx(1.0, abs=1e-11)
    product = stack.end_to_end(point).value()
    total = sum(s.value() for s in found.sums)
    np.testing.assert_allclose(total, product, atol=1e-12 * np.abs(product).max())


def test_the_skip_part_of_hyper_connections_is_the_matrix_of_the_streams():
    values = dict(zip(("a11", "a12", "a21", "a22"), (0.9, 0.2, -0.1, 1.1), strict=True))
    stack = placed_stack("hyper-connections", 3, width=4, values=values)
    matrix = np.array([[0.9, 0.2], [-0.1, 1.1]])
    for terms in stack_terms(stack, start(4, 1)):
        np.testing.assert_allclose(materialise(terms[()]), np.kron(matrix, np.eye(4)), atol=1e-15)


def test_the_skip_part_of_post_norm_is_the_jacobian_of_the_norm():
    J = opaque_block(derive.block("post", "layernorm", "ffn"), x).jacobian
    terms = layer_terms(J)
    assert str(terms[()]) == "(1/s) diag(gain) (I - 11'/d - xhat xhat'/d)"
    assert str(terms["F",]) == "(1/s) diag(gain) (I - 11'/d - xhat xhat'/d) DF(x)"


def dense_terms(stack, point):
    return [{k: materialise(v) for k, v in layer.items()} for layer in stack_terms(stack, point)]


@pytest.mark.parametrize("name", ["pre", "post", "parallel", "b2t"])
def test_expansion_is_that_of_all_paths(name):
    block, _ = BLOCKS[name]
    stack = stack_of(block, 12 if name in ("pre", "post") else 5, width=4, tokens=1)
    point = start(4, 1)
    found = path_expansion(stack, point)
    sums = [np.zeros((4, 4)) for _ in range(found.longest + 1)]
    energies = np.zeros(found.longest + 1)
    for choice in itertools.product(*(layer.items() for layer in dense_terms(stack, point))):
        matrix = np.eye(4)
        for _, term in choice:
            matrix = term @ matrix
        length = sum(len(label) for label, _ in choice)
        sums[length] += matrix
        energies[length] += np.sum(matrix**2)
    whole = stack.end_to_end(point).value()
    scale = np.abs(whole).max()
    for k in range(found.longest + 1):
        np.testing.assert_allclose(found.sums[k].value(), sums[k], atol=1e-12 * scale)
    np.testing.assert_allclose(sum(sums), whole, atol=1e-12 * scale)
    np.testing.assert_allclose(found.energy_shares, energies / energies.sum(), rtol=1e-11)
    assert found.mean_length_by_norm == pytest.approx(
        sum(k * np.linalg.norm(s) for k, s in enumerate(sums)) / sum(map(np.linalg.norm, sums))
    )
    for k in range(found.longest):
        error = np.linalg.norm(sum(sums[k + 1 :]), 2)
        assert np.exp(found.log_errors[k]) == pytest.approx(error, rel=1e-6, abs=1e-13 * scale)
        assert error <= np.exp(found.log_error_bounds[k]) * (1 + 1e-12)
    assert found.log_error_bounds[-1] == -math.inf


def test_a_cut_expansion_knows_what_it_leaves_out():
    stack = stack_of(BLOCKS["pre"][0], 9)
    cut, full = path_expansion(stack, start(), 3), path_expansion(stack, start())
    assert (cut.order, cut.longest, len(cut.overlaps)) == (3, 9, 4)
    assert cut.rest_overlap == pytest.approx(math.fsum(full.overlaps[4:]), abs=1e-12)
    np.testing.assert_allclose(cut.energy_shares, full.energy_shares[:4], rtol=1e-12)
    assert cut.effective == full.effective
    assert math.isnan(cut.mean_length_by_norm)
    assert full.rest_overlap == 0.0


def test_contributions_are_what_deleting_a_branch_takes_away():
    """The lesion of Veit et al., with the other Jacobians kept: abstract maps scaled to nothing."""
    stack = stack_of(BLOCKS["parallel"][0], 4)
    whole = stack.end_to_end(start()).value()
    layers = dense_terms(stack, start())
    found = {(c.layer, c.branch): c for c in path_expansion(stack, start(), 1).contributions}
    assert len(found) == 8
    for (place, branch), c in found.items():
        without = np.eye(12)
        for k, layer in enumerate(layers):
            terms = (t for label, t in layer.items() if (k, label) != (place, (branch,)))
            without = sum(terms) @ without
        moved = np.linalg.norm(whole - without) / np.linalg.norm(whole)
        assert c.relative_norm == pytest.approx(moved, rel=1e-10)


def test_abstract_sublayers_take_their_numbers_from_the_user():
    matrix = np.random.default_rng(0).normal(size=(4, 4)) / 2
    maps = {"F": AbstractMap(lambda z: z @ matrix.T, lambda z: np.tile(matrix, (len(z), 1, 1)))}
    stack = Stack(x + derive.Sublayer("F")(x), x, [{}] * 5, maps)
    found = path_expansion(stack, start(4, 1))
    for k in range(6):
        expected = math.comb(5, k) * np.linalg.matrix_power(matrix, k)
        np.testing.assert_allclose(found.sums[k].value(), expected, atol=1e-13)


def test_two_sublayers_of_one_name_are_told_apart():
    block = derive.block("parallel", "layernorm", "causal-attention")
    assert set(opaque_block(block, x).concrete) == {"A", "F"}
    other = derive.LayerNorm(label=1)
    same = derive.FFN("relu", label="a")(other(x)) + derive.FFN("gelu", label="b")(x) + x
    assert set(opaque_block(same, x).concrete) == {"F", "F_2"}


@pytest.mark.parametrize("name", ["pre", "post"])
def test_no_layers_and_zero_branches(name):
    block, _ = BLOCKS[name]
    empty = path_expansion(Stack(block, x, []), start())
    assert (empty.log_norm, empty.overlaps, empty.effective.overlap) == (0.0, [1.0], 0.0)
    still = path_expansion(stack_of(block, 3, std=0.0), start(), 2)
    assert still.overlaps == [pytest.approx(1.0), 0.0, 0.0]
    assert still.effective.energy == 0.0


@pytest.mark.parametrize(
    ("name", "layers"),
    [("pre", 200), ("post", 200), pytest.param("post", 1000, marks=pytest.mark.slow)],
)
def test_deep_stacks_stay_finite(name, layers):
    stack = Stack.initialised(derive.block(name, "layernorm", "ffn"), x, layers, width=4)
    found = path_expansion(stack, start(4, 1), 2, strong_length=1)
    assert np.isfinite(found.log_norm)
    assert np.isfinite(found.effective.energy)
    assert found.log_norm == pytest.approx(stack.log_norm(start(4, 1)), abs=1e-8)
    total = math.fsum(c.overlap for c in found.contributions)
    assert total == pytest.approx(found.effective.overlap, rel=1e-6)


def test_negative_order_is_named():
    with pytest.raises(DomainError, match="order: expected an integer >= 0, got -1"):
        path_expansion(stack_of(BLOCKS["pre"][0], 2), start(), -1)


def test_rows_hold_the_numbers():
    stack = stack_of(BLOCKS["pre"][0], 4)
    row = expansion_row(path_expansion(stack, start(), 2))
    assert [r["length"] for r in row["lengths"]] == [0, 1, 2]
    assert row["rest_overlap"] + sum(r["overlap"] for r in row["lengths"]) == pytest.approx(1.0)
    limit = continuum_row(stack, start())
    first = limit["refinements"][0]
    assert first["parts"] == 1
    assert first["log_error"] <= first["log_bound"]
    norms = [np.linalg.norm(materialise(a), 2) for a in stack.branches(start())]
    assert limit["magnus"]["action"] == pytest.approx(sum(norms))
