r"""Peri-LN's bound of a weight gradient by 1/|a| needs |a - mean| under LayerNorm.

For x + N(a), a = W h, the gradient of W is (J_N' g) h'. Under RMSNorm |J_N' g| is at most
max|gain| sqrt(d)/|a| |g|. Under LayerNorm a shift of a makes |a| large and changes nothing else.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

import derive
from derive.calculus.atoms import Inner
from derive.calculus.derivation import Derivation
from derive.proof import (
    AtMost,
    Bound,
    Contraction,
    Counterexample,
    MaxAbs,
    SpectralNorm,
    Step,
    Theorem,
    Verdict,
)
from derive.symbols import d, eps
from proofs.bibliography import PERI
from proofs.literature.xiong_lemma_3 import WITNESS, u
from proofs.literature.xiong_lemma_3 import theorem as lemma
from proofs.norms.rmsnorm_bound import theorem as rmsnorm_bound
from proofs.setting import derived, gain, identity, norm, r, x

__all__ = ["theorem"]


def _facts(D: Derivation) -> list[Any]:
    root, xhat = derived("r", D), derived("xhat", D)
    return [
        Contraction(identity - xhat * xhat.T / d, [(eps / (d * root**2), xhat)]),
        AtMost(1 / root, 1 / r, sp.S.Zero, power=-2),
        AtMost(1 / r, sp.sqrt(d / Inner(x, x)), eps, power=-2),
    ]


def _stretch(J: sp.Basic) -> tuple[sp.Basic, sp.Basic]:
    """Return |J' u|^2/|u|^2 over the square of 4 sqrt(d)/|a|, and 1."""
    back = J.T * u
    return Inner(back, back) * Inner(x, x) / (16 * d * Inner(u, u)), sp.S.One


theorem = Theorem(
    id="peri-proposition",
    area="literature",
    title="Peri-LN's bound of a weight gradient by the length of the branch",
    statement=(
        r"With $x + N(a)$, $a = Wh$, the gradient of $W$ is at most $4\gamma\sqrt d\,|h|/|a|$ "
        r"times "
        r"the gradient at the block's output, so that a large activation $a$ damps it."
    ),
    verdict=Verdict.CONDITIONAL,
    uses=(rmsnorm_bound, lemma),
    steps=(
        Step(
            r"Under RMSNorm $|J_N^\top g| \le \lVert\gamma\rVert_\infty\frac{\sqrt d}{|a|}|g|$, "
            r"with "
            "constant 1 in place of 4.",
            r"$r^2 \ge |a|^2/d$",
            Bound(
                claim=lambda D: (SpectralNorm(D.jacobian), MaxAbs(gain) * sp.sqrt(d / Inner(x, x))),
                of=norm("rmsnorm"),
                instead=lambda: derive.derivation(3 * derive.RMSNorm()(x), x),
                facts=_facts,
            ),
        ),
        Step(
            r"Under LayerNorm it fails at $a = (100.001, 99.999, 100)$, in square by $9\cdot10^8$.",
            "the mean makes a long and is subtracted",
            Counterexample(
                claim=_stretch,
                of=lambda: norm("layernorm")().jacobian,
                instead=lambda: norm("rmsnorm")().jacobian,
                relation=">",
                stated=("937500000.06", "1"),
                at=WITNESS,
                width=3,
            ),
        ),
    ),
    sources=(PERI("Proposition 3.1, as a third party gives it", seen="secondary"),),
    holds_when=(
        r"the norm is RMSNorm, or $|a|$ is read as $|a - \mathrm{mean}(a)\mathbf 1|$ (then by the "
        "corrected Lemma 3)."
    ),
    fails_when="the norm subtracts a mean that dominates the activation.",
    remark=(
        "The proposition itself was not seen, only an account of it: it may state the assumption "
        "on the mean that is missing there."
    ),
)
