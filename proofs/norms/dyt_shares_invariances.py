r"""DyT is no norm in this respect: it sees both scale and shift.

Its Jacobian is diagonal with entries that are not 0, so that it kills no direction at all, where
LayerNorm kills two and RMSNorm one.
"""

from __future__ import annotations

import derive
from derive.blocks.norms import DynamicTanh
from derive.calculus.atoms import Diag, Reciprocal
from derive.calculus.pointwise import Pointwise
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from proofs.norms.dyt_jacobian import a, tanh
from proofs.norms.dyt_jacobian import theorem as dyt_jacobian
from proofs.setting import GAIN_NOT_ZERO, gain, identity, jacobian, one, x

__all__ = ["theorem"]

slopes = Pointwise(tanh, 1, a * x)

theorem = Theorem(
    id="dyt-shares-invariances",
    area="norms",
    title="DyT and the invariances of norms",
    statement=(
        r"DyT, which takes the place of a norm, has its invariances: $Jx = 0$ (scale) and "
        r"$J\mathbf 1 = 0$ (shift)."
    ),
    verdict=Verdict.REFUTED,
    assumptions=(GAIN_NOT_ZERO,),
    uses=(dyt_jacobian,),
    steps=(
        Step(
            r"$Jx \ne 0$ for $x = (1, 0)$, $a = \gamma_i = 1$: its first entry is "
            r"$1 - \tanh^2 1$.",
            "evaluated in interval arithmetic",
            Counterexample(
                claim=lambda N: (derive.jacobian(N(x), x) * x, 0 * x),
                of=DynamicTanh,
                instead=lambda: derive.RMSNorm(eps=0),
                relation="!=",
                stated=("0.419974342", "0"),
                at={"x": (1, 0), "gain": (1, 1), "a": 1},
            ),
        ),
        Step(
            r"$J\mathbf 1 \ne 0$ there: its second entry is 1.",
            "evaluated in interval arithmetic",
            Counterexample(
                claim=lambda N: (derive.jacobian(N(x), x) * one, 0 * x),
                of=DynamicTanh,
                instead=lambda: derive.LayerNorm(eps=1),
                relation="!=",
                stated=("1", "0"),
                at={"x": (1, 0), "gain": (1, 1), "a": 1},
            ),
        ),
        Step(
            r"What is true: with $a \ne 0$ its Jacobian is invertible, since $\tanh'$ is "
            r"positive.",
            "the inverse of a diagonal matrix",
            Identity(
                claim=lambda J: (
                    Diag(Reciprocal(slopes)) * Diag(Reciprocal(gain)) * (1 / a) * J,
                    identity,
                ),
                of=jacobian("dyt"),
                instead=jacobian("rmsnorm"),
            ),
        ),
    ),
    holds_when=r"never: the Jacobian has full rank wherever $a$ and the gain are not 0.",
    fails_when="always; DyT bounds each entry by itself and takes no statistics of the vector.",
)
