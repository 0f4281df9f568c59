r"""Norms do not see a scale, at eps = 0; at eps > 0 a scale is a change of eps.

N_eps(k x) = N_{eps/k^2}(x),   and at eps = 0   J(k x) = J(x)/k,   J(x) x = 0
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.blocks.norms import DynamicTanh
from derive.proof import Assumption, Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import eps
from proofs.setting import EPS_ZERO, jacobian, moved, written_out, x

__all__ = ["theorem"]

k = sp.Symbol("k", positive=True)
SCALE = Assumption("positive-scale", r"the scale $k$ is positive", (), k > 0)

theorem = Theorem(
    id="norm-scale-invariance",
    area="norms",
    title="Norms and the scale of their input",
    statement=(
        r"A norm does not see the scale of its input: $N(kx) = N(x)$, $Jx = 0$ and "
        r"$J(kx) = J(x)/k$."
    ),
    verdict=Verdict.CONDITIONAL,
    assumptions=(EPS_ZERO, SCALE),
    steps=(
        Step(
            r"$LN_\epsilon(kx) = LN_{\epsilon/k^2}(x)$, gain and bias included.",
            r"$k^2\mathrm{var} + \epsilon = k^2(\mathrm{var} + \epsilon/k^2)$",
            Identity(
                claim=lambda N: (written_out(N(eps=eps)(k * x)), written_out(N(eps=eps / k**2)(x))),
                of=lambda: derive.LayerNorm,
                instead=lambda: DynamicTanh,
            ),
        ),
        Step(
            r"$RMS_\epsilon(kx) = RMS_{\epsilon/k^2}(x)$.",
            "the same for the mean square",
            Identity(
                claim=lambda N: (written_out(N(eps=eps)(k * x)), written_out(N(eps=eps / k**2)(x))),
                of=lambda: derive.RMSNorm,
                instead=lambda: DynamicTanh,
            ),
        ),
        Step(
            r"$J_{LN}(x)\,x = 0$ at $\epsilon = 0$.",
            r"the derivative of $N(kx) = N(x)$ by $k$",
            Identity(
                claim=lambda J: (J * x, 0 * x),
                of=jacobian("layernorm"),
                instead=jacobian("dyt"),
                assuming=(EPS_ZERO,),
            ),
        ),
        Step(
            r"$J_{LN}(kx) = J_{LN}(x)/k$ at $\epsilon = 0$: gradients through a norm fall as its "
            r"input grows, without bound at 0.",
            r"the derivative of $N(kx) = N(x)$ by $x$",
            Identity(
                claim=lambda J: (moved(J, {x: k * x}, "k"), J / k),
                of=jacobian("layernorm"),
                instead=jacobian("dyt"),
                assuming=(EPS_ZERO,),
            ),
        ),
        Step(
            r"$J_{RMS}(kx) = J_{RMS}(x)/k$ at $\epsilon = 0$.",
            "the same for RMSNorm",
            Identity(
                claim=lambda J: (moved(J, {x: k * x}, "k"), J / k),
                of=jacobian("rmsnorm"),
                instead=jacobian("dyt"),
                assuming=(EPS_ZERO,),
            ),
        ),
        Step(
            r"At $\epsilon = 1$, unit gain and $x = (1, 3)$, $J_{LN}x$ is $(-1, 1)/\sqrt8$.",
            r"$Jx = \frac{\epsilon}{s^3}c$ with $s^2 = 2$ and $c = (-1, 1)$",
            Counterexample(
                claim=lambda N: (derive.jacobian(N(x), x) * x, 0 * x),
                of=derive.LayerNorm,
                instead=lambda: derive.LayerNorm(eps=0),
                relation="!=",
                stated=("0.35355339", "0"),
                at={"x": (1, 3), "gain": (1, 1), "eps": 1},
            ),
        ),
    ),
    holds_when=r"$\epsilon = 0$, for LayerNorm, RMSNorm and division by the length.",
    fails_when=(
        r"$\epsilon > 0$: then $N_\epsilon(kx) = N_{\epsilon/k^2}(x)$ and $J_{LN}x = "
        r"\frac{\epsilon}{s^3}\gamma\odot c$, small where the variance is large beside $\epsilon$."
    ),
)
