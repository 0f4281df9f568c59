r"""The mean Frobenius norm at normal input: E|J_LN|_F^2/d = (d - 2)/(d - 3).

s^2 = |c|^2/d, and |c|^2 is chi-square with d - 1 degrees of freedom; E 1/chi^2_k = 1/(k - 2).
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Assumption, ChiSquare, Gaussian, Step, Theorem, Verdict
from derive.symbols import d
from proofs.norms.norm_frobenius import theorem as norm_frobenius
from proofs.setting import EPS_ZERO, GAIN_ONE

__all__ = ["theorem"]

NORMAL = Assumption(
    "normal-input", r"the entries of $x$ are independent and standard normal, $d > 3$", (), d > 3
)

theorem = Theorem(
    id="norm-frobenius-gaussian",
    area="norms",
    title="The mean size of a norm's Jacobian at normal input",
    statement=(
        r"$\frac1d\mathbb E\lVert J_{LN}\rVert_F^2 = \frac{d - 2}{d - 3}$ and "
        r"$\frac1d\mathbb E\lVert J_{RMS}\rVert_F^2 = \frac{d - 1}{d - 2}$ for standard normal "
        r"input, unit gain and $\epsilon = 0$: a norm keeps the mean square of a gradient up to "
        r"$1/d$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(NORMAL, EPS_ZERO, GAIN_ONE),
    uses=(norm_frobenius,),
    steps=(
        Step(
            r"LayerNorm: $\frac1d\mathbb E\frac{d - 2}{s^2} = "
            r"(d - 2)\,\mathbb E\frac1{|c|^2}$, with $|c|^2$ of $d - 1$ degrees of freedom.",
            "the inverse moment of chi-square",
            Gaussian(
                claim=lambda k: ((d - 2) * ChiSquare(k, sp.S.NegativeOne), (d - 2) / (d - 3)),
                of=lambda: d - 1,
                instead=lambda: d,
            ),
        ),
        Step(
            r"RMSNorm: $(d - 1)\,\mathbb E\frac1{|x|^2}$, with $d$ degrees of freedom.",
            "the inverse moment of chi-square",
            Gaussian(
                claim=lambda k: ((d - 1) * ChiSquare(k, sp.S.NegativeOne), (d - 1) / (d - 2)),
                of=lambda: d,
                instead=lambda: d - 1,
            ),
        ),
    ),
)
