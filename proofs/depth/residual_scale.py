r"""Which residual scale makes a pre-norm stack independent of its depth: 1/sqrt(L).

With x + alpha F(N(x)) a block adds alpha^2 f: v_L = 1 + alpha^2 f L, and the gradient law is the
same for b = f. Both are bounded in L if and only if alpha^2 L is.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.proof import Gaussian, Induction, Step, Theorem, Verdict
from derive.symbols import L, d
from proofs.bibliography import NOCI, RADFORD
from proofs.depth._shared import WIDE, Recursion, a, b, f, general, law, stream, v

__all__ = ["theorem"]

SCALED = "x + alpha*F(N(x))"


def _ratio(R: Recursion) -> tuple[Any, Any, Any]:
    closed = 1 + a**2 * f * L

    def step(y: Any, k: Any) -> Any:
        return y * R.at(closed.subs(L, k - 1)).gradient.subs(b, f)

    return closed, sp.S.One, step


theorem = Theorem(
    id="residual-scale",
    area="depth",
    title="The residual scale that makes pre-norm independent of depth",
    statement=(
        r"For $x_{l+1} = x_l + \alpha F(N(x_l))$, $v_L = 1 + \alpha^2fL$ and, with $b = f$, "
        r"$\mathbb E|g_0|^2/\mathbb E|g_L|^2 = 1 + \alpha^2fL$: at $\alpha = 1/\sqrt L$ both are "
        r"$1 + f$ at every depth."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    steps=(
        Step(
            r"$v_L = 1 + \alpha^2fL$.",
            "induction over the blocks",
            Induction(
                claim=stream(1 + a**2 * f * L),
                of=general(SCALED, alpha=a),
                instead=general("N(alpha*x + F(x))", alpha=a),
                name="v_L",
            ),
        ),
        Step(
            "The gradient law is the same.",
            "the gain is $1 + \\alpha^2b/v$; the product telescopes",
            Induction(
                claim=_ratio,
                of=general(SCALED, alpha=a),
                instead=general("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            r"At $\alpha = 1/\sqrt L$ every block adds $f/L$.",
            "L blocks add f",
            Gaussian(
                name=r"v_{l+1}",
                claim=lambda R: (R.forward, v + f / L),
                of=general("scaled-residual"),
                instead=general("pre"),
            ),
        ),
        Step(
            r"GPT-2's initialisation, output matrices scaled by $1/\sqrt L$, does so in the "
            r"weights: a relu block adds $2\cdot0.02^4d^2/L$.",
            r"matrices of variance $0.02^2$, $4d$ hidden features",
            Gaussian(
                name=r"v_{l+1}",
                claim=lambda R: (R.forward, v + 2 * sp.Rational(1, 50) ** 4 * d**2 / L),
                of=law("pre", init="gpt2"),
                instead=law("pre"),
            ),
        ),
    ),
    sources=(
        NOCI("scaling of residual branches by depth", seen="memory"),
        RADFORD("section 2.3, the scaled initialisation", seen="memory"),
    ),
)
