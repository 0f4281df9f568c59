r"""Uniform attention in a post-norm stack: what correlations of tokens do to the gradient, exactly.

With A = (1 + (n-1) rho)/n the mean square of the mean token, a block x -> N(x + A(x)) doubles the
odds A/(1 - A), and likewise those of B for gradients backwards. A block divides by 1 + A and
multiplies by 1 + B, so that the products have closed forms and their quotient lies between 1 and
B/A: at every depth between 1/n and n.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.laws.meanfield import BlockMoments
from derive.proof import Gaussian, Identity, Induction, Step, Theorem, Verdict
from derive.symbols import L, n
from proofs.depth._shared import WIDE
from proofs.depth._tokens import BACK, MEAN, backward, r, rho, tokens

__all__ = ["theorem"]

A, m, t = sp.symbols("A m t", positive=True)


def _forward(block: BlockMoments) -> sp.Expr:
    return block.forward()["x", "x"].c


def _odds(block: BlockMoments) -> tuple[Any, Any, Any]:
    """Claim A behind L blocks, from the block's own map of A."""
    one = sp.simplify(MEAN.subs(rho, _forward(block)).subs(rho, (n * A - 1) / (n - 1)))
    return 2**L * A / (1 - A + 2**L * A), A, lambda y, k: one.subs(A, y)


def _divided(block: BlockMoments) -> tuple[Any, Any, Any]:
    """Claim the product of 1 + A: the inverse gain of gradients without a mean."""
    lost = backward(block).v.subs(r, -1 / (n - 1)).subs(rho, (n * A - 1) / (n - 1))
    at = 2 ** (L - 1) * A / (1 - A + 2 ** (L - 1) * A)
    return 1 - A + 2**L * A, 1, lambda y, k: y / lost.subs(A, at.subs(L, k))


theorem = Theorem(
    id="attention-correlation",
    area="depth",
    title="Post-norm attention changes the gradient by a factor between 1/n and n at any depth",
    statement=(
        r"In a post-norm stack of uniform self-attention on $n$ tokens with correlation "
        r"$\rho_0 \ge 0$, and gradients of correlation $r_L \ge 0$ at the output, let $A = "
        r"\frac{1+(n-1)\rho_0}n$ and $B = \frac{1+(n-1)r_L}n$. Then $\frac{\mathbb E|g_0|^2}"
        r"{\mathbb E|g_L|^2} = \frac{1 + (2^L-1)B}{1 + (2^L-1)A}$, which lies between 1 and $B/A$, "
        r"hence between $1/n$ and $n$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    steps=(
        Step(
            r"Forward: $\rho' = \frac{\rho + A}{1 + A}$.",
            "each token gets the mean token, whose mean square is A",
            Gaussian(
                name=r"\rho'",
                claim=lambda block: (_forward(block), (rho + MEAN) / (1 + MEAN)),
                of=tokens("N(x + F(x))"),
                instead=tokens("x + F(N(x))"),
            ),
        ),
        Step(
            r"Backward: the gain is $\frac{1+B}{1+A}$.",
            "the branch returns the mean gradient, the norm divides",
            Gaussian(
                name=r"G",
                claim=lambda block: (backward(block).v, (1 + BACK) / (1 + MEAN)),
                of=tokens("N(x + F(x))"),
                instead=tokens("x + F(N(x))"),
            ),
        ),
        Step(
            r"Backward: $r' = \frac{r + B}{1 + B}$, the same map as forward.",
            "the quotient of the gradient's moments",
            Gaussian(
                name=r"r'",
                claim=lambda block: (
                    backward(block).c / backward(block).v,
                    (r + BACK) / (1 + BACK),
                ),
                of=tokens("N(x + F(x))"),
                instead=tokens("N(F(x))"),
            ),
        ),
        Step(
            r"So that $A_L = \frac{2^LA}{1 + (2^L-1)A}$: the odds double.",
            "induction over the blocks",
            Induction(claim=_odds, of=tokens("N(x + F(x))"), instead=tokens("N(F(x))"), name="A_L"),
        ),
        Step(
            r"And $\prod_{l<L}(1 + A_l) = 1 + (2^L-1)A$; likewise for B.",
            "induction over the blocks",
            Induction(
                claim=_divided,
                of=tokens("N(x + F(x))"),
                instead=tokens("x + F(N(x))"),
                name=r"\prod_{l<L}(1 + A_l)",
            ),
        ),
        Step(
            r"For $B = A + t$ and $m = 2^L - 1$, $(1 + mA)B - (1 + mB)A = t \ge 0$: the quotient "
            r"is "
            r"at most $B/A$; for $B < A$ exchange them.",
            "multiply out",
            Identity(
                claim=lambda gap: ((1 + m * A) * (A + gap) - (1 + m * (A + gap)) * A, t),
                of=lambda: t,
                instead=lambda: -t,
            ),
        ),
    ),
    remark=(
        r"Relu branches in between change the correlations, so that for whole layers the bounds "
        r"are "
        r"measured and not proved: in an earlier run at $n = 16$, $L = 24$, $17.0 \pm 2.7$ for "
        r"independent tokens and equal gradients, $0.050 \pm 0.010$ for the reverse."
    ),
)
