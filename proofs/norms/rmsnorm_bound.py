r"""How much RMSNorm can stretch a vector: max|g|/r, and never more than max|g|/sqrt(eps).

The core A = I - xhat xhat'/d is symmetric with A - A^2 = (eps/(d r^2)) xhat xhat', not negative.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

import derive
from derive.calculus.atoms import Inner
from derive.calculus.derivation import Derivation
from derive.proof import AtMost, Bound, Contraction, MaxAbs, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.norms.rmsnorm_jacobian import theorem as jacobian
from proofs.setting import derived, gain, identity, norm, r, x

__all__ = ["theorem"]


def _facts(D: Derivation) -> list[Any]:
    root, xhat = derived("r", D), derived("xhat", D)
    return [
        Contraction(identity - xhat * xhat.T / d, [(eps / (d * root**2), xhat)]),
        AtMost(1 / root, 1 / r, sp.S.Zero, power=-2),
        AtMost(1 / r, 1 / sp.sqrt(eps), Inner(x, x) / d, power=-2),
    ]


def _half_eps() -> Derivation:
    return derive.derivation(derive.RMSNorm(eps=eps / 4)(x), x)


theorem = Theorem(
    id="rmsnorm-bound",
    area="norms",
    title="The norm of RMSNorm's Jacobian",
    statement=(
        r"$\lVert J_{RMS}\rVert_2 \le \lVert\gamma\rVert_\infty/r \le "
        r"\lVert\gamma\rVert_\infty/\sqrt\epsilon$ at every input."
    ),
    verdict=Verdict.PROVED,
    uses=(jacobian,),
    steps=(
        Step(
            r"At an input with root $r$ the norm is at most $\lVert\gamma\rVert_\infty/r$.",
            "the core of the Jacobian is a contraction",
            Bound(
                claim=lambda D: (SpectralNorm(D.jacobian), MaxAbs(gain) / r),
                of=norm("rmsnorm"),
                instead=_half_eps,
                facts=_facts,
            ),
        ),
        Step(
            r"Since $r^2 - \epsilon = |x|^2/d$, it is at most "
            r"$\lVert\gamma\rVert_\infty/\sqrt\epsilon$.",
            "the root is at least the square root of eps",
            Bound(
                claim=lambda D: (SpectralNorm(D.jacobian), MaxAbs(gain) / sp.sqrt(eps)),
                of=norm("rmsnorm"),
                instead=_half_eps,
                facts=_facts,
            ),
        ),
    ),
)
