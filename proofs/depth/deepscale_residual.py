r"""DeepScaleLM's residual weights keep signal and gradient, and the identity path.

With lambda^2 + beta^2 = 1 and branches of unit mean square that return unit gradients, both stay 1.
At beta^2 = 2/L the identity path has (1 - 2/L)^L, which is at least exp(-2 L/(L - 2)).
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Bound, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import DEEPSCALE
from proofs.depth._shared import WIDE, b, f, general

__all__ = ["theorem"]

beta = sp.Symbol("beta", positive=True)
t = sp.Symbol("t", positive=True)
BLOCK = "lam*x + beta*F(x)"
KEPT = {"lam": sp.sqrt(1 - beta**2), "beta": beta}

theorem = Theorem(
    id="deepscale-residual",
    area="depth",
    title="Residual weights whose squares add to 1",
    statement=(
        r"For $x_{l+1} = \lambda x_l + \beta F(x_l)$ with $\lambda^2 + \beta^2 = 1$ and $f = b = "
        r"1$, signal and gradient keep their mean squares. At $\beta^2 = 2/L$ the identity path "
        r"has weight $(1 - 2/L)^L \ge e^{-2L/(L-2)}$: it does not vanish with depth."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    steps=(
        Step(
            r"The signal: $\lambda^2 + \beta^2f = 1$ at $f = 1$.",
            "composed from the expression of the block",
            Gaussian(
                name=r"v_{l+1}",
                claim=lambda R: (R.at(1).forward.subs(f, 1), sp.S.One),
                of=general(BLOCK, **KEPT),
                instead=general("x + beta*F(x)", beta=beta),
            ),
        ),
        Step(
            r"The gradient: $\lambda^2 + \beta^2b = 1$ at $b = 1$.",
            "the same coefficients backwards",
            Gaussian(
                name=r"G",
                claim=lambda R: (R.at(1).gradient.subs(b, 1), sp.S.One),
                of=general(BLOCK, **KEPT),
                instead=general("x + beta*F(x)", beta=beta),
            ),
        ),
        Step(
            r"A block's skip keeps $1 - 2/L$ at $\beta^2 = 2/L$.",
            r"$\lambda^2 = 1 - \beta^2$",
            Gaussian(
                name=r"\mathrm{skip}",
                claim=lambda R: (R.at(1).skip.subs(beta, sp.sqrt(2 / L)), 1 - 2 / L),
                of=general(BLOCK, **KEPT),
                instead=general("x + beta*F(x)", beta=beta),
            ),
        ),
        Step(
            r"With $\beta^2 = \frac t{1+t}$ it keeps $\frac1{1+t}$, and its logarithm is at least "
            r"$-t$, so that $L$ blocks lose at most $\frac{2L}{L-2}$.",
            "ln(1 + t) is at most t",
            Bound(
                claim=lambda R: (
                    sp.log(sp.simplify(1 / R.at(1).skip.subs(beta, sp.sqrt(t / (1 + t))))),
                    t,
                ),
                of=general(BLOCK, **KEPT),
                instead=general("0.25*x + beta*F(x)", beta=beta),
            ),
        ),
    ),
    sources=(DEEPSCALE("residual scaling with 2/N", seen="memory"),),
    remark=r"A post-norm block with these weights has the same gain at mean square 1.",
)
