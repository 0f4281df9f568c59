r"""ResiDual: the second stream passes its gradient on unchanged, whatever the sublayers.

(x, r) -> (N(x + F(x)), r + F(x)) has the block matrix [[J_N (I + DF), 0], [DF, I]]. A gradient
(a, b) goes back to (a J_N (I + DF) + b DF, b).
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Vector
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import RESIDUAL
from proofs.setting import F, identity, x
from proofs.variants._shared import DF, layernorm_jacobian, stream_jacobians

__all__ = ["theorem"]

a, b = Vector("a", d), Vector("b", d)
u = x + F(x)


def _back(blocks: dict[tuple[str, str], sp.Basic], stream: str) -> sp.Basic:
    """Return what arrives at a stream of the gradient (a, b) at the outputs."""
    return a.T * blocks["x", stream] + b.T * blocks["r", stream]


theorem = Theorem(
    id="residual-second-stream",
    area="variants",
    title="ResiDual's second stream carries the gradient unchanged",
    statement=(
        r"A ResiDual block has $\partial(x', r')/\partial(x, r) = "
        r"\begin{pmatrix} J_N(I + D\!F) & 0 \\ D\!F & I\end{pmatrix}$; a gradient $(a, b)$ arrives "
        r"as $b$ at the second stream and as $a^\top J_N(I + D\!F) + b^\top D\!F$ at the first."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The second stream.",
            r"$r' = r + F(x)$, and $x'$ does not read $r$",
            Identity(
                claim=lambda J: (_back(J, "r"), b.T * identity),
                of=lambda: stream_jacobians("residual"),
                instead=lambda: stream_jacobians("siamesenorm"),
            ),
        ),
        Step(
            "The first stream: post-norm, and the branch of the second.",
            "chain rule",
            Identity(
                claim=lambda J: (
                    _back(J, "x"),
                    a.T * layernorm_jacobian(u) * (identity + DF(x)) + b.T * DF(x),
                ),
                of=lambda: stream_jacobians("residual"),
                instead=lambda: stream_jacobians("siamesenorm"),
            ),
        ),
    ),
    sources=(RESIDUAL("the block's equations", seen="code"),),
    remark=(
        "The output adds a norm of the second stream, which takes its own directions out once; the "
        "stack itself does not."
    ),
)
