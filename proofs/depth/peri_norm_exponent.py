r"""Peri-norm's gradient law at any activation: a quotient of gamma functions in b/f alone.

The gain of a block is 1 + kappa/v with kappa = b/f and v_l = 1 + l: the product is
Gamma(L + 1 + kappa)/(Gamma(1 + kappa) Gamma(L + 1)), which grows like L^kappa.
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.depth._shared import WIDE, b, f, general, ratio
from proofs.depth.peri_norm_growth import theorem as growth

__all__ = ["theorem"]

LAW = sp.gamma(L + 1 + b / f) / (sp.gamma(1 + b / f) * sp.gamma(L + 1))

theorem = Theorem(
    id="peri-norm-exponent",
    area="depth",
    title="The gradient law of peri-norm at any activation",
    statement=(
        r"For $x_{l+1} = x_l + N(F(N(x_l)))$ with $\kappa = b/f$, $\mathbb E|g_0|^2/\mathbb "
        r"E|g_L|^2 "
        r"= \frac{\Gamma(L+1+\kappa)}{\Gamma(1+\kappa)\,\Gamma(L+1)}$; $1 + L$ at $\kappa = 1$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    uses=(growth,),
    steps=(
        Step(
            "The product of the gains.",
            "induction over the blocks",
            Induction(
                claim=ratio(LAW, 1 + L),
                of=general("sandwich"),
                instead=general("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
    ),
)
