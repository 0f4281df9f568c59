r"""LayerNorm's output has mean zero and a variance just below 1, at unit gain and zero bias.

    mean = (g'xhat + 1'b)/d,   and at g = 1, b = 0:   mean = 0, mean square = v/(v + eps)

with v the variance of the input. So its standard deviation is sqrt(v/(v + eps)), not 1.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.atoms import Inner
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.bibliography import HANDBOOK
from proofs.setting import BIAS_ZERO, GAIN_ONE, bias, c, gain, one, output, s, var, written_out, x

__all__ = ["theorem"]


def _mean(y: sp.Basic) -> sp.Expr:
    return Inner(one, y) / d


theorem = Theorem(
    id="layernorm-output-statistics",
    area="norms",
    title="Mean and variance of what LayerNorm returns",
    statement="The output of LayerNorm has mean zero and unit variance over the features.",
    verdict=Verdict.CONDITIONAL,
    assumptions=(GAIN_ONE, BIAS_ZERO),
    steps=(
        Step(
            r"In general the mean is $\frac1d(\gamma^\top c/s + \mathbf 1^\top\beta)$.",
            r"the output is $\gamma\odot c/s + \beta$",
            Identity(
                claim=lambda y: (_mean(y), (Inner(gain, c) / s + Inner(one, bias)) / d),
                of=output("layernorm"),
                instead=output("rmsnorm"),
            ),
        ),
        Step(
            r"At unit gain and zero bias it is 0, for every $\epsilon$.",
            "deviations sum to zero",
            Identity(
                claim=lambda y: (_mean(written_out(y)), sp.S.Zero),
                of=output("layernorm"),
                instead=output("rmsnorm"),
                assuming=(GAIN_ONE, BIAS_ZERO),
            ),
        ),
        Step(
            r"There the variance is exactly $v/(v + \epsilon)$ with $v$ the variance of the input.",
            r"$|c|^2 = dv$ and $s^2 = v + \epsilon$",
            Identity(
                claim=lambda y: (Inner(y, y) / d, var / (var + eps)),
                of=output("layernorm"),
                instead=output("rmsnorm"),
                assuming=(GAIN_ONE, BIAS_ZERO),
            ),
        ),
        Step(
            r"An input of variance $\epsilon$ has an output of standard deviation "
            r"$1/\sqrt2$: $x = (1, -1)/100$, $\epsilon = 10^{-4}$.",
            r"$v/(v + \epsilon) = \frac12$",
            Counterexample(
                claim=lambda N: (
                    sp.sqrt(Inner(N(x).body.output, N(x).body.output) / d),
                    sp.S.One,
                ),
                of=lambda: derive.LayerNorm(eps=sp.Rational(1, 10**4)),
                instead=lambda: derive.LayerNorm(eps=sp.Rational(1, 10**5)),
                relation="<",
                stated=("0.70710678", "1"),
                at={"x": ("1/100", "-1/100"), "gain": (1, 1), "bias": (0, 0)},
            ),
        ),
        Step(
            r"With the gain $(3, 1)$ the mean of the output is $-1$ for $x = (0, 2)$, "
            r"$\epsilon = 0$.",
            r"$\gamma^\top\hat x = -3 + 1$",
            Counterexample(
                claim=lambda N: (_mean(N(x).body.output), sp.S.Zero),
                of=lambda: derive.LayerNorm(eps=0),
                instead=lambda: derive.LayerNorm(eps=1),
                relation="<",
                stated=("-1", "0"),
                at={"x": (0, 2), "gain": (3, 1), "bias": (0, 0)},
            ),
        ),
    ),
    sources=(HANDBOOK("the demonstration of the norm", seen="text"),),
    holds_when=(
        r"the gain is $\mathbf 1$, the bias 0 and the variance of the input is large beside "
        r"$\epsilon$: the mean is then 0 exactly and the standard deviation "
        r"$\sqrt{v/(v + \epsilon)}$."
    ),
    fails_when=(
        r"the gain or the bias is trained, or $v$ is of the size of $\epsilon$ or below; a "
        r"constant input is mapped to the bias."
    ),
    remark="Per token and over the features; a feature's statistics over tokens are not fixed.",
)
