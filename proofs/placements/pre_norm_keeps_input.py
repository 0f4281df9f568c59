r"""A pre-norm block passes its own input on unchanged, at eps = 0 and only there.

J x = x for J = I + DF(N(x)) J_N(x), since J_N(x) x = (eps/s^3) g*c. With eps > 0 the claim fails;
the witness is F(z) = z in two dimensions, where J x differs from x.
"""

from __future__ import annotations

import derive
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from proofs.setting import EPS_ZERO, block_jacobian, x

__all__ = ["theorem"]


theorem = Theorem(
    id="pre-norm-keeps-input",
    area="placements",
    title="A pre-norm block keeps its own input",
    statement=r"$J x_l = x_l$ for every pre-norm block, whatever its sublayer.",
    verdict=Verdict.CONDITIONAL,
    assumptions=(EPS_ZERO,),
    steps=(
        Step(
            r"At $\epsilon = 0$, $(I + D\!F(N(x))\,J_N(x))\,x = x$.",
            "the norm does not see a scale",
            Identity(
                claim=lambda J: (J * x, x),
                of=block_jacobian("pre"),
                instead=block_jacobian("post"),
                assuming=(EPS_ZERO,),
            ),
        ),
        Step(
            r"At $\epsilon = 1$, gain 1, $d = 2$, $x = (1, 3)$ and $F(z) = z$ it fails.",
            r"$J_N(x)\,x = (\epsilon/s^3)\,c$ is not 0",
            Counterexample(
                claim=lambda block: (derive.jacobian(block, x) * x, x),
                of=lambda: x + derive.LayerNorm()(x),
                instead=lambda: x + derive.LayerNorm(eps=0)(x),
                relation="!=",
                stated=("0.353553", "0"),
                at={"x": (1, 3), "gain": (1, 1), "bias": (0, 0), "eps": 1},
            ),
        ),
    ),
    holds_when=r"$\epsilon = 0$.",
    fails_when=(
        r"$\epsilon > 0$; then $Jx - x = (\epsilon/s^3)\,D\!F\,(\gamma\odot c)$, small where "
        r"$s^2 \gg \epsilon$."
    ),
)
