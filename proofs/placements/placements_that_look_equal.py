r"""Pairs that look equal and are not: normed residual and pre-norm, sandwich and pre-norm, post.

Each witness is in two dimensions with the sublayer F(z) = z, unit gains and eps = 1.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from proofs.placements._shared import layernorm_at, linear
from proofs.setting import block_jacobian, identity, x

__all__ = ["theorem"]

AT = {
    "x": (1, 3),
    "W": ((1, 0), (0, 1)),
    "eps": 1,
    **{name: (1, 1) for name in ("gain", "gain_1", "gain_2")},
    **{name: (0, 0) for name in ("bias", "bias_1", "bias_2")},
}


def _jacobian(name: str) -> sp.Basic:
    return derive.jacobian(derive.block(name, sublayer_=linear, x=x), x)


def _differ(words: str, by: str, first: str, second: str, stated: str) -> Step:
    """Return the step that two placements differ at the witness."""
    return Step(
        words,
        by,
        Counterexample(
            claim=lambda name: (_jacobian(name), _jacobian(second)),
            of=lambda: first,
            instead=lambda: second,
            relation="!=",
            stated=(stated, "0"),
            at=AT,
        ),
    )


theorem = Theorem(
    id="placements-that-look-equal",
    area="placements",
    title="Placements that look equal",
    statement=(
        "The normed residual N(x) + F(N(x)) is pre-norm, since the norm comes first; the second "
        "norm of the sandwich can be absorbed into the branch; N(x + F(x)) and x + N(F(x)) differ "
        "in a constant only."
    ),
    verdict=Verdict.REFUTED,
    steps=(
        _differ(
            "The normed residual is not pre-norm.",
            "the skip carries N(x), not x",
            "normed-residual",
            "pre",
            "0.823223305",
        ),
        _differ(
            "The sandwich is not pre-norm.",
            "the second norm divides by the branch's own size",
            "sandwich",
            "pre",
            "0.0805516504",
        ),
        _differ(
            "Post-norm is not res-post.",
            "the norm of a sum is not the sum of norms",
            "post",
            "res-post",
            "1.08733398",
        ),
        Step(
            r"What is true of the first pair: the Jacobians differ by $I - J_N(x)$, that of the "
            "skip, at every input and for every sublayer.",
            "both branches are the same",
            Identity(
                claim=lambda name: (
                    block_jacobian("pre")() - block_jacobian(name)(),
                    identity - layernorm_at(x),
                ),
                of=lambda: "normed-residual",
                instead=lambda: "res-post",
            ),
        ),
    ),
    holds_when="never in general; at a point where the norm acts as the identity on a direction.",
    fails_when="the norm changes its input, which it does wherever a norm is needed.",
)
