r"""LayerNorm does not see a shift, for every eps; RMSNorm does.

LN(x + t 1) = LN(x),   J_LN(x + t 1) = J_LN(x)
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Identity, Step, Theorem, Verdict
from proofs.norms.rmsnorm_null_vectors import theorem as rmsnorm_null_vectors
from proofs.setting import jacobian, moved, norm, one, written_out, x

__all__ = ["theorem"]

t = sp.Symbol("t", real=True)
shifted = {x: x + t * one}

theorem = Theorem(
    id="layernorm-shift-invariance",
    area="norms",
    title="LayerNorm does not see a shift",
    statement=(
        r"$LN(x + t\mathbf 1) = LN(x)$ for every $t$ and $\epsilon$, and so has its Jacobian one "
        r"value along the direction $\mathbf 1$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"$LN(x + t\mathbf 1) = LN(x)$.",
            r"the mean becomes $\mu + t$",
            Identity(
                claim=lambda D: (
                    written_out(D.block).xreplace(shifted),
                    written_out(D.block),
                ),
                of=norm("layernorm"),
                instead=norm("rmsnorm"),
            ),
        ),
        Step(
            r"$J_{LN}(x + t\mathbf 1) = J_{LN}(x)$.",
            "its derivative",
            Identity(
                claim=lambda J: (moved(J, shifted, "t"), J),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
            ),
        ),
    ),
    remark=f"RMSNorm sees a shift: see {rmsnorm_null_vectors.id}.",
)
