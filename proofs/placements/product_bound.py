r"""How large and how small a product of blocks I + A_l can be.

prod max(0, 1 - |A_l|) <= sigma_min,   |prod (I + A_l)| <= prod (1 + |A_l|) <= exp(sum |A_l|)
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Inner, Matrix, Vector
from derive.proof import Bound, Identity, SmallestSingular, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import d
from proofs.setting import identity

__all__ = ["theorem"]

A, P = Matrix("A", d, d), Matrix("P", d, d)
v = Vector("v", d)
a, b = sp.symbols("a b", positive=True)
along = v * v.T / Inner(v, v)

theorem = Theorem(
    id="product-bound",
    area="placements",
    title="How large and how small a product of residual blocks is",
    statement=(
        r"$\prod_l\max(0, 1 - \lVert A_l\rVert_2) \le \sigma_{\min}\bigl(\prod_l(I + A_l)\bigr)$ "
        r"and $\lVert\prod_l(I + A_l)\rVert_2 \le \prod_l(1 + \lVert A_l\rVert_2) \le "
        r"e^{\sum_l\lVert A_l\rVert_2}$, for every number of blocks; the middle bound is attained."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"The step from a product $P$ to one more block: $\lVert(I + A)P\rVert_2 \le "
            r"(1 + \lVert A\rVert_2)\lVert P\rVert_2$.",
            "the norm of a product, the triangle inequality; induction begins with the identity",
            Bound(
                claim=lambda M: (
                    SpectralNorm((identity + M) * P),
                    (1 + SpectralNorm(A)) * SpectralNorm(P),
                ),
                of=lambda: A,
                instead=lambda: 3 * A,
            ),
        ),
        Step(
            r"Each factor is at most an exponential, so that the product is at most "
            r"$e^{\sum_l\lVert A_l\rVert_2}$.",
            r"$1 + t \le e^t$",
            Bound(
                claim=lambda M: (1 + SpectralNorm(M), sp.exp(SpectralNorm(A))),
                of=lambda: A,
                instead=lambda: 3 * A,
            ),
        ),
        Step(
            r"From below: $\max(0, 1 - \lVert A\rVert_2)\,\sigma_{\min}(P) \le "
            r"\sigma_{\min}((I + A)P)$.",
            "Weyl's inequality; smallest singular values of a product multiply",
            Bound(
                claim=lambda M: (
                    sp.Max(0, 1 - SpectralNorm(M)) * SmallestSingular(P),
                    SmallestSingular((identity + A) * P),
                ),
                of=lambda: A,
                instead=lambda: A / 50,
            ),
        ),
        Step(
            r"The bound is attained: with $A_l = a_l\,vv^\top/|v|^2$, $a_l > 0$, of norm $a_l$, "
            r"$(I + A_2)(I + A_1)v = (1 + a_2)(1 + a_1)v$, and so on.",
            "all blocks stretch one and the same direction",
            Identity(
                claim=lambda second: (
                    (identity + second * along) * (identity + a * along) * v,
                    (1 + b) * (1 + a) * v,
                ),
                of=lambda: b,
                instead=lambda: -b,
            ),
        ),
    ),
)
