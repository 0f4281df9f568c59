r"""SiameseNorm: two streams, one pre-norm and one post-norm, with one sublayer between them.

o = F(x + N2(r)), x' = N1(x + o), r' = r + o. With J_2 at r and J_1 at x + o the block matrix is
[[J_1 (I + DF), J_1 DF J_2], [DF, I + DF J_2]].
"""

from __future__ import annotations

import derive
from derive.proof import Identity, Step, Theorem, Verdict
from proofs.bibliography import SIAMESE
from proofs.setting import F, identity, x
from proofs.variants._shared import DF, DN, N_2, any_norm_streams

__all__ = ["theorem"]

r = derive.state("r")
z = x + N_2(r)
J_1, J_2 = DN(1, x + F(z)), DN(2, r)

_BLOCKS = {
    ("x", "x"): J_1 * (identity + DF(z)),
    ("x", "r"): J_1 * DF(z) * J_2,
    ("r", "x"): DF(z),
    ("r", "r"): identity + DF(z) * J_2,
}


def _step(key: tuple[str, str], other: tuple[str, str], words: str) -> Step:
    return Step(
        words,
        "chain rule",
        Identity(
            claim=lambda J: (J, _BLOCKS[key]),
            of=lambda: any_norm_streams("siamesenorm")[key],
            instead=lambda: any_norm_streams("siamesenorm")[other],
        ),
    )


theorem = Theorem(
    id="siamesenorm-streams",
    area="variants",
    title="The block matrix of SiameseNorm",
    statement=(
        r"With $z = x + N_2(r)$, $x' = N_1(x + F(z))$ and $r' = r + F(z)$ the Jacobian is "
        r"$\begin{pmatrix} J_1(I + D\!F) & J_1D\!F\,J_2 \\ D\!F & I + D\!F\,J_2\end{pmatrix}$: a "
        "post-norm row above a pre-norm row."
    ),
    verdict=Verdict.PROVED,
    steps=(
        _step(("x", "x"), ("r", "x"), "The first stream to itself: a post-norm block."),
        _step(("x", "r"), ("r", "r"), "The second to the first: through both norms."),
        _step(("r", "x"), ("x", "x"), "The first to the second: the sublayer alone."),
        _step(("r", "r"), ("x", "r"), "The second to itself: a pre-norm block, with its identity."),
    ),
    sources=(SIAMESE("the block's equations", seen="secondary"),),
)
