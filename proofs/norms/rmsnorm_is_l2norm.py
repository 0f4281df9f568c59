r"""RMSNorm is division by the length with sqrt(d) times the gain, if eps is scaled by d.

    x/sqrt(|x|^2/d + eps) = sqrt(d) x/sqrt(|x|^2 + d eps)

With one and the same eps > 0 in both roots it is another function.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.blocks.norms import L2Norm
from derive.proof import Assumption, Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.setting import EPS_ZERO, gain, written_out, x

__all__ = ["theorem"]

ROOT_D = Assumption("gain-root-d", r"the gain of the L2 norm is $\sqrt d$ times that of RMSNorm")


def _l2(inside: sp.Expr) -> sp.Basic:
    """Return the L2 norm's Jacobian, `inside` added to the square, with sqrt(d) gain."""
    J = derive.jacobian(L2Norm(eps=inside, gain=True)(x), x)
    return written_out(J).xreplace({gain: sp.sqrt(d) * gain})


rms = derive.jacobian(derive.RMSNorm()(x), x)

theorem = Theorem(
    id="rmsnorm-is-l2norm",
    area="norms",
    title="RMSNorm as division by the length",
    statement=(r"RMSNorm is division by $\sqrt{|x|^2 + \epsilon}$ with $\sqrt d$ times the gain."),
    verdict=Verdict.CONDITIONAL,
    assumptions=(ROOT_D, EPS_ZERO),
    steps=(
        Step(
            r"With $\epsilon$ in RMSNorm and $d\epsilon$ in the length the Jacobians are equal.",
            r"$|x|^2 + d\epsilon = d(|x|^2/d + \epsilon)$",
            Identity(
                claim=lambda inside: (rms, _l2(inside)),
                of=lambda: d * eps,
                instead=lambda: eps,
            ),
        ),
        Step(
            r"At $\epsilon = 0$ there is nothing to scale.",
            "the same",
            Identity(
                claim=lambda inside: (rms, _l2(inside)),
                of=lambda: eps,
                instead=lambda: eps + 1,
                assuming=(EPS_ZERO,),
            ),
        ),
        Step(
            r"With $\epsilon = 1$ in both, $d = 2$ and $x = (1, 0)$ the Jacobians differ.",
            r"the second diagonal entries are $\sqrt{2/3}$ and 1",
            Counterexample(
                claim=lambda inside: (rms, _l2(inside)),
                of=lambda: eps,
                instead=lambda: d * eps,
                relation="!=",
                stated=("0.183503419", "0"),
                at={"x": (1, 0), "gain": (1, 1), "eps": 1},
            ),
        ),
    ),
    holds_when=r"$\epsilon = 0$, or the length has $d$ times the $\epsilon$ of RMSNorm.",
    fails_when=r"both have the same $\epsilon > 0$: it is added to the mean square in one and to "
    "the sum of squares in the other.",
)
