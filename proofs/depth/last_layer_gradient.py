r"""The gradient of the last weight matrix: what warm-up arguments compare, in exact numbers.

dL/dW_2 = g h' has norm |g||h|. Behind a post-norm block g is divided by the root of 1 + f = 3/2;
behind a final norm by the root of v_L. With N branches of relu the quotient of the two squares is
(2/3)(1 + N/2): post-norm's last layer has the larger gradient, by the root of the depth.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.laws import DepthLaw
from derive.laws.law import GRADIENT
from derive.laws.weight_law import weight_moments
from derive.proof import Gaussian, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import XIONG
from proofs.depth._shared import WIDE, v
from proofs.depth.final_norm import theorem as final_norm

__all__ = ["theorem"]

N = sp.Symbol("N", positive=True, integer=True)


def last_matrix(placement: str) -> Any:
    """Return a subject: E|dL/dW_2|^2 over E|g|^2 of a block with as many hidden features as d.

    The law is for 4 d of them, with the mean square of each a quarter, and |h|^2 linear in d.
    """
    return lambda: weight_moments(DepthLaw(placement))["W_2"].subs({GRADIENT[0]: 1, v: 1}) / 4


theorem = Theorem(
    id="last-layer-gradient",
    area="depth",
    title="The gradient of the last weight matrix, post-norm against pre-norm",
    statement=(
        r"At one token and relu branches with $d$ hidden features, "
        r"$\lVert\partial\mathcal L/\partial W_2\rVert_F$ of the last layer is $\sqrt{d/3}\,|g|$ "
        r"for post-norm and $\sqrt{d/2}\,|g|/\sqrt{v_L}$ for pre-norm with a final norm: with $N$ "
        r"branches their quotient is $\sqrt{\frac23(1 + \frac N2)}$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    uses=(final_norm,),
    steps=(
        Step(
            r"Post-norm: $\mathbb E\lVert g_2h^\top\rVert_F^2 = \frac d3|g|^2$, $g_2$ at the "
            r"branch.",
            r"$|J_N^\top g|^2 = \frac23|g|^2$ and $|h|^2 = d/2$",
            Gaussian(
                name=r"\mathbb{E}\lVert\partial\mathcal L/\partial W_2\rVert_F^2/|g|^2",
                claim=lambda square: (square, d / 3),
                of=last_matrix("post"),
                instead=last_matrix("pre"),
            ),
        ),
        Step(
            r"Pre-norm, per squared gradient at the block's output: $\frac d2$.",
            "the branch gets the gradient of the stream",
            Gaussian(
                name=r"\mathbb{E}\lVert\partial\mathcal L/\partial W_2\rVert_F^2/|g|^2",
                claim=lambda square: (square, d / 2),
                of=last_matrix("pre"),
                instead=last_matrix("post"),
            ),
        ),
        Step(
            r"The quotient of squares, with $v_L = 1 + N/2$, is $\frac23(1 + \frac N2)$.",
            "the final norm divides by the mean square of the stream",
            Gaussian(
                name=r"\frac{d/3}{(d/2)/v_L}",
                claim=lambda square: (
                    square / (d / 2 / (1 + N / 2)),
                    sp.Rational(2, 3) * (1 + N / 2),
                ),
                of=last_matrix("post"),
                instead=last_matrix("pre"),
            ),
        ),
    ),
    sources=(XIONG("Theorem 1, whose bounds are by order only", seen="text"),),
    remark=(
        r"1.63, 2.16, 2.94, 4.08 at 6, 12, 24, 48 branches. That the larger gradient is what makes "
        "warm-up necessary is an empirical statement, which this does not settle."
    ),
)
