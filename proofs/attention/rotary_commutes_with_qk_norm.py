r"""Rotary embedding and the norm of queries commute without a gain, and with one do not.

RMSNorm sees a vector's length only, which a rotation keeps. A gain that differs between the two
features of a pair is turned with them.
"""

from __future__ import annotations

from functools import partial

from derive.blocks.norms import RMSNorm
from derive.calculus.atoms import Matrix
from derive.calculus.structured import Orthogonal
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.attention._shared import jacobian
from proofs.bibliography import ROFORMER
from proofs.setting import r, x

__all__ = ["theorem"]

R, free = Orthogonal("R", d), Matrix("R", d, d)
PLAIN, GAINED = RMSNorm(gain=False), RMSNorm()


def _output(norm: RMSNorm, vector: object) -> object:
    """Return the norm of a vector, written out."""
    return norm.body(vector).output


def _turned(A: object) -> tuple[object, object]:
    """Return the Jacobian of a norm behind a rotation, and of a rotation behind the norm."""
    return jacobian(PLAIN(A * x), x), A * jacobian(PLAIN(x), x)


theorem = Theorem(
    id="rotary-commutes-with-qk-norm",
    area="attention",
    title="Rotary embedding and QK norm commute",
    statement=(
        "It makes no difference whether queries and keys are normalised before or after the rotary "
        "embedding."
    ),
    verdict=Verdict.CONDITIONAL,
    steps=(
        Step(
            r"Without a gain $\mathrm{RMS}(Rx) = R\,\mathrm{RMS}(x)$ for every orthogonal $R$ and "
            r"every $\epsilon$.",
            "the length stays",
            Identity(
                claim=lambda A: (_output(PLAIN, A * x), 1 / r * A * x),
                of=lambda: R,
                instead=lambda: free,
            ),
        ),
        Step(
            "So do the Jacobians.",
            "derivative of both sides",
            Identity(claim=_turned, of=lambda: R, instead=lambda: free),
        ),
        Step(
            r"With the gain $(1, 2)$ and a quarter turn they do not: at $x = (1, 2)$ and "
            r"$\epsilon = 0$ the results differ.",
            "the gain acts on other features",
            Counterexample(
                claim=lambda norm: (_output(norm, free * x), free * _output(norm, x)),
                of=partial(RMSNorm, eps=0),
                instead=partial(RMSNorm, eps=0, gain=False),
                relation="!=",
                stated=("1.26491", "0"),
                at={"x": (1, 2), "R": ((0, -1), (1, 0)), "gain": (1, 2)},
            ),
        ),
    ),
    sources=(ROFORMER("section 3, for the rotations", seen="memory"),),
    holds_when=(
        "The norm has no gain, or one gain for both features of every rotated pair (then the gain "
        "commutes with the rotation)."
    ),
    fails_when="The gain differs within a pair.",
)
