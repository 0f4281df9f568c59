"""Deeper training with pre-norm: at the start its gradients grow slowly, for any sublayers."""

from __future__ import annotations

import sympy as sp

from derive.proof import Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import ADMIN, COURSE
from proofs.depth._shared import WIDE
from proofs.depth.decoder_memory import theorem as decoder_memory
from proofs.depth.pre_norm_gradient import theorem as pre_norm_gradient
from proofs.documents._shared import CROSS, law

__all__ = ["theorem"]


theorem = Theorem(
    id="course-pre-norm-deeper",
    area="documents",
    title="Deeper models with pre-norm",
    statement="Pre-norm makes it possible to train significantly deeper models than post-norm.",
    verdict=Verdict.SUPPORTED,
    uses=(
        pre_norm_gradient,
        decoder_memory,
    ),
    steps=(
        Step(
            "Pre-norm's mean squared gradient grows to $1 + L/2$ over L relu sublayers.",
            "telescoping product",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1 + L / 2),
                of=law("pre"),
                instead=law("post"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "With cross-attention to one memory it is 1 at every depth.",
            "the branch takes no gradient to x",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("x + C(N(x))", "attention"),
                instead=law(CROSS, "attention"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "There post-norm's falls as $2^{-L}$.",
            "the norm divides by what the branch adds",
            Gaussian(
                claim=lambda found: (found.solution.gradient, sp.Rational(1, 2) ** L),
                of=law(CROSS, "attention"),
                instead=law("post"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
    ),
    sources=(
        COURSE("characteristics of pre-LN, common practice", seen="text"),
        COURSE("comparison table, stability", seen="text"),
        COURSE("conclusion", seen="text"),
        ADMIN("18 and 18 layers: post-norm diverged, pre-norm trained", seen="secondary"),
    ),
    assumptions=(WIDE,),
    remark=(
        "At the start of training, that is. Reported of training: at 18 encoder and 18 decoder "
        "layers post-norm diverged and pre-norm reached 28.38 BLEU."
    ),
)
