r"""DeepNorm's identity path keeps its weight at any depth, if the branches are scaled as well.

With alpha^2 = sqrt(L) and both matrices of a branch scaled by beta = (4L)^(-1/4), a branch has mean
square f/(4L) and a block keeps 1/(1 + f L^(-3/2)/4) of the skip. The logarithm of L of them is at
least -f/(4 sqrt(L)). Without beta it is -L ln(1 + f/sqrt(L)): the path vanishes.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.laws.initial import SCHEMES
from derive.proof import Bound, Counterexample, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import DEEPNET
from proofs.depth._shared import WIDE, Recursion, f, general

__all__ = ["theorem"]

t = sp.Symbol("t", positive=True)
BETA = SCHEMES["deepnorm"].value


def _skip(R: Recursion, beta: sp.Expr = BETA) -> sp.Expr:
    return sp.simplify(R.at(1).skip.subs(f, f * beta**4))


def _loss(R: Recursion) -> tuple[Any, Any]:
    """Return minus the logarithm of the path's weight over L blocks, with f = 4 t L^(3/2)."""
    weight = sp.simplify(_skip(R).subs(f, 4 * t * L ** sp.Rational(3, 2)))
    return sp.log(sp.simplify(1 / weight)), t


theorem = Theorem(
    id="deepnorm-identity-path",
    area="depth",
    title="DeepNorm's identity path keeps its weight",
    statement=(
        r"In a DeepNorm stack of $L$ blocks the weight of the identity path tends to 1 with depth, "
        r"since $\alpha = L^{1/4}$."
    ),
    verdict=Verdict.CONDITIONAL,
    assumptions=(WIDE,),
    steps=(
        Step(
            r"With $\beta = (4L)^{-1/4}$ on both matrices a block keeps $\frac{\sqrt L}{\sqrt L + "
            r"f/(4L)}$.",
            r"the branch has mean square $\beta^4f$",
            Gaussian(
                name=r"\mathrm{skip}",
                claim=lambda R: (_skip(R), sp.sqrt(L) / (sp.sqrt(L) + f / (4 * L))),
                of=general("deepnorm"),
                instead=general("post"),
            ),
        ),
        Step(
            r"With $t = \frac{f}{4L^{3/2}}$ the path loses at most $t$ a block, $\frac{f}{4\sqrt "
            r"L}$ "
            "in all, on a logarithmic scale.",
            "ln(1 + t) is at most t",
            Bound(claim=_loss, of=general("deepnorm"), instead=general("post")),
        ),
        Step(
            r"At $L = 100$, $f = 1/2$ and $\beta = 1$ the path has weight $0.0076$.",
            "interval arithmetic",
            Counterexample(
                claim=lambda R: (
                    sp.Pow(
                        _skip(R, sp.S.One).subs({f: sp.Rational(1, 2), L: 100}),
                        100,
                        evaluate=False,
                    ),
                    sp.S.One,
                ),
                of=general("deepnorm"),
                instead=general("keel"),
                relation="<",
                stated=("0.00760", "1"),
            ),
        ),
    ),
    sources=(DEEPNET("the initialisation by beta", seen="code"),),
    holds_when=r"the matrices of the branches are scaled by $\beta = (4L)^{-1/4}$ as well.",
    fails_when=(
        r"only the skip is scaled: then the path has $(1 + f/\sqrt L)^{-L}$, about $e^{-f\sqrt L}$."
    ),
)
