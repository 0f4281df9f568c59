"""What the theorems on norms and placements say, in floating point and beside the catalogue."""

import inspect
from pathlib import Path

import numpy as np
import pytest

import derive
from derive.blocks.norms import L2Norm
from derive.blocks.placements import PLACEMENTS, STREAMS
from derive.initialise import initial_weights
from derive.linalg import materialise
from derive.lower import lower
from derive.proof import Verdict, collected
from proofs.placements import (
    jacobians_identity_skip,
    jacobians_norm_on_the_skip,
    jacobians_of_layers,
    jacobians_of_streams,
    residual_scale_in_norm,
)

x = derive.state("x")


@pytest.mark.parametrize(
    ("norm", "rank"),
    [
        (derive.LayerNorm(eps=0, gain=False, bias=False), 3),
        (derive.RMSNorm(eps=0, gain=False), 4),
        (L2Norm(), 4),
    ],
    ids=["layernorm", "rmsnorm", "unit"],
)
def test_ranks_at_width_five(norm, rank):
    """The ranks that the traces give, by singular values of the lowered Jacobian."""
    state = np.random.default_rng(0).normal(size=(1, 5))
    lowered = materialise(lower(derive.jacobian(norm(x), x), {}, state))
    assert (np.linalg.svd(lowered, compute_uv=False) > 1e-10).sum() == rank


def _drawn(block):
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(size=value.shape)
        for name, value in initial_weights(block, width=5).items()
        if np.ndim(value)
    }
    return weights | {"eps": 0.1, "alpha": 1.7, "beta": 0.6}, rng.normal(size=(1, 5))


@pytest.mark.parametrize(
    ("left", "right", "weights"),
    [
        ("scaled-residual", "pre", {"W_2": 1.7}),
        ("lns", "pre", {"gain": 0.6, "bias": 0.6}),
    ],
)
def test_equal_pairs(left, right, weights):
    """One Jacobian in the changed weights, and not without the change."""
    blocks = [derive.block(name, sublayer_="ffn", x=x) for name in (left, right)]
    drawn, state = _drawn(blocks[1])
    moved = {**drawn, **{name: factor * drawn[name] for name, factor in weights.items()}}
    first, second, unmoved = (
        materialise(lower(derive.jacobian(block, x), values, state))
        for block, values in zip((*blocks, blocks[1]), (drawn, moved, drawn), strict=True)
    )
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-14 * np.abs(first).max())
    assert np.abs(first - unmoved).max() > 1e-2


def test_a_pre_norm_block_of_rank_two():
    """The witness of `pre-norm-singular`, its branch set up by hand at width 7."""
    state = np.random.default_rng(1).normal(size=7)
    c = state - state.mean()
    s = np.sqrt(c @ c / 7)
    Q = np.eye(7) - 1 / 7 - np.outer(c, c) / (c @ c)
    h = 1e-6

    def block(z):
        return z - s * Q @ ((z - z.mean()) / z.std())

    J = np.column_stack(
        [(block(state + h * e) - block(state - h * e)) / (2 * h) for e in np.eye(7)]
    )
    values = np.linalg.svd(J, compute_uv=False)
    assert (values > 1e-6).sum() == 2


def test_the_jacobian_of_every_placement_is_typed_and_checked():
    """One step each, in the files that are grouped by family."""
    families = (jacobians_norm_on_the_skip, jacobians_identity_skip, jacobians_of_layers)
    sources = "".join(map(inspect.getsource, families))
    assert {name for name in PLACEMENTS if f'"{name}",' not in sources} == set()
    source = inspect.getsource(jacobians_of_streams)
    assert {name for name in STREAMS if f'"{name}",' not in source} == set()


def test_the_page_on_checks_names_the_theorems_on_pairs():
    page = (Path(__file__).parents[2] / "docs" / "checks.md").read_text()
    theorems = collected()
    for id_, verdict in (
        (residual_scale_in_norm.theorem.id, Verdict.CONDITIONAL),
        ("placements-special-values", Verdict.PROVED),
        ("scales-in-weights", Verdict.PROVED),
        ("rmsnorm-is-l2norm", Verdict.CONDITIONAL),
        ("placements-that-look-equal", Verdict.REFUTED),
    ):
        assert f"`{id_}`" in page
        assert theorems[id_].verdict is verdict
