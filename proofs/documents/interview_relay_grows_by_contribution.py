"""The pre-norm stream grows by what its branches add, at most."""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Vector
from derive.proof import Bound, Gaussian, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import INTERVIEW
from proofs.depth._shared import WIDE
from proofs.documents._shared import law
from proofs.placements.residual_stream_growth import theorem as residual_stream_growth
from proofs.setting import x

__all__ = ["theorem"]

_branch = Vector("F", d)
_v = sp.Symbol("v", positive=True)


theorem = Theorem(
    id="interview-relay-grows-by-contribution",
    area="documents",
    title="The relay race: growth of the baton",
    statement="In pre-norm the baton's weight only grows by what each runner could carry.",
    verdict=Verdict.PROVED,
    uses=(residual_stream_growth,),
    steps=(
        Step(
            (
                r"$\lVert x + F(N(x))\rVert \le \lVert x\rVert + \lVert "
                r"F(N(x))\rVert$."
            ),
            "triangle inequality",
            Bound(
                claim=lambda y: (SpectralNorm(y), SpectralNorm(x) + SpectralNorm(_branch)),
                of=lambda: x + _branch,
                instead=lambda: x + 3 * _branch,
            ),
        ),
        Step(
            "At random weights every relu branch adds 1/2 to the mean square, at any depth.",
            "input of the branch is normed",
            Gaussian(
                claim=lambda found: (found.recursion[0], _v + sp.Rational(1, 2)),
                of=law("pre"),
                instead=law("no-norm"),
                name=r"v_l",
            ),
        ),
    ),
    sources=(INTERVIEW("analogy", seen="text"),),
    assumptions=(WIDE,),
    remark=(
        "It holds without the norm as well; the norm's part is that a "
        "sublayer never gets more than its gain allows, see "
        "course-branch-input-bounded."
    ),
)
