r"""Xiong's Lemma 3 divides by |x| where it has to be |x - mean|.

LayerNorm does not see a shift: J(x + m 1) = J(x), while sqrt(d)/|x + m 1| tends to 0 with m. With
the deviations c in place of x the bound holds, with constant 1.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

import derive
from derive.calculus.atoms import Inner, Vector
from derive.calculus.derivation import Derivation
from derive.proof import (
    AtMost,
    Bound,
    Contraction,
    Counterexample,
    Identity,
    MaxAbs,
    SpectralNorm,
    Step,
    Theorem,
    Verdict,
)
from derive.symbols import d, eps
from proofs.bibliography import XIONG
from proofs.norms.layernorm_bound import theorem as layernorm_bound
from proofs.setting import c, derived, gain, identity, norm, one, s, x

__all__ = ["theorem"]

m = sp.Symbol("m", real=True)
u = Vector("u", d)


def shifted(kind: str) -> Any:
    """Return a subject: the Jacobians of a norm at x + m 1 and at x."""

    def subject() -> tuple[sp.Basic, sp.Basic]:
        return derive.jacobian(derive.norm(kind)(x + m * one), x), norm(kind)().jacobian

    return subject


def _facts(D: Derivation) -> list[Any]:
    root, xhat = derived("s", D), derived("xhat", D)
    core = identity - one * one.T / d - xhat * xhat.T / d
    return [
        Contraction(core, [(eps / (d * root**2), xhat)]),
        AtMost(1 / root, 1 / s, sp.S.Zero, power=-2),
        AtMost(1 / s, sp.sqrt(d / Inner(c, c)), eps, power=-2),
    ]


def _stretch(J: sp.Basic) -> tuple[sp.Basic, sp.Basic]:
    """Return |J u|^2/|u|^2 over the square of sqrt(d)/|x|, and 1."""
    return Inner(J * u, J * u) * Inner(x, x) / (d * Inner(u, u)), sp.S.One


WITNESS = {
    "x": ("100.001", "99.999", 100),
    "u": (1, 1, -2),
    "gain": (1, 1, 1),
    "bias": (0, 0, 0),
    "eps": 0,
}

theorem = Theorem(
    id="xiong-lemma-3",
    area="literature",
    title="The norm of LayerNorm's Jacobian against the length of its input",
    statement=r"$\lVert J_{LN}(x)\rVert_2 = O(\sqrt d/\lVert x\rVert_2)$, at unit gain.",
    verdict=Verdict.REFUTED,
    uses=(layernorm_bound,),
    steps=(
        Step(
            r"$J_{LN}(x + m\mathbf 1) = J_{LN}(x)$, so that no constant can do.",
            "deviations do not change; the bound tends to 0 with m",
            Identity(
                name=r"J_{LN}(x + m\mathbf 1)",
                claim=lambda both: both,
                of=shifted("layernorm"),
                instead=shifted("rmsnorm"),
            ),
        ),
        Step(
            r"At $x = (100.001, 99.999, 100)$ the square is larger by $1.5\cdot10^{10}$.",
            "rational arithmetic; u is orthogonal to 1 and to c",
            Counterexample(
                claim=_stretch,
                of=lambda: norm("layernorm")().jacobian,
                instead=lambda: norm("rmsnorm")().jacobian,
                relation=">",
                stated=("15000000001", "1"),
                at=WITNESS,
                width=3,
            ),
        ),
        Step(
            r"What is true: $\lVert J_{LN}\rVert_2 \le \lVert\gamma\rVert_\infty\sqrt d/|c|$ with "
            r"$c = x - \mu\mathbf 1$.",
            r"the bound by $1/s$, and $s^2 \ge |c|^2/d$",
            Bound(
                claim=lambda D: (SpectralNorm(D.jacobian), MaxAbs(gain) * sp.sqrt(d / Inner(c, c))),
                of=norm("layernorm"),
                instead=lambda: derive.derivation(3 * derive.LayerNorm()(x), x),
                facts=_facts,
            ),
        ),
    ),
    sources=(XIONG("Lemma 3 and its proof, which replaces |y| by |x|", seen="text"),),
    holds_when=r"$|x|$ is read as $|x - \mu\mathbf 1|$, or the norm is RMSNorm.",
    fails_when="the mean dominates the deviations.",
    remark=(
        "For the streams of the paper, whose mean is of order 1 beside root d, the difference does "
        "not matter, and neither does it for its theorem."
    ),
)
