r"""Keel's identity path keeps its weight without any scaling of weights: its skip has weight L.

A block keeps L^2/(L^2 + f) of a squared gradient on the skip, so that L blocks lose f/L.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.proof import Bound, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.depth._shared import WIDE, Recursion, f, general

__all__ = ["theorem"]

t = sp.Symbol("t", positive=True)


def _loss(R: Recursion) -> tuple[Any, Any]:
    """Return minus the logarithm of what a block keeps, and t = f/L^2, by which it is bounded."""
    return sp.log(sp.simplify(1 / R.at(1).skip.subs(f, t * L**2))), t


theorem = Theorem(
    id="keel-identity-path",
    area="depth",
    title="Keel's identity path keeps its weight",
    statement=(
        r"In $x_{l+1} = N(Lx_l + F(N(x_l)))$ the identity path has weight $(1 + f/L^2)^{-L} \ge "
        r"e^{-f/L}$ over $L$ blocks, which tends to 1."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    steps=(
        Step(
            r"A block keeps $\frac{L^2}{L^2 + f}$.",
            "composed from the expression of the block",
            Gaussian(
                name=r"\mathrm{skip}",
                claim=lambda R: (R.at(1).skip, L**2 / (L**2 + f)),
                of=general("keel"),
                instead=general("deepnorm"),
            ),
        ),
        Step(
            r"On a logarithmic scale it loses at most $t = f/L^2$.",
            "ln(1 + t) is at most t",
            Bound(claim=_loss, of=general("keel"), instead=general("post")),
        ),
    ),
    remark=(
        "Keel's equation and its weight L are known here from third-party accounts only "
        "(arXiv:2601.19895), of which one has another gate."
    ),
)
