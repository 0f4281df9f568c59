r"""LayerNorm is RMSNorm of the deviations; where the two Jacobians differ, and by how much.

LN(x) = RMS(C x),   J_LN(x) = J_RMS(C x) C,   C = I - 11'/d
"""

from __future__ import annotations

from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import ZHANG
from proofs.setting import GAIN_ONE, MEAN_ZERO, C, jacobian, one, s, x

__all__ = ["theorem"]

theorem = Theorem(
    id="layernorm-is-centred-rmsnorm",
    area="norms",
    title="LayerNorm as RMSNorm of the deviations",
    statement=(
        r"$J_{LN}(x) = J_{RMS}(Cx)\,C$ with $C = I - \frac{\mathbf 1\mathbf 1^\top}d$; at unit "
        r"gain and an input of mean zero the two Jacobians differ by "
        r"$\frac{\mathbf 1\mathbf 1^\top}{ds}$, a matrix of rank one."
    ),
    verdict=Verdict.PROVED,
    assumptions=(GAIN_ONE, MEAN_ZERO),
    steps=(
        Step(
            r"$J_{LN}(x) = J_{RMS}(Cx)\,C$ for every gain and $\epsilon$.",
            "chain rule; the deviations are C x",
            Identity(
                claim=lambda J: (J, jacobian("rmsnorm")().xreplace({x: C * x}) * C),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
            ),
        ),
        Step(
            r"$CJ_{LN}C = J_{LN}$ at unit gain: it maps vectors of mean zero to such vectors.",
            r"$C$ is a projection and fixes the normalised deviations",
            Identity(
                claim=lambda J: (C * J * C, J),
                of=jacobian("layernorm"),
                instead=jacobian("rmsnorm"),
                assuming=(GAIN_ONE,),
            ),
        ),
        Step(
            r"$J_{LN}^\top = J_{LN}$ at unit gain.",
            "a combination of the identity and of vectors times their own transposes",
            Identity(
                claim=lambda J: (J.T, J),
                of=jacobian("layernorm"),
                instead=lambda: jacobian("layernorm")() * C + one * x.T,
                assuming=(GAIN_ONE,),
            ),
        ),
        Step(
            r"At an input of mean zero and unit gain, $J_{RMS} - J_{LN} = "
            r"\frac{\mathbf 1\mathbf 1^\top}{ds}$: RMSNorm passes the direction of the mean on.",
            "there both roots are the same",
            Identity(
                claim=lambda J: (J - jacobian("layernorm")(), 1 / (d * s) * one * one.T),
                of=jacobian("rmsnorm"),
                instead=jacobian("layernorm"),
                assuming=(GAIN_ONE, MEAN_ZERO),
            ),
        ),
    ),
    sources=(ZHANG("section 3"),),
)
