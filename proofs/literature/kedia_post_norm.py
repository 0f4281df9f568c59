r"""Whether post-norm gradients decay or explode exponentially: it depends on what the branches do.

Relu branches keep them, gelu branches gain 2 % a block, uniform self-attention stays between 1/n
and n, and cross-attention on correlated memory halves them.
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Counterexample, Gaussian, Induction, Step, Theorem, Verdict
from proofs.bibliography import DEEPSCALE
from proofs.depth._shared import WIDE, b, f, general, law, ratio
from proofs.depth.attention_correlation import theorem as attention
from proofs.depth.decoder_memory import theorem as decoder
from proofs.depth.post_norm_gelu import theorem as gelu

__all__ = ["theorem"]

theorem = Theorem(
    id="kedia-post-norm",
    area="literature",
    title="Post-norm gradients decay or explode exponentially with depth",
    statement=(
        "At initialisation the gradient of post-norm decays or explodes exponentially with depth."
    ),
    verdict=Verdict.CONDITIONAL,
    assumptions=(WIDE,),
    uses=(attention, decoder, gelu),
    steps=(
        Step(
            r"The gain of a block is $\frac{1+b}{1+f}$: exponential where $b \ne f$.",
            "composed from the expression of the block",
            Gaussian(
                name=r"G",
                claim=lambda R: (R.at(1).gradient, (1 + b) / (1 + f)),
                of=general("post"),
                instead=general("pre"),
            ),
        ),
        Step(
            "For relu branches the law is 1 at every depth.",
            "b = f",
            Induction(
                claim=ratio(sp.S.One, sp.S.One),
                of=law("post"),
                instead=law("post", "ffn:gelu"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "At 96 relu blocks it is 1, where pre-norm has 49.",
            "exact arithmetic",
            Counterexample(
                claim=lambda laws: (laws[0].at(1).gradient ** 96, 1 + 96 * laws[1].at(0).forward),
                of=lambda: (law("post")(), law("pre")()),
                instead=lambda: (law("pre")(), law("pre")()),
                relation="<",
                stated=("1", "49"),
            ),
        ),
    ),
    sources=(DEEPSCALE("summary of section on models", seen="secondary"),),
    holds_when=(
        r"$b \ne f$ (gelu: $1.021^L$), or branches that return no gradient, as cross-attention on "
        r"memory: $(1/2)^L$."
    ),
    fails_when=(
        "all branches are relu feed-forward ones, with law 1, or all are uniform self-attention, "
        "with a law between 1/n and n at any depth."
    ),
)
