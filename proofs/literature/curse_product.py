r"""The Curse of Depth's step to Theta(L): the product is exp of a root of L.

For sigma_l^2 = l the bound is prod (1 + A/sqrt(l) + B/l). Its logarithm lies between A sqrt(L) -
A^2/2, keeping L copies of the smallest factor, and 2 A sqrt(L) + B (1 + ln L). Only at A = 0 it is
a power of L.
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Bound, Counterexample, Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import CURSE

__all__ = ["theorem"]

B, t = sp.symbols("B t", positive=True)
POWER = sp.gamma(L + 1 + B) / (sp.gamma(1 + B) * sp.gamma(L + 1))

theorem = Theorem(
    id="curse-product",
    area="literature",
    title="A product of 1 + A/sigma + B/sigma^2 at linear variance",
    statement=(
        r"If $\sigma_l^2$ grows like $l$, $\prod_{l\le L}\bigl(1 + \frac A{\sigma_l} + "
        r"\frac B{\sigma_l^2}\bigr) \le \Theta(L)$."
    ),
    verdict=Verdict.REFUTED,
    steps=(
        Step(
            r"Every factor is at least $1 + A/\sqrt L$, whose $L$-th power has a logarithm of at "
            r"least $A\sqrt L - A^2/2$: with $t = A/\sqrt L$, $\ln(1+t) \ge t - t^2/2$.",
            "a value and a derivative that are not negative",
            Bound(
                claim=lambda half: (t - half * t**2, sp.log(1 + t)),
                of=lambda: sp.Rational(1, 2),
                instead=lambda: sp.Rational(1, 3),
            ),
        ),
        Step(
            r"At $A = 1$, $B = 0$, $L = 10^4$ it is at least $1.01^{10000} = 1.64\cdot10^{43}$.",
            "interval arithmetic",
            Counterexample(
                claim=lambda a: (
                    sp.Pow(1 + a / sp.Integer(100), 10_000, evaluate=False),
                    sp.Integer(10_000),
                ),
                of=lambda: sp.S.One,
                instead=lambda: sp.S.Zero,
                relation=">",
                stated=("1.636e43", "10000"),
            ),
        ),
        Step(
            r"From above: with $t = A/\sqrt l + B/l$ a factor $1 + t$ is at most $e^t$.",
            "a value and a derivative that are not negative",
            Bound(
                claim=lambda slope: (1 + slope * t, sp.exp(t)),
                of=lambda: sp.S.One,
                instead=lambda: sp.Integer(2),
            ),
        ),
        Step(
            r"And $1/\sqrt l \le 2(\sqrt l - \sqrt{l-1})$, so that the sum is at most $2A\sqrt L + "
            r"B(1 + \ln L)$: with $l = t + 1$, $4t(t+1) \le (2t+1)^2$.",
            "squares of both sides",
            Bound(
                claim=lambda gap: (4 * t * (t + 1), (2 * t + gap) ** 2),
                of=lambda: sp.S.One,
                instead=lambda: sp.Rational(1, 2),
            ),
        ),
        Step(
            r"At $A = 0$ it is $\frac{\Gamma(L+1+B)}{\Gamma(1+B)\,\Gamma(L+1)}$, of order $L^B$.",
            "induction over the factors",
            Induction(
                claim=lambda a: (POWER, sp.S.One, lambda y, k: y * (1 + a / sp.sqrt(k) + B / k)),
                of=lambda: sp.S.Zero,
                instead=lambda: sp.S.One,
                name=r"\prod_{l \le L}(1 + B/l)",
            ),
        ),
    ),
    sources=(CURSE("the step from (9) to (11), version 5", seen="text"),),
    holds_when=(
        r"$A = 0$ and $B \le 1$; so it is in mean field, where the terms of order $1/\sigma$ "
        r"average "
        r"out and the gain is $1 + b/v_l$."
    ),
    fails_when=(
        r"$A > 0$: the product is between $\exp(A\sqrt L - A^2/2)$ and $\exp(2A\sqrt L)$ times a "
        "power of L."
    ),
    remark=(
        "The companion step, that the product is bounded at exponentially growing variance, is "
        "right. The text was read in an earlier session of this project; here only its abstract "
        "was seen again."
    ),
)
