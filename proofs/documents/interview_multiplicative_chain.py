"""Multiplicative chain against identity-plus-delta chain: both are products."""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Diag, Matrix
from derive.calculus.maps import JacobianOf
from derive.proof import Gaussian, Identity, Step, Theorem, Verdict
from derive.symbols import L, d
from proofs.bibliography import INTERVIEW
from proofs.depth._shared import WIDE
from proofs.depth.skip_path_weight import theorem as skip_path_weight
from proofs.documents._shared import centred, law, root
from proofs.setting import F, block_jacobian, gain, identity, one, x

__all__ = ["theorem"]

_A1, _A2 = Matrix("A_1", d, d), Matrix("A_2", d, d)
_u = x + F(x)
_v = sp.Symbol("v", positive=True)


theorem = Theorem(
    id="interview-multiplicative-chain",
    area="documents",
    title="Two kinds of chains",
    statement=(
        "Post-norm's gradient is a multiplicative chain, pre-norm's an identity-plus-delta chain."
    ),
    verdict=Verdict.CONDITIONAL,
    uses=(skip_path_weight,),
    steps=(
        Step(
            "Pre-norm's is a product as well: two blocks hold $A_2A_1$.",
            "the product multiplied out",
            Identity(
                claim=lambda stack: (stack - identity - _A1 - _A2, _A2 * _A1),
                of=lambda: (identity + _A2) * (identity + _A1),
                instead=lambda: identity + _A2 + _A1,
            ),
        ),
        Step(
            (
                "The difference is in the factors: post-norm's are $J_N(u)(I + "
                r"D\!F(x))$, with a norm on the skip."
            ),
            "chain rule",
            Identity(
                claim=lambda J: (
                    J,
                    1
                    / root(_u)
                    * Diag(gain)
                    * (
                        identity
                        - one * one.T / d
                        - centred(_u) * centred(_u).T / (d * root(_u) ** 2)
                    )
                    * (identity + JacobianOf(F, x)),
                ),
                of=block_jacobian("post"),
                instead=block_jacobian("pre"),
            ),
        ),
        Step(
            (
                "Of L relu post-norm blocks the skip alone carries $(2/3)^L$ of the "
                "squared gradient, while the whole carries 1."
            ),
            "a block divides by $1 + f = 3/2$",
            Gaussian(
                claim=lambda found: (
                    (1 / found.recursion[0].subs(_v, 1)) ** L,
                    sp.Rational(2, 3) ** L,
                ),
                of=law("no-norm"),
                instead=law("x + N(F(x))"),
                name=r"w_{skip}",
            ),
        ),
    ),
    sources=(
        INTERVIEW("paragraph on post-norm", seen="text"),
        INTERVIEW("table, gradient behaviour", seen="text"),
    ),
    assumptions=(WIDE,),
    holds_when=(
        "What is compared is a single factor: with an identity among its summands, or not."
    ),
    fails_when="It is read as product against sum.",
)
