r"""Uniform attention in a pre-norm stack: tokens come together as 1/v_L, and no faster.

Every token gets the same mean token A, so that v and c grow alike and v - c does not change:
(1 - rho_l) v_l is constant. A branch adds at least 0 and at most 1, and 1 for equal tokens.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.laws.meanfield import BlockMoments
from derive.proof import Bound, Gaussian, Induction, Step, Theorem, Verdict
from derive.symbols import L, n
from proofs.bibliography import DONG, XIONG
from proofs.depth._shared import WIDE, v
from proofs.depth._tokens import BACK, MEAN, backward, rho, tokens

__all__ = ["mean_token", "theorem"]

t = sp.Symbol("t", positive=True)


def mean_token(block: BlockMoments) -> sp.Expr:
    """Return what a block adds to the mean square."""
    return sp.simplify(block.forward()["x", "x"].v - v)


def _difference(block: BlockMoments) -> tuple[sp.Expr, sp.Expr]:
    ahead = block.forward()["x", "x"]
    return ahead.v - ahead.c, v * (1 - rho)


def _equal(block: BlockMoments) -> tuple[Any, Any, Any]:
    return 1 + L, sp.S.One, lambda y, k: block.forward()["x", "x"].v.subs({rho: 1, v: y})


theorem = Theorem(
    id="attention-pre-norm",
    area="depth",
    title="Pre-norm attention: the stream, and how tokens come together",
    statement=(
        r"In a pre-norm stack of uniform attention a block adds $A = \frac{1+(n-1)\rho}n$ to the "
        r"mean square, at most 1, and $(1 - \rho_l)\,v_l$ is the same at every depth. The gradient "
        r"gains $1 + B/v_l$ with $B = \frac{1+(n-1)r}n$ of the correlation $r$ of gradients."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    steps=(
        Step(
            r"$v_{l+1} = v_l + A$.",
            "each token gets the mean of normalised tokens",
            Gaussian(
                name=r"v_{l+1}",
                claim=lambda block: (block.forward()["x", "x"].v, v + MEAN),
                of=tokens("x + F(N(x))", v),
                instead=tokens("x + F(x)", v),
            ),
        ),
        Step(
            r"With $\rho = 1 - \frac{nt}{n-1}$, $A = 1 - t \le 1$.",
            "tokens cannot be closer than equal",
            Bound(
                claim=lambda block: (mean_token(block).subs(rho, 1 - n * t / (n - 1)), sp.S.One),
                of=tokens("x + F(N(x))", v),
                instead=tokens("x + F(N(x)) + F(N(x))", v),
            ),
        ),
        Step(
            r"For equal tokens $v_L = 1 + L$.",
            "A = 1; induction",
            Induction(
                claim=_equal, of=tokens("x + F(N(x))", v), instead=tokens("x + F(x)", v), name="v_L"
            ),
        ),
        Step(
            r"$v - c = (1 - \rho)\,v$ does not change.",
            "all tokens get the same addition",
            Gaussian(
                name=r"v_{l+1} - c_{l+1}",
                claim=_difference,
                of=tokens("x + F(N(x))", v),
                instead=tokens("N(x + F(x))", v),
            ),
        ),
        Step(
            r"The gradient gains $1 + B/v$.",
            "the branch returns the mean gradient, over the root of v",
            Gaussian(
                name=r"G",
                claim=lambda block: (backward(block).v, 1 + BACK / v),
                of=tokens("x + F(N(x))", v),
                instead=tokens("N(x + F(x))", v),
            ),
        ),
    ),
    sources=(XIONG("appendix on Lemma 2", seen="text"), DONG("skips against collapse", "memory")),
    remark=(
        r"So that $1 - \rho_L = (v_0 - c_0)/v_L$ goes as $1/L$: in post-norm it halves at every "
        "block. Rank collapse at initialisation is polynomial in pre-norm."
    ),
)
