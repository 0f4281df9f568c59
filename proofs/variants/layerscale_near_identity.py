r"""LayerScale keeps a block within max|lam| of the identity, branch by branch.

J - I = diag(lam) DF J_N, so that |J - I| <= max|lam| |DF| |J_N|, whatever the depth.
"""

from __future__ import annotations

from derive.calculus.atoms import Diag
from derive.proof import Bound, Identity, MaxAbs, SpectralNorm, Step, Theorem, Verdict
from proofs.bibliography import CAIT
from proofs.setting import block_jacobian, identity, x
from proofs.variants._shared import DF, lam, layernorm, layernorm_jacobian

__all__ = ["theorem"]

branch = DF(layernorm(x))

theorem = Theorem(
    id="layerscale-near-identity",
    area="variants",
    title="LayerScale's distance from the identity",
    statement=(
        r"$J = I + \mathrm{diag}(\lambda)\,D\!F\,J_{LN}$ and "
        r"$\lVert J - I\rVert_2 \le \lVert\lambda\rVert_\infty\lVert D\!F\rVert_2"
        r"\lVert J_{LN}\rVert_2$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The derived Jacobian.",
            "chain rule",
            Identity(
                claim=lambda J: (J, identity + Diag(lam) * branch * layernorm_jacobian(x)),
                of=block_jacobian("layerscale"),
                instead=block_jacobian("pre"),
            ),
        ),
        Step(
            "Its distance from the identity.",
            "norm of a diagonal, submultiplicativity",
            Bound(
                claim=lambda M: (
                    SpectralNorm(Diag(lam) * M),
                    MaxAbs(lam) * SpectralNorm(M),
                ),
                of=lambda: branch,
                instead=lambda: 50 * branch,
            ),
        ),
    ),
    sources=(CAIT("LayerScale", seen="memory"),),
    remark="The scales published at the start are 0.1 to 1e-6, the smaller the deeper the model.",
)
