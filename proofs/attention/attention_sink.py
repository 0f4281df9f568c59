r"""With a sink the weights add up to less than 1, and the Jacobian no longer kills constants.

A sink adds a constant to the partition: p = e/(1'e + a^2). The Jacobian is diag(p) - pp' again.
"""

from __future__ import annotations

from derive.calculus.atoms import Diag, Inner
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import alpha
from proofs.attention._shared import EXP, jacobian, one, softmax, z
from proofs.attention.softmax_jacobian import theorem as softmax_jacobian

__all__ = ["theorem"]

_e = EXP(z)
p = 1 / (Inner(one, _e) + alpha**2) * _e

theorem = Theorem(
    id="attention-sink",
    area="attention",
    title="Softmax with a sink",
    statement=(
        r"For $p = e^z/(\mathbf 1^\top e^z + \alpha^2)$ the Jacobian is again "
        r"$S = \mathrm{diag}(p) - pp^\top$, the weights add up to "
        r"$1 - \alpha^2/(\mathbf 1^\top e^z + \alpha^2)$, and "
        r"$S\mathbf 1 = \frac{\alpha^2}{\mathbf 1^\top e^z + \alpha^2}\,p$."
    ),
    verdict=Verdict.PROVED,
    uses=(softmax_jacobian,),
    steps=(
        Step(
            "The sink changes the weights and not the form of the Jacobian.",
            "the partition has the same derivative",
            Identity(
                claim=lambda w: (jacobian(w, z), Diag(p) - p * p.T),
                of=lambda: p,
                instead=lambda: softmax(z),
            ),
        ),
        Step(
            "The weights miss the share of the sink.",
            "definition",
            Identity(
                claim=lambda w: (Inner(one, w), 1 - alpha**2 / (Inner(one, _e) + alpha**2)),
                of=lambda: p,
                instead=lambda: softmax(z),
            ),
        ),
        Step(
            "A constant added to all scores moves weight from the sink to the tokens.",
            r"$S\mathbf 1 = (1 - \mathbf 1^\top p)\,p$",
            Identity(
                claim=lambda w: (
                    jacobian(w, z) * one,
                    alpha**2 / (Inner(one, _e) + alpha**2) * p,
                ),
                of=lambda: p,
                instead=lambda: softmax(z),
            ),
        ),
    ),
)
