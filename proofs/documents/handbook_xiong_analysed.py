"""Pre-norm analysed by Xiong and others in 2020: what of it is rederived here."""

from __future__ import annotations

import sympy as sp

from derive.proof import Expectation, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import HANDBOOK, XIONG
from proofs.depth._shared import WIDE
from proofs.depth.pre_norm_variance import theorem as pre_norm_variance
from proofs.depth.relu_moments import theorem as relu_moments
from proofs.documents._shared import law

__all__ = ["theorem"]

_z = sp.Symbol("z", real=True)


theorem = Theorem(
    id="handbook-xiong-analysed",
    area="documents",
    title="The analysis of 2020",
    statement="Pre-norm was further analysed theoretically by Xiong and others in 2020.",
    verdict=Verdict.SUPPORTED,
    uses=(
        relu_moments,
        pre_norm_variance,
    ),
    steps=(
        Step(
            r"Their Lemma 1, $\mathbb E\,\mathrm{relu}(z)^2 = 1/2$, holds.",
            "an integral over half the line",
            Gaussian(
                claim=lambda f: (Expectation(f(_z) ** 2, _z), sp.Rational(1, 2)),
                of=lambda: lambda z: sp.Max(z, 0),
                instead=lambda: lambda z: z,
            ),
        ),
        Step(
            (
                r"The lower end of their Lemma 2 for pre-norm, $\mathbb E\lVert "
                r"x_l\rVert^2/d = 1 + l/2$, is what independent tokens give."
            ),
            "every branch adds 1/2",
            Gaussian(
                claim=lambda found: (found.solution.forward, 1 + L / 2),
                of=law("pre"),
                instead=law("post"),
                name=r"\mathbb{E}|x_L|^2/d",
            ),
        ),
    ),
    sources=(
        HANDBOOK("paragraph 4", seen="text"),
        XIONG("lemmas 1 and 2, theorem 1", seen="text"),
    ),
    assumptions=(WIDE,),
)
