r"""DeepNet's .81 and .87, and torchscale's 1/1.15, are rounded: the conditions give roots of 3."""

from __future__ import annotations

import sympy as sp

from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from proofs.bibliography import DEEPNET
from proofs.depth.deepnorm_constants import theorem as constants

__all__ = ["theorem"]

ALPHA = 3 ** sp.Rational(-3, 16)
BETA = 3 ** sp.Rational(3, 16) / sp.sqrt(2)

theorem = Theorem(
    id="deepnet-rounding",
    area="literature",
    title="The constants .81, .87 and 1/1.15",
    statement=(
        r"In the encoder of an encoder-decoder model DeepNorm's constants are $0.81$ and $0.87$, "
        r"or "
        r"in code $1/1.15$ for the second."
    ),
    verdict=Verdict.REFUTED,
    uses=(constants,),
    steps=(
        Step(
            r"The exact ones multiply to $2^{-1/2}$.",
            "powers of 3 cancel",
            Identity(
                name=r"\alpha\beta",
                claim=lambda pair: (pair[0] * pair[1], 1 / sp.sqrt(2)),
                of=lambda: (ALPHA, BETA),
                instead=lambda: (sp.Rational(81, 100), sp.Rational(87, 100)),
            ),
        ),
        Step(
            r"$0.81 \cdot 0.87 = 0.7047$ is below that.",
            "exact arithmetic",
            Counterexample(
                claim=lambda pair: (pair[0] * pair[1], 1 / sp.sqrt(2)),
                of=lambda: (sp.Rational(81, 100), sp.Rational(87, 100)),
                instead=lambda: (ALPHA, BETA),
                relation="<",
                stated=("0.7047", "0.7071"),
            ),
        ),
        Step(
            r"$1/1.15$ is above $2^{-1/2}\,3^{3/16}$.",
            "interval arithmetic",
            Counterexample(
                claim=lambda beta: (beta, BETA),
                of=lambda: sp.Rational(100, 115),
                instead=lambda: sp.Rational(87, 100),
                relation=">",
                stated=("0.869565", "0.868851"),
            ),
        ),
    ),
    sources=(DEEPNET("table of alpha and beta; torchscale, architecture/encoder.py", seen="code"),),
    holds_when="they are read as rounded to two digits.",
    fails_when=r"they are read as exact; the errors are $0.5\%$, $0.1\%$ and $0.08\%$.",
    remark="Nothing about training follows: the second condition is a choice of the paper.",
)
