r"""A post-norm stack of gelu branches multiplies the squared gradient by 1.0215 a block.

The gain (1 + b)/(1 + f) with the moments of gelu; a constant, so that depth makes a power of it.
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Counterexample, Gaussian, Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.depth._shared import WIDE, Recursion, law, ratio
from proofs.depth.gelu_moments import theorem as gelu
from proofs.depth.post_norm_gain import theorem as gain

__all__ = ["theorem"]

G = 4 * (sp.sqrt(3) + 6 * sp.pi) / (3 * (sp.sqrt(3) + 8 * sp.pi))


def _depth(R: Recursion) -> tuple[sp.Expr, sp.Expr]:
    return R.at(1).gradient ** 24, sp.S.One


theorem = Theorem(
    id="post-norm-gelu",
    area="depth",
    title="Post-norm with gelu is not neutral: a factor 1.0215 a block",
    statement=(
        "A post-norm stack keeps the mean square of the gradient at initialisation, whatever the "
        "activation."
    ),
    verdict=Verdict.CONDITIONAL,
    assumptions=(WIDE,),
    uses=(gain, gelu),
    steps=(
        Step(
            "With relu the gradient law is 1 at every depth.",
            "the gain is 1",
            Induction(
                claim=ratio(sp.S.One, sp.S.One),
                of=law("post"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            r"With gelu the gain is $G = \frac{4(\sqrt3+6\pi)}{3(\sqrt3+8\pi)} = 1.0214\ldots$",
            r"$(1+b)/(1+f)$ with the moments of gelu",
            Gaussian(
                name=r"G",
                claim=lambda R: (R.at(1).gradient, G),
                of=law("post", "ffn:gelu"),
                instead=law("post"),
            ),
        ),
        Step(
            r"So that the law is $G^L$.",
            "induction over the blocks",
            Induction(
                claim=ratio(G**L, sp.S.One),
                of=law("post", "ffn:gelu"),
                instead=law("post"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "At 24 blocks that is 1.666, not 1.",
            "interval arithmetic",
            Counterexample(
                claim=_depth,
                of=law("post", "ffn:gelu"),
                instead=law("post"),
                relation=">",
                stated=("1.666", "1"),
            ),
        ),
    ),
    holds_when="the activation is positively homogeneous, so that b = f.",
    fails_when=(
        r"b differs from f: gelu gains $2.1\%$ a block, a factor 1.67 over 24 blocks, which is far "
        "from the exponential loss that post-norm is charged with."
    ),
)
