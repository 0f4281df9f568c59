r"""How much LayerNorm can stretch a vector: max|g|/s, and never more than max|g|/sqrt(eps).

The core A of the Jacobian is symmetric with A - A^2 = (eps/(d s^2)) xhat xhat', not negative, so
that its eigenvalues lie between 0 and 1.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

import derive
from derive.calculus.atoms import Inner
from derive.calculus.derivation import Derivation
from derive.proof import AtMost, Bound, Contraction, MaxAbs, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.bibliography import XIONG
from proofs.norms.layernorm_jacobian import theorem as jacobian
from proofs.setting import c, derived, gain, identity, norm, one, s, x

__all__ = ["theorem"]


def _facts(D: Derivation) -> list[Any]:
    root, xhat = derived("s", D), derived("xhat", D)
    core = identity - one * one.T / d - xhat * xhat.T / d
    return [
        Contraction(core, [(eps / (d * root**2), xhat)]),
        AtMost(1 / root, 1 / s, sp.S.Zero, power=-2),
        AtMost(1 / s, 1 / sp.sqrt(eps), Inner(c, c) / d, power=-2),
    ]


def _half_eps() -> Derivation:
    return derive.derivation(derive.LayerNorm(eps=eps / 4)(x), x)


theorem = Theorem(
    id="layernorm-bound",
    area="norms",
    title="The norm of LayerNorm's Jacobian",
    statement=(
        r"$\lVert J_{LN}\rVert_2 \le \lVert\gamma\rVert_\infty/s \le "
        r"\lVert\gamma\rVert_\infty/\sqrt\epsilon$ at every input."
    ),
    verdict=Verdict.PROVED,
    uses=(jacobian,),
    steps=(
        Step(
            r"At an input with root $s$ the norm is at most $\lVert\gamma\rVert_\infty/s$.",
            "the core of the Jacobian is a contraction",
            Bound(
                claim=lambda D: (SpectralNorm(D.jacobian), MaxAbs(gain) / s),
                of=norm("layernorm"),
                instead=_half_eps,
                facts=_facts,
            ),
        ),
        Step(
            r"Since $s^2 - \epsilon = |c|^2/d$, it is at most "
            r"$\lVert\gamma\rVert_\infty/\sqrt\epsilon$.",
            "the root is at least the square root of eps",
            Bound(
                claim=lambda D: (SpectralNorm(D.jacobian), MaxAbs(gain) / sp.sqrt(eps)),
                of=norm("layernorm"),
                instead=_half_eps,
                facts=_facts,
            ),
        ),
    ),
    sources=(XIONG("Lemma 3, whose denominator is |x| where it has to be |c|", seen="text"),),
    remark=(
        r"The second bound is attained at constant inputs with unit gain, so that "
        r"$\lVert\gamma\rVert_\infty/\sqrt\epsilon$ is the Lipschitz constant there."
    ),
)
