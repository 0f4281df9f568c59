"""Stacks by the name of a placement: its scalars by depth, its streams, its mixture."""

import numpy as np
import pytest
import sympy as sp

import derive
from derive.blocks.placements import MIXES, PLACEMENTS, STREAMS, Mix
from derive.depth import placed_stack, starting_scalars
from derive.errors import DomainError, ShapeError, UnknownNameError, WeightError
from derive.linalg import BlockMatrix, Dense, materialise

WIDTH, TOKENS = 6, 2
MHC = {"a": 0.3, "b1": 0.7, "b2": 1.2, "c1": 0.4, "c2": 0.6}


def made(name, layers=3, **options):
    values = MHC if name == "mhc" else None
    return placed_stack(name, layers, width=WIDTH, tokens=TOKENS, values=values, **options)


@pytest.fixture
def start():
    return np.random.default_rng(3).normal(size=(TOKENS, WIDTH))


def differences(stack, start, step=1e-6):
    """Central differences of the last state, streams stacked one after the other."""
    first = stack.states(start)[0]
    columns = []
    for place in range(first.size):
        ends = []
        for sign in (1, -1):
            moved = first.copy()
            moved.flat[place] += sign * step
            ends.append(stack.states(moved)[-1].ravel())
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.array(columns).T


@pytest.mark.parametrize("sublayer", ["ffn", "causal-attention"])
@pytest.mark.parametrize("name", [*PLACEMENTS, *STREAMS, *MIXES])
def test_product_is_the_derivative_of_the_stack(name, sublayer, start):
    stack = made(name, sublayer=sublayer, heads=2)
    found = stack.end_to_end(start).value()
    expected = differences(stack, start)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * np.abs(expected).max())
    assert stack.log_norm(start) == pytest.approx(np.log(np.linalg.norm(found, 2)), abs=1e-10)


@pytest.mark.parametrize("name", STREAMS)
def test_branches_and_products_of_streams(name, start):
    stack = made(name)
    jacobians, branches = stack.jacobians(start), stack.branches(start)
    size = len(STREAMS[name].equations) * TOKENS * WIDTH
    for whole, branch in zip(jacobians, branches, strict=True):
        assert whole.shape == (size, size)
        dense = materialise(whole)
        np.testing.assert_allclose(materialise(branch), dense - np.eye(size), rtol=0, atol=1e-13)
        np.testing.assert_allclose(materialise(whole.T), dense.T, rtol=0, atol=1e-13)
    sums = stack.path_sums(start)
    np.testing.assert_allclose(sum(sums), stack.end_to_end(start).value(), rtol=0, atol=1e-10)
    assert stack.gradient_log_norms(start, np.ones(size)).shape == (4,)


def test_states_of_streams(start):
    stack = made("residual", layers=2)
    states = stack.states(start)
    assert [s.shape for s in states] == [(2, TOKENS, WIDTH)] * 3
    np.testing.assert_array_equal(states[0][0], states[0][1])
    apart = stack.states(np.stack([start, 2 * start]))
    np.testing.assert_allclose(apart[1][0], states[1][0], atol=1e-14)  # x' does not see r
    np.testing.assert_allclose(apart[1][1] - states[1][1], start, atol=1e-14)  # r' adds to it
    with pytest.raises(ShapeError, match=r"x: expected an array \(n, d\), or \(2, n, d\)"):
        stack.states(np.zeros((3, TOKENS, WIDTH)))


SCALARS = {
    ("deepnorm", 1, 24): {"alpha": 24**0.25},
    ("lns", 4, 24): {"beta": 0.5},
    ("keel", 1, 7): {"alpha": 7.0},
    ("rezero", 2, 7): {"alpha": 0.0},
    ("layerscale", 1, 24): {"lam": 0.1},
    ("layerscale", 1, 48): {"lam": 1e-5},
    ("layerscale", 1, 72): {"lam": 1e-6},
    ("post", 1, 24): {},
    ("x + F(x)", 1, 24): {},
}


@pytest.mark.parametrize("case", SCALARS)
def test_scalars_at_the_start(case):
    assert starting_scalars(*case) == pytest.approx(SCALARS[case], rel=1e-15)


