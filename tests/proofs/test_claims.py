"""Every claim is proved for every d, and each of its perturbations is rejected."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

import derive
from derive.calculus.atoms import Matrix, Ones
from derive.calculus.normal_form import equal
from derive.calculus.tensor import is_scalar
from derive.errors import UnknownNodeError
from derive.initialise import initial_weights
from derive.linalg import materialise
from derive.lower import lower
from derive.symbols import d
from proofs import equal_placements, norm_comparison, norm_identities

CLAIMS = norm_identities.CLAIMS + norm_comparison.CLAIMS + equal_placements.CLAIMS
REJECTED = norm_comparison.REJECTED + equal_placements.REJECTED


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.id)
def test_claim_is_proved_for_every_d(claim):
    certificate = claim.certificate()
    assert certificate.holds
    assert certificate.kind == "identity"


def _unit(expr):
    """Something of the same shape that is not zero."""
    if is_scalar(expr):
        return sp.S.One
    rows, cols = expr.shape
    if cols == 1:
        return Ones(rows)
    return Ones(cols).T if rows == 1 else sp.Identity(rows)


PERTURBATIONS = {
    "one more": lambda right: right + _unit(right),
    "one less": lambda right: right - _unit(right),
    "sign flipped, one more": lambda right: -1 * right + _unit(right),
    "factor 1.01": lambda right: sp.Rational(101, 100) * right,
    "sign flipped": lambda right: -1 * right,
    "zero": lambda right: 0 * right,
}


def _cases():
    for claim in CLAIMS:
        _, right = claim.sides()
        vanishes = right == 0 or getattr(right, "is_ZeroMatrix", False)
        for name, perturb in PERTURBATIONS.items():
            if not (vanishes and name in ("factor 1.01", "sign flipped", "zero")):
                yield pytest.param(claim, perturb, id=f"{claim.id}-{name}")


@pytest.mark.parametrize(("claim", "perturb"), list(_cases()))
def test_perturbed_claim_is_rejected(claim, perturb):
    left, right = claim.sides()
    assert not equal(left, perturb(right))


@pytest.mark.parametrize("claim", REJECTED, ids=lambda c: c.id)
def test_what_does_not_hold_is_rejected(claim):
    assert not claim.certificate().holds


def test_trace_of_a_matrix_without_a_rule():
    with pytest.raises(UnknownNodeError, match="trace: expected"):
        norm_comparison.trace(Matrix("W", d, d))


@pytest.mark.parametrize(
    ("jacobian", "rank"),
    [(norm_comparison.LN0, 3), (norm_comparison.RMS0, 4), (norm_comparison.UNIT, 4)],
    ids=["layernorm", "rmsnorm", "unit"],
)
def test_ranks_at_width_five_in_floating_point(jacobian, rank):
    """The ranks that the traces give, by singular values of the lowered Jacobian."""
    state = np.random.default_rng(0).normal(size=(1, 5))
    values = np.linalg.svd(materialise(lower(jacobian, {}, state)), compute_uv=False)
    assert (values > 1e-10).sum() == rank


def test_certificate_reports_a_wrong_claim():
    claim = next(c for c in CLAIMS if c.id == "layernorm-jacobian")
    left, right = claim.sides()
    wrong = dataclasses.replace(claim, sides=lambda: (left, 2 * right))
    assert not wrong.certificate().holds


def test_ids_are_unique_and_every_claim_has_a_source():
    claims = CLAIMS + REJECTED
    assert len({c.id for c in claims}) == len(claims)
    assert all(c.statement and c.source for c in claims)


def test_the_page_on_checks_lists_every_pair_of_equal_placements():
    page = (Path(__file__).parents[2] / "docs" / "checks.md").read_text()
    pairs = [*equal_placements.CLAIMS, *equal_placements.REJECTED]
    pairs += [c for c in norm_comparison.CLAIMS if c.id.startswith("residual-scale")]
    assert {c.id for c in pairs if f"`{c.id}`" not in page} == set()


@pytest.mark.parametrize(
    ("left", "right", "weights"),
    [
        ("scaled-residual", "pre", {"W_2": 1.7}),
        ("lns", "pre", {"gain": 0.6, "bias": 0.6}),
    ],
)
def test_equal_pairs_in_floating_point(left, right, weights):
    """The claims by numbers: one Jacobian in the changed weights, and not without the change."""
    x = derive.state("x")
    rng = np.random.default_rng(0)
    blocks = [derive.block(name, sublayer_="ffn", x=x) for name in (left, right)]
    drawn = {
        name: rng.normal(size=value.shape)
        for name, value in initial_weights(blocks[1], width=5).items()
        if np.ndim(value)
    }
    drawn |= {"eps": 0.1, "alpha": 1.7, "beta": 0.6}
    state = rng.normal(size=(1, 5))
    moved = {**drawn, **{name: factor * drawn[name] for name, factor in weights.items()}}
    first, second, unmoved = (
        materialise(lower(derive.jacobian(block, x), values, state))
        for block, values in zip((*blocks, blocks[1]), (drawn, moved, drawn), strict=True)
    )
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-14 * np.abs(first).max())
    assert np.abs(first - unmoved).max() > 1e-2
