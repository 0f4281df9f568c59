"""The output of a post-norm block is normed: the claim contradicts the block's own equation."""

from __future__ import annotations

import derive
from derive.calculus.atoms import Inner
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.bibliography import COURSE
from proofs.documents._shared import root
from proofs.setting import F, x

__all__ = ["theorem"]

_bare = derive.LayerNorm(gain=False, bias=False)
_exact = derive.LayerNorm(gain=False, bias=False, eps=0)


theorem = Theorem(
    id="course-post-output-not-normalized",
    area="documents",
    title="Is post-norm's output normed?",
    statement=(
        "The sum of input and branch in post-norm is not normed before it is "
        "passed to the next layer."
    ),
    verdict=Verdict.REFUTED,
    steps=(
        Step(
            (
                r"What a post-norm block passes on has mean square $v/(v+\epsilon)$, "
                "for every $F$."
            ),
            "the norm is the last operation",
            Identity(
                claim=lambda y: (
                    Inner(y.body.output, y.body.output) / d,
                    1 - eps / root(x + F(x)) ** 2,
                ),
                of=lambda: _bare(x + F(x)),
                instead=lambda: _bare(F(x)),
            ),
        ),
        Step(
            (
                "It is the pre-norm stream that nothing norms: with $F(z) = z$ the "
                "vector $(3, -3)$ becomes $(4, -4)$."
            ),
            r"$\epsilon = 0$, mean square 16",
            Counterexample(
                claim=lambda y: (Inner(y, y) / d, 1),
                of=lambda: x + _exact(x),
                instead=lambda: _exact(x + x),
                relation=">",
                stated=("16", "1"),
                at={"x": (3, -3)},
            ),
        ),
    ),
    sources=(COURSE("characteristics of post-LN, potential instability", seen="text"),),
    holds_when="The sentence is read as one about pre-norm.",
    fails_when=(
        "It is read as it stands: the document's own flow norms the sum and calls that the output."
    ),
)
