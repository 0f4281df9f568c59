r"""B2T: the skip from bottom to top crosses one norm a layer, where post-norm's crosses two.

y_A = N1(x + A(x)), y = N2(x + y_A + F(y_A)). With the branches left out post-norm's layer is
J_N2 J_N1 and B2T's is J_N2 + J_N2 J_N1.
"""

from __future__ import annotations

from derive.proof import Identity, Step, Theorem, Verdict
from proofs.bibliography import B2T
from proofs.setting import F, identity, x
from proofs.variants._shared import DA, DF, DN, N_1, A, layer, without_branches

__all__ = ["theorem"]

u = x + A(x)
y_A = N_1(u)
J_1 = DN(1, u)
b2t = x + y_A + F(y_A)
post = y_A + F(y_A)
POST = "y_A = N1(x + A(x)); N2(y_A + F(y_A))"


theorem = Theorem(
    id="b2t-one-norm-a-layer",
    area="variants",
    title="B2T's skip crosses one norm a layer",
    statement=(
        r"B2T's layer has $J = J_{N_2}\bigl(I + (I + D\!F)J_{N_1}(I + D\!A)\bigr)$. Its paths "
        r"through no sublayer are $J_{N_2} + J_{N_2}J_{N_1}$, one of them with a single norm; "
        r"post-norm has $J_{N_2}J_{N_1}$ only. The norms may be any."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The Jacobian of a layer.",
            "chain rule",
            Identity(
                claim=lambda J: (
                    J,
                    DN(2, b2t) * (identity + (identity + DF(y_A)) * J_1 * (identity + DA(x))),
                ),
                of=layer("b2t"),
                instead=layer(POST),
            ),
        ),
        Step(
            "B2T's paths through no sublayer.",
            r"$D\!A = D\!F = 0$ in the Jacobian",
            Identity(
                claim=lambda J: (
                    without_branches(J),
                    DN(2, b2t) + DN(2, b2t) * J_1,
                ),
                of=layer("b2t"),
                instead=layer(POST),
            ),
        ),
        Step(
            "Those of post-norm all cross two norms.",
            "the same",
            Identity(
                claim=lambda J: (without_branches(J), DN(2, post) * J_1),
                of=layer(POST),
                instead=layer("b2t"),
            ),
        ),
    ),
    sources=(B2T("the layer's equation", seen="code"),),
)
