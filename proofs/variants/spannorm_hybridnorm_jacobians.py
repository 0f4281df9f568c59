r"""SpanNorm and HybridNorm: one norm of the stream a layer.

SpanNorm: y = N1(x + A(x)), x' = N2(x + F(y)): the skip from the layer's input crosses N2 only.
HybridNorm: y = x + A(x), c = N1(y), x' = c + F(c): the attention block keeps the identity.
"""

from __future__ import annotations

from derive.proof import Identity, Step, Theorem, Verdict
from proofs.bibliography import HYBRIDNORM, SPANNORM
from proofs.setting import F, identity, x
from proofs.variants._shared import DA, DF, DN, N_1, A, layer, without_branches

__all__ = ["theorem"]

u = x + A(x)
y = N_1(u)
J_1 = DN(1, u)
span = x + F(y)

theorem = Theorem(
    id="spannorm-hybridnorm-jacobians",
    area="variants",
    title="The Jacobians of SpanNorm and HybridNorm",
    statement=(
        r"SpanNorm: $J = J_{N_2}(I + D\!F\,J_{N_1}(I + D\!A))$. HybridNorm: "
        r"$J = (I + D\!F)J_{N_1}(I + D\!A)$. Through no sublayer each crosses one norm a layer."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "SpanNorm.",
            "chain rule",
            Identity(
                claim=lambda J: (
                    J,
                    DN(2, span) * (identity + DF(y) * J_1 * (identity + DA(x))),
                ),
                of=layer("spannorm"),
                instead=layer("b2t"),
            ),
        ),
        Step(
            "HybridNorm, with its norms inside attention left to the sublayer.",
            "chain rule",
            Identity(
                claim=lambda J: (J, (identity + DF(y)) * J_1 * (identity + DA(x))),
                of=layer("hybridnorm"),
                instead=layer("spannorm"),
            ),
        ),
        Step(
            "SpanNorm's path through no sublayer crosses the second norm only.",
            r"$D\!A = D\!F = 0$ in the Jacobian",
            Identity(
                claim=lambda J: (without_branches(J), DN(2, span)),
                of=layer("spannorm"),
                instead=layer("b2t"),
            ),
        ),
        Step(
            "HybridNorm's crosses the first norm only.",
            "the same",
            Identity(
                claim=lambda J: (without_branches(J), J_1),
                of=layer("hybridnorm"),
                instead=layer("spannorm"),
            ),
        ),
    ),
    sources=(
        HYBRIDNORM("the layer's equation", seen="secondary"),
        SPANNORM("equations (5) to (8)", seen="secondary"),
    ),
)
