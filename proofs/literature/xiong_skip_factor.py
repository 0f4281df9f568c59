r"""The factor (2/3)^((L-l)/2) of Xiong et al. is not how post-norm weight gradients depend on l.

In their toy (relu branches with d hidden features) the squared gradient of W_2 is d/3 at every
layer. The factor is the weight of the path that takes no branch.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.laws import DepthLaw
from derive.laws.weight_law import weight_solution
from derive.proof import Counterexample, Gaussian, Step, Theorem, Verdict
from derive.symbols import L, d, l
from proofs.bibliography import XIONG
from proofs.depth._shared import WIDE
from proofs.depth.attention_correlation import theorem as attention
from proofs.depth.skip_path_weight import theorem as skip

__all__ = ["theorem"]


def last_matrices(placement: str, sublayer: str = "ffn:relu") -> Any:
    """Return a subject: E|dL/dW_2|^2 of layer l of L over E|g_L|^2, for d hidden features."""
    return lambda: weight_solution(DepthLaw(placement, sublayers=(sublayer,)))[0]["W_2"] / 4


def _layers(W: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    first, last = (W.subs({l: k, L: 12}) for k in (1, 12))
    return sp.sqrt(first / last), sp.Rational(2, 3) ** sp.Rational(11, 2)


theorem = Theorem(
    id="xiong-skip-factor",
    area="literature",
    title="Post-norm weight gradients decay away from the output",
    statement=(
        r"In post-norm the gradients of $W_2$ of layer $l$ hold a factor $(2/3)^{(L-l)/2}$ and "
        "decrease exponentially towards the input."
    ),
    verdict=Verdict.REFUTED,
    assumptions=(WIDE,),
    uses=(skip, attention),
    steps=(
        Step(
            r"With relu branches $\mathbb E\lVert\partial\mathcal L/\partial W_{2,l}\rVert_F^2 = "
            r"\frac d3\,\mathbb E|g_L|^2$ at every layer $l$.",
            "gains are 1, and every norm divides by 3/2",
            Gaussian(
                name=r"\mathbb{E}\lVert\partial\mathcal L/\partial W_2\rVert_F^2/|g|^2",
                claim=lambda W: (W, d / 3),
                of=last_matrices("post"),
                instead=last_matrices("pre"),
            ),
        ),
        Step(
            r"At 12 branches the first over the last is 1, and the factor is $0.1075$.",
            "interval arithmetic",
            Counterexample(
                claim=_layers,
                of=last_matrices("post"),
                instead=last_matrices("pre"),
                relation=">",
                stated=("1", "0.1075"),
            ),
        ),
    ),
    sources=(XIONG(r"appendix F", seen="text"),),
    holds_when="only the path through no branch counts, of which the factor is the weight.",
    fails_when=(
        "all paths count. A stack of uniform attention changes the gradient by a factor between "
        "1/n and n at any depth, never exponentially."
    ),
    remark=(
        "The statement is about the model at initialisation, and so is the refutation. The theorem "
        "of the paper, on the last layer, does not rest on the factor."
    ),
)
