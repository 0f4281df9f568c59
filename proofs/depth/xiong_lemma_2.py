r"""Xiong's Lemma 2: a layer of their toy adds between 1/2 and 3/2 to the mean square.

A relu branch adds 1/2, uniform attention the mean square A of the mean token, between 0 and 1. In
post-norm the sum before a norm is 1 + 1/2.
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Gaussian, Step, Theorem, Verdict
from derive.symbols import n
from proofs.bibliography import XIONG
from proofs.depth._shared import WIDE, law, v
from proofs.depth._tokens import rho, tokens
from proofs.depth.attention_pre_norm import mean_token
from proofs.depth.attention_pre_norm import theorem as attention

__all__ = ["theorem"]

t = sp.Symbol("t", positive=True)

theorem = Theorem(
    id="xiong-lemma-2",
    area="depth",
    title="Mean squares of post-norm and pre-norm layers",
    statement=(
        r"With uniform attention and relu branches of matrices of variance $1/d$: before the last "
        r"norm of a post-norm layer $\mathbb E|x|^2 = \frac32d$; in pre-norm $(1 + \frac l2)d \le "
        r"\mathbb E|x_l|^2 \le (1 + \frac{3l}2)d$ after $l$ layers."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    uses=(attention,),
    steps=(
        Step(
            r"Post-norm: the sum at mean square 1 is $\frac32$.",
            "relu adds one half",
            Gaussian(
                name=r"\mathbb{E}|x + F|^2/d",
                claim=lambda R: (R.at(1).forward, sp.Rational(3, 2)),
                of=law("no-norm"),
                instead=law("no-norm", "ffn:gelu"),
            ),
        ),
        Step(
            r"Pre-norm: a feed-forward branch adds $\frac12$.",
            "relu at unit mean square",
            Gaussian(
                name=r"v_{l+1}",
                claim=lambda R: (R.forward, v + sp.Rational(1, 2)),
                of=law("pre"),
                instead=law("no-norm"),
            ),
        ),
        Step(
            r"Attention adds $t \in [0, 1]$ at $\rho = \frac{nt - 1}{n-1}$, and $\rho$ is between "
            r"$-\frac1{n-1}$ and 1.",
            "A is the mean square of the mean token",
            Gaussian(
                name=r"A",
                claim=lambda block: (
                    mean_token(block).subs(rho, n * t / (n - 1) - 1 / (n - 1)),
                    t,
                ),
                of=tokens("x + F(N(x))", v),
                instead=tokens("N(x + F(x))", v),
            ),
        ),
    ),
    sources=(XIONG("Lemma 2", seen="text"),),
    remark=(
        "The upper end is equal tokens, A = 1. The lower end is approached at the first layer "
        "only: "
        "relu makes independent tokens correlated, and attention then adds more than nothing."
    ),
)
