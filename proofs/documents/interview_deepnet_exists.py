"""DeepNet: post-norm made stable at depth, by two constants that one condition ties."""

from __future__ import annotations

import sympy as sp

from derive.proof import Gaussian, Identity, Step, Theorem, Verdict
from proofs.bibliography import DEEPNET, INTERVIEW
from proofs.depth._shared import WIDE
from proofs.depth.deepnorm_constants import theorem as deepnorm_constants
from proofs.depth.update_amplification import theorem as update_amplification
from proofs.documents._shared import law

__all__ = ["theorem"]

_N = sp.Symbol("N", positive=True)


theorem = Theorem(
    id="interview-deepnet-exists",
    area="documents",
    title="DeepNet",
    statement=(
        "DeepNet shows that post-norm can be made stable at depth by scaling "
        "and initialization; it exists since plain post-norm fails there."
    ),
    verdict=Verdict.SUPPORTED,
    uses=(
        deepnorm_constants,
        update_amplification,
    ),
    steps=(
        Step(
            (
                r"With $\alpha = (2N)^{1/4}$ and $\beta = (8N)^{-1/4}$ the first-order "
                r"change of the output, $2N\cdot 2\beta^2/\alpha^2$, is 1 at every "
                "depth N."
            ),
            "algebra",
            Identity(
                claim=lambda power: (
                    2 * _N * 2 * (8 * _N) ** (-2 * power) / (2 * _N) ** (2 * power),
                    sp.S.One,
                ),
                of=lambda: sp.Rational(1, 4),
                instead=lambda: sp.Rational(1, 8),
            ),
        ),
        Step(
            "Its mean squared gradient at the start is 1 at every depth.",
            "relu sublayers",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("deepnorm"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
    ),
    sources=(
        INTERVIEW("example 5; when it does not apply", seen="text"),
        DEEPNET("abstract: trained with 1000 layers", seen="text"),
    ),
    assumptions=(WIDE,),
    remark=(
        "Plain post-norm's gradient is 1 as well in this setting: what "
        "DeepNorm changes is how much an update moves the output, not the "
        "gradient at the start."
    ),
)
