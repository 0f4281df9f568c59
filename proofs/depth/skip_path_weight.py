r"""The pure skip path of a post-norm stack loses (2/3)^L, and that is not the gradient.

Of the gain (1 + b)/(1 + f) the skip alone has 1/(1 + f): 2/3 for relu with f = 1/2, 1/2 for a
branch of unit mean square. One path of 2^L; with all of them the gain is 1 for b = f.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.proof import Counterexample, Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import DEEPNET, XIONG
from proofs.depth._shared import WIDE, Recursion, f, general, law, ratio
from proofs.depth.post_norm_gain import theorem as gain

__all__ = ["theorem"]


def _skip(R: Recursion) -> tuple[Any, Any, Any]:
    one = R.at(1).skip.subs(f, sp.Rational(1, 2))
    return sp.Rational(2, 3) ** L, sp.S.One, lambda y, k: y * one


def _unit(R: Recursion) -> tuple[Any, Any, Any]:
    one = R.at(1).skip.subs(f, 1)
    return sp.Rational(1, 2) ** L, sp.S.One, lambda y, k: y * one


theorem = Theorem(
    id="skip-path-weight",
    area="depth",
    title="Post-norm gradients decay like the skip path",
    statement=(
        r"In a post-norm stack the mean squared gradient decays like the weight of its identity "
        r"path, $(1 + f)^{-L}$: $(2/3)^L$ for relu feed-forward branches."
    ),
    verdict=Verdict.REFUTED,
    assumptions=(WIDE,),
    uses=(gain,),
    steps=(
        Step(
            r"The skip path has weight $(2/3)^L$ at $f = 1/2$.",
            "each norm divides by 1 + f; induction",
            Induction(claim=_skip, of=general("post"), instead=general("pre"), name=r"w_L"),
        ),
        Step(
            r"And $(1/2)^L$ at branches of unit mean square.",
            "the same with f = 1",
            Induction(claim=_unit, of=general("post"), instead=general("pre"), name=r"w_L"),
        ),
        Step(
            r"What is true: $\mathbb E|g_0|^2/\mathbb E|g_L|^2 = 1$ for relu branches.",
            "the paths through branches return as much as the norms take",
            Induction(
                claim=ratio(sp.S.One, sp.S.One),
                of=law("post"),
                instead=law("post", "ffn:gelu"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            r"At $L = 24$ the gradient law is 1 and the path has $5.94\cdot10^{-5}$.",
            "exact arithmetic",
            Counterexample(
                claim=lambda R: (
                    R[0].at(1).gradient ** 24,
                    R[1].at(1).skip.subs(f, sp.Rational(1, 2)) ** 24,
                ),
                of=lambda: (law("post")(), general("post")()),
                instead=lambda: (law("pre")(), general("pre")()),
                relation=">",
                stated=("1", "5.94e-5"),
            ),
        ),
    ),
    sources=(
        XIONG(r"appendix F, the term (2/3)^((L-l)/2)", seen="text"),
        DEEPNET("introduction, as widely summarised", seen="secondary"),
    ),
    holds_when=(
        "only the identity path counts: the branches return no gradient, as cross-attention on "
        "memory does."
    ),
    fails_when=(
        r"the branches return as much as they add, $b = f$. In an earlier run at $d = 256$, $L = "
        r"24$ the "
        r"whole gradient keeps $0.97 \pm 0.12$, the skip path $7\cdot 10^{-5}$."
    ),
)
