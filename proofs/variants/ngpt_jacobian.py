r"""nGPT: a convex combination, then the sphere; the output direction never passes a gradient back.

y = h/|h| with h = x + lam*(g - x) and g = F(x)/|F(x)|. The Jacobian is the projection of the sphere
at h times (I - diag(lam)) + diag(lam) J_g, and y'J = 0 whatever the sublayer.
"""

from __future__ import annotations

import sympy as sp

from derive.blocks.norms import L2Norm
from derive.calculus.atoms import Diag, Inner
from derive.proof import Identity, Step, Theorem, Verdict
from proofs.bibliography import NGPT
from proofs.setting import F, block_jacobian, identity, x
from proofs.variants._shared import DF, lam, sphere_jacobian

__all__ = ["theorem"]

f = F(x)
h = x + Diag(lam) * (L2Norm("1")(f) - x)
y = 1 / sp.sqrt(Inner(h, h)) * h

theorem = Theorem(
    id="ngpt-jacobian",
    area="variants",
    title="The Jacobian of an nGPT block",
    statement=(
        r"With $g = F(x)/|F(x)|$, $h = x + \lambda\odot(g - x)$ and $y = h/|h|$, "
        r"$J = \frac1{|h|}(I - yy^\top)\bigl(I - \mathrm{diag}(\lambda) + "
        r"\mathrm{diag}(\lambda)J_g\bigr)$; $y^\top J = 0$ whatever the sublayer."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The derived Jacobian is this product.",
            "chain rule",
            Identity(
                claim=lambda J: (
                    J,
                    sphere_jacobian(h)
                    * (identity - Diag(lam) + Diag(lam) * sphere_jacobian(f) * DF(x)),
                ),
                of=block_jacobian("ngpt"),
                instead=block_jacobian("layerscale"),
            ),
        ),
        Step(
            "A gradient along the output is lost.",
            r"$y^\top(I - yy^\top) = 0$",
            Identity(
                claim=lambda J: (y.T * J, 0 * x.T),
                of=block_jacobian("ngpt"),
                instead=block_jacobian("post"),
            ),
        ),
    ),
    sources=(NGPT("the block's equation", seen="memory"),),
)