def test_scalars_reach_the_weights():
    stack = placed_stack("lns", 4, width=4)
    assert [w["beta"] for w in stack.weights] == pytest.approx([1, 2**-0.5, 3**-0.5, 0.5])
    stack = placed_stack("lns", 2, width=4, values={"beta": 0.25})
    assert [w["beta"] for w in stack.weights] == [0.25, 0.25]
    stack = placed_stack("layerscale", 2, width=4)
    np.testing.assert_array_equal(stack.weights[1]["lam"], np.full(4, 0.1))
    with pytest.raises(ShapeError, match=r"values: expected a number or an array of shape \(4,\)"):
        placed_stack("layerscale", 2, width=4, values={"lam": [1.0, 2.0]})


def test_a_value_moves_no_other_weight():
    one, two = (placed_stack("layerscale", 1, width=4, values={"lam": v}) for v in (0.1, 0.2))
    for name in one.weights[0]:
        if name != "lam":
            np.testing.assert_array_equal(one.weights[0][name], two.weights[0][name])


def test_mixture():
    assert MIXES["mix-ln"].layout(8) == ("post",) * 2 + ("pre",) * 6
    assert MIXES["mix-ln"].layout(3) == ("pre",) * 3  # a quarter of 3 is rounded down to none
    assert MIXES["mix-ln"].layout(0) == ()
    third = Mix("m", (("a", sp.Rational(1, 3)), ("b", sp.Rational(2, 3)), ("c", sp.S.One)), "own")
    assert third.layout(7) == ("a",) * 2 + ("b",) * 2 + ("c",) * 3
    with pytest.raises(DomainError, match="blocks: expected at least 0, got -1"):
        third.layout(-1)
    stack = placed_stack("mix-ln", 4, width=4)
    assert [str(D.block) for D in stack.derivations] == ["N(x + F(x))"] + ["x + F(N(x))"] * 3


def test_no_layers(start):
    for name in ("pre", "residual", "mix-ln"):
        stack = made(name, layers=0)
        assert stack.log_norm(start) == 0.0
    with pytest.raises(DomainError, match="layers: expected at least 0, got -1"):
        made("pre", layers=-1)


def test_a_scalar_without_a_value():
    with pytest.raises(WeightError, match="no value for the scalar a"):
        placed_stack("mhc", 1, width=4)
    with pytest.raises(UnknownNameError, match="mix-ln"):
        placed_stack("psot", 1, width=4)


def test_two_states_need_two_arrays():
    x, r = derive.state("x"), derive.state("r")
    state = np.ones((1, 3))
    with pytest.raises(WeightError, match="the expression has r, x"):
        derive.lower.evaluate(x + r, {}, state)
    np.testing.assert_array_equal(derive.lower.evaluate(x + r, {"r": 2 * state}, state), 3 * state)
    with pytest.raises(ShapeError, match="state r: expected 1 tokens"):
        derive.lower.evaluate(x + r, {"r": np.ones((2, 3))}, state)


def test_block_matrix_refuses():
    op = Dense(np.eye(2), 1)
    for grid in ([], [[op], [op]], [[op, op]]):
        with pytest.raises(ShapeError, match="blocks: expected a square grid"):
            BlockMatrix(grid)
    with pytest.raises(ShapeError, match="square blocks of one size"):
        BlockMatrix([[op, op], [op, Dense(np.eye(3), 1)]])
    with pytest.raises(derive.errors.UnknownNodeError, match="expected Operators, got ndarray"):
        BlockMatrix([[np.eye(2)]])


@pytest.mark.parametrize("name", ["hybridnorm", "normformer", "sub-ln"])
def test_a_group_norm_inside_a_sublayer_has_groups_of_its_own_width(name):
    start = np.random.default_rng(0).normal(size=(TOKENS, 8))
    stack = placed_stack(
        name, 2, width=8, tokens=TOKENS, heads=2, groups=2, norm="groupnorm", sublayer="attention"
    )
    found = stack.end_to_end(start).value()
    expected = differences(stack, start)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * np.abs(expected).max())
