r"""What a norm's Jacobian does to a random gradient at one normal input: (d-2)/(d-3), nearly 1.

For x ~ N(0, I) the sum of squared deviations is chi-square with d - 1 degrees of freedom, whose
inverse has mean 1/(d-3). At eps = 0, J J' is a projection of rank d - 2, divided by s^2.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.derivation import Derivation
from derive.proof import Assumption, Gaussian, Identity, Step, Theorem, Verdict, chi_square
from derive.symbols import d
from proofs.setting import EPS_ZERO, GAIN_ONE, c, identity, norm, one, s

__all__ = ["theorem"]

NORMAL = Assumption("normal-input", r"$x \sim N(0, I)$ and $d > 3$")


def _gram(D: Derivation) -> tuple[sp.Basic, sp.Basic]:
    J = D.jacobian
    return J * J.T, 1 / s**2 * (identity - one * one.T / d - c * c.T / (d * s**2))


theorem = Theorem(
    id="inverse-variance",
    area="depth",
    title="The mean square gain of LayerNorm's Jacobian at a normal input",
    statement=(
        r"For $x \sim N(0, I)$ and $\epsilon = 0$, $\mathbb E\,s^{-2} = \frac{d}{d-3}$ and "
        r"$\mathbb E\,\lVert J_{LN}\rVert_F^2/d = \frac{d-2}{d-3}$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(EPS_ZERO, GAIN_ONE, NORMAL),
    steps=(
        Step(
            r"$\mathbb E\,s^{-2} = d\,\mathbb E\,\chi_{d-1}^{-2} = d/(d-3)$.",
            "an inverse moment of chi-square",
            Gaussian(
                claim=lambda degrees: (d * chi_square(degrees, -1), d / (d - 3)),
                of=lambda: d - 1,
                instead=lambda: d,
            ),
        ),
        Step(
            r"$JJ^\top = s^{-2}\bigl(I - \frac{\mathbf 1\mathbf 1^\top}d - "
            r"\frac{cc^\top}{ds^2}\bigr)$.",
            "the bracket is a projection",
            Identity(
                claim=_gram,
                of=norm("layernorm"),
                instead=norm("rmsnorm"),
                assuming=(EPS_ZERO, GAIN_ONE),
            ),
        ),
        Step(
            r"Its trace is $(d-2)/s^2$, so that the mean is $\frac{d-2}{d}\cdot\frac{d}{d-3}$.",
            "traces of I, of the mean and of a unit vector",
            Gaussian(
                claim=lambda rank: (rank * chi_square(d - 1, -1), (d - 2) / (d - 3)),
                of=lambda: d - 2,
                instead=lambda: d - 1,
            ),
        ),
    ),
    remark=(
        r"The two directions that the Jacobian removes and the excess of $\mathbb E\,s^{-2}$ over "
        r"1 nearly cancel: $\frac{d-2}{d-3} = 1 + O(1/d)$. A power $(\frac{d-2}d)^L$ alone is not "
        "the correction of a deep stack."
    ),
)
