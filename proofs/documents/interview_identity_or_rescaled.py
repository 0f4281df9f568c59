"""Placement decides whether the residual is an identity or gets rescaled."""

from __future__ import annotations

import derive
from derive.calculus.atoms import Diag
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import INTERVIEW
from proofs.setting import block, c, gain, identity, one, s, x

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-identity-or-rescaled",
    area="documents",
    title="Identity or rescaled",
    statement=(
        "The placement determines whether the residual path is an identity "
        "(pre-norm) or gets rescaled at every layer (post-norm)."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "With a sublayer that does nothing pre-norm is the identity.",
            "$x + 0$",
            Identity(
                claim=lambda J: (J, identity),
                of=lambda: derive.jacobian(block("x + 0*F(N(x))"), x),
                instead=lambda: derive.jacobian(block("N(x + 0*F(x))"), x),
            ),
        ),
        Step(
            "Post-norm is the norm then, with the norm's Jacobian.",
            "$N(x + 0)$",
            Identity(
                claim=lambda J: (
                    J,
                    (1 / s * Diag(gain) * (identity - one * one.T / d - c * c.T / (d * s**2))),
                ),
                of=lambda: derive.jacobian(block("N(x + 0*F(x))"), x),
                instead=lambda: derive.jacobian(block("x + 0*F(N(x))"), x),
            ),
        ),
    ),
    sources=(
        INTERVIEW("second answer, first paragraph", seen="text"),
        INTERVIEW("short summary; most common mistake", seen="text"),
    ),
    remark=(
        "There are more than two: sandwich and res-post keep the identity "
        "with other norms in the branch, DeepNorm rescales by nearly 1."
    ),
)
