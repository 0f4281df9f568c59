r"""Mix-LN: post-norm blocks below, pre-norm above; the gradient grows with the pre-norm part only.

The post-norm part hands on a stream of mean square 1 and keeps the gradient (relu). The pre-norm
part begins at 1 and multiplies by 1 + K f over its K blocks.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.proof import Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import MIXLN
from proofs.depth._shared import WIDE, Recursion, b, f, general, law, ratio
from proofs.depth.post_norm_gain import theorem as gain
from proofs.depth.pre_norm_gradient import theorem as gradient

__all__ = ["theorem"]


def _upper(laws: tuple[Recursion, Recursion]) -> tuple[Any, Any, Any]:
    """Claim the law of L pre-norm blocks on what the lower blocks hand on."""
    lower, upper = laws

    def step(y: Any, k: Any) -> Any:
        return y * upper.at(lower.forward + f * (k - 1)).gradient.subs(b, f)

    return 1 + f * L, sp.S.One, step


theorem = Theorem(
    id="mix-ln",
    area="depth",
    title="Mix-LN's gradient grows with its pre-norm part",
    statement=(
        r"In a stack of $P$ post-norm blocks below $K$ pre-norm blocks with relu branches, "
        r"$\mathbb E|g_0|^2/\mathbb E|g_{P+K}|^2 = 1 + K/2$: with $P = L/4$, $1 + \frac38L$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    uses=(gain, gradient),
    steps=(
        Step(
            "The post-norm part keeps the gradient.",
            "gain 1 for relu",
            Induction(
                claim=ratio(sp.S.One, sp.S.One),
                of=law("post"),
                instead=law("post", "ffn:gelu"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_P|^2",
            ),
        ),
        Step(
            r"The pre-norm part begins at mean square 1 and multiplies by $1 + Kf$.",
            "the post-norm part ends with a norm",
            Induction(
                claim=_upper,
                of=lambda: (general("post")(), general("pre")()),
                instead=lambda: (general("no-norm")(), general("pre")()),
                name=r"\mathbb{E}|g_P|^2/\mathbb{E}|g_{P+K}|^2",
            ),
        ),
    ),
    sources=(MIXLN("a quarter of the layers are post-norm", seen="memory"),),
)
