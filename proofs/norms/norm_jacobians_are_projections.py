r"""A norm's Jacobian is a projection over its root, at eps = 0 and unit gain; with eps it is none.

At eps = 0 the traces d - 2 and d - 1 of the projections are the ranks. With eps > 0 the square of
s J falls short of s J by (eps/(d s^4)) cc'.
"""

from __future__ import annotations

import derive
from derive.calculus.trace import Trace
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.setting import EPS_ZERO, GAIN_ONE, c, jacobian, r, s, x

__all__ = ["theorem"]

theorem = Theorem(
    id="norm-jacobians-are-projections",
    area="norms",
    title="Norm Jacobians as projections",
    statement=r"$s J_{LN}$ and $r J_{RMS}$ are projections, of rank $d - 2$ and $d - 1$.",
    verdict=Verdict.CONDITIONAL,
    assumptions=(EPS_ZERO, GAIN_ONE),
    steps=(
        Step(
            r"$(sJ_{LN})^2 = sJ_{LN}$ at $\epsilon = 0$ and unit gain.",
            r"$|c|^2 = ds^2$",
            Identity(
                claim=lambda J: (s**2 * J * J, s * J),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
                assuming=(EPS_ZERO, GAIN_ONE),
            ),
        ),
        Step(
            r"$(rJ_{RMS})^2 = rJ_{RMS}$ likewise.",
            r"$|x|^2 = dr^2$",
            Identity(
                claim=lambda J: (r**2 * J * J, r * J),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
                assuming=(EPS_ZERO, GAIN_ONE),
            ),
        ),
        Step(
            r"$\mathrm{tr}(sJ_{LN}) = d - 2$: the rank.",
            "the rank of a projection is its trace",
            Identity(
                claim=lambda J: (Trace(s * J), d - 2),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
                assuming=(EPS_ZERO, GAIN_ONE),
            ),
        ),
        Step(
            r"$\mathrm{tr}(rJ_{RMS}) = d - 1$: the rank.",
            "the rank of a projection is its trace",
            Identity(
                claim=lambda J: (Trace(r * J), d - 1),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
                assuming=(EPS_ZERO, GAIN_ONE),
            ),
        ),
        Step(
            r"For every $\epsilon$ the defect of LayerNorm is $sJ - (sJ)^2 = "
            r"\frac{\epsilon}{ds^4}cc^\top$ at unit gain.",
            r"$|c|^2 = d(s^2 - \epsilon)$",
            Identity(
                claim=lambda J: (s * J - s**2 * J * J, eps / (d * s**4) * c * c.T),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
                assuming=(GAIN_ONE,),
            ),
        ),
        Step(
            r"At $\epsilon = 1$, $d = 3$, $x = (1, 2, 6)$ the entries of $sJ$ and $(sJ)^2$ differ "
            r"by up to $27/289$.",
            r"$s^2 = 17/3$, $c = (-2, -1, 3)$",
            Counterexample(
                claim=lambda N: (
                    s**2 * derive.jacobian(N(x), x) * derive.jacobian(N(x), x),
                    s * derive.jacobian(N(x), x),
                ),
                of=derive.LayerNorm,
                instead=lambda: derive.LayerNorm(eps=0),
                relation="!=",
                stated=("0.0934256055", "0"),
                at={"x": (1, 2, 6), "gain": (1, 1, 1), "eps": 1},
                width=3,
            ),
        ),
    ),
    holds_when=r"$\epsilon = 0$ and the gain is $\mathbf 1$ (or, with $s$ scaled, a multiple).",
    fails_when=(
        r"$\epsilon > 0$: the eigenvalue along $c$ is $\epsilon/s^2$, neither 0 nor 1, and the "
        r"ranks are $d - 1$ and $d$."
    ),
)
