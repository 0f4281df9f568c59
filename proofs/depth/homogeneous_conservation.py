r"""One law for all placements: with homogeneous branches, gradient times stream is conserved.

Where b = f, every norm divides v and |g|^2 by reciprocal factors and every sum adds shares of both
in proportion, so that G v_(l-1) = v_l for any block: E|g_0|^2/E|g_L|^2 = v_L/v_0.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.proof import Gaussian, Step, Theorem, Verdict
from proofs.depth._shared import WIDE, Recursion, b, f, general, v
from proofs.depth.homogeneous_activations import theorem as homogeneous

__all__ = ["theorem"]

PLACEMENTS = {
    "post": "Post-norm: both sides are 1.",
    "deepnorm": "DeepNorm, at every depth.",
    "keel": "Keel.",
    "pre": "Pre-norm: both sides are v + f.",
    "sandwich": "Peri-norm: both sides are v + 1.",
    "res-post": "Norm of the branch's output.",
    "lns": "LayerNorm Scaling, at every layer l.",
    "scaled-residual": "Branches scaled by the root of the depth.",
    "no-norm": "No norm at all: both sides are v + v f.",
}


def _claim(R: Recursion) -> tuple[sp.Expr, sp.Expr]:
    return v * R.gradient.subs(b, f), R.forward


def _step(placement: str, words: str) -> Step:
    subject = general(placement)

    def uneven() -> Recursion:
        """Return the same block with a backward gain of twice f."""
        found = subject()
        return found._replace(gradient=found.gradient.subs(b, 2 * f))

    check: Any = Gaussian(claim=_claim, of=subject, instead=uneven, name="G v_l")
    return Step(words, "composed from the expression of the block", check)


theorem = Theorem(
    id="homogeneous-conservation",
    area="depth",
    title="With homogeneous branches gradient times stream is conserved by every placement",
    statement=(
        r"For one token and branches with $b = f$ (relu, no biases), $\mathbb E|g_l|^2\,v_l$ is "
        "the same at every depth, in post-norm, DeepNorm, Keel, pre-norm, peri-norm, LayerNorm "
        "Scaling, scaled residuals and without norms: the gradient grows towards the input exactly "
        "as the stream grows towards the output."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    uses=(homogeneous,),
    steps=tuple(_step(p, words) for p, words in PLACEMENTS.items()),
    remark=(
        "Each step is an identity in the mean square, in f, and in the depth. Attention is not "
        "covered: there the correlations of tokens and of gradients enter, and differ."
    ),
)
