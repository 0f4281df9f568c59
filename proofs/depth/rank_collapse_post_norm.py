r"""Uniform attention in post-norm: the distance of tokens halves at every block, in the end.

1 - rho' = (1 - rho)/(1 + A), and the product of 1 + A over L blocks is 1 + (2^L - 1) A. Without the
skip one block of uniform attention makes all tokens equal.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.laws.meanfield import BlockMoments
from derive.proof import Gaussian, Induction, Step, Theorem, Verdict
from derive.symbols import L, n
from proofs.bibliography import DONG
from proofs.depth._shared import WIDE
from proofs.depth._tokens import MEAN, rho, tokens
from proofs.depth.attention_correlation import A
from proofs.depth.attention_correlation import theorem as correlation

__all__ = ["theorem"]


def _apart(block: BlockMoments) -> sp.Expr:
    ahead = block.forward()["x", "x"]
    return 1 - ahead.c / ahead.v


def _distance(block: BlockMoments) -> tuple[Any, Any, Any]:
    """Claim (1 - rho_L)/(1 - rho_0); a block's factor at A_l = 2^l A/(1 + (2^l - 1) A)."""
    factor = sp.simplify((_apart(block) / (1 - rho)).subs(rho, (n * A - 1) / (n - 1)))
    at = 2 ** (L - 1) * A / (1 + (2 ** (L - 1) - 1) * A)
    return 1 / (1 + (2**L - 1) * A), sp.S.One, lambda y, k: y * factor.subs(A, at.subs(L, k))


theorem = Theorem(
    id="rank-collapse-post-norm",
    area="depth",
    title="How fast tokens come together in post-norm attention",
    statement=(
        r"In a post-norm stack of uniform attention $1 - \rho_L = \frac{1 - \rho_0}{1 + (2^L-1)A}$ "
        r"with $A = \frac{1 + (n-1)\rho_0}n$: it halves at every block once $2^LA \gg 1$. Without "
        "a skip all tokens are equal after one block."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    uses=(correlation,),
    steps=(
        Step(
            r"$1 - \rho' = \frac{1-\rho}{1 + A}$.",
            "the difference of two tokens passes the skip only",
            Gaussian(
                name=r"1 - \rho'",
                claim=lambda block: (_apart(block), (1 - rho) / (1 + MEAN)),
                of=tokens("N(x + F(x))"),
                instead=tokens("N(F(x))"),
            ),
        ),
        Step(
            "The product over the blocks.",
            "induction, with the closed form of A",
            Induction(
                claim=_distance,
                of=tokens("N(x + F(x))"),
                instead=tokens("N(F(x))"),
                name=r"\frac{1-\rho_L}{1-\rho_0}",
            ),
        ),
        Step(
            r"Without the skip $\rho' = 1$.",
            "every token becomes the mean token",
            Gaussian(
                name=r"\rho'",
                claim=lambda block: (block.forward()["x", "x"].c, sp.S.One),
                of=tokens("N(F(x))"),
                instead=tokens("N(x + F(x))"),
            ),
        ),
    ),
    sources=(DONG("collapse of pure attention; skips against it", seen="memory"),),
    remark=(
        "Skips slow the collapse down to an exponential one in post-norm and to 1/L in pre-norm; "
        "they do not stop it. Attention that is not uniform is not covered."
    ),
)
