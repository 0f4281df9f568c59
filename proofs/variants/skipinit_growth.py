r"""SkipInit with alpha = 1/sqrt(L): the whole stack grows by a constant factor, however deep.

A block of L multiplies the mean square by 1 + f/L <= exp(f/L), with f that of the branch at mean
square 1 (1/2 for a relu branch of LeCun's weights); without the scale it is (1 + f)^L.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import sympy as sp

from derive.errors import DomainError
from derive.laws import DepthLaw
from derive.proof import Assumption, Bound, Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import SKIPINIT

__all__ = ["theorem"]

WIDE = Assumption(
    "wide-relu",
    "weights are independent with variance 1 over the number of inputs, branches are relu "
    "feed-forward networks without bias, the width grows without bound",
)


@lru_cache(maxsize=4)
def _factors(placement: str) -> tuple[sp.Expr, sp.Expr]:
    recursion = DepthLaw(placement, sublayers=("ffn:relu",)).recursion
    if recursion is None:
        raise DomainError(f"placement: expected one with a law in one variable, got {placement}")
    forward, gradient = recursion
    (v,) = forward.free_symbols - {L}
    return sp.expand(forward / v), sp.expand(gradient)


def factors(placement: str) -> Callable[[], tuple[sp.Expr, sp.Expr]]:
    """Return a subject: what a block multiplies the mean squares of signal and gradient by."""
    return lambda: _factors(placement)


theorem = Theorem(
    id="skipinit-growth",
    area="variants",
    title="SkipInit bounds the growth of a stack without norms",
    statement=(
        r"Without a norm and with $\alpha = 1/\sqrt L$, a relu stack of any depth multiplies the "
        r"mean squares of signal and gradient by $(1 + \frac1{2L})^L \le \sqrt e$; without the "
        r"scale by $(3/2)^L$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    steps=(
        Step(
            r"A block multiplies the mean square of the signal by $1 + \frac1{2L}$.",
            "the branch has mean square 1/2",
            Gaussian(
                claim=lambda block: (block[0], 1 + 1 / (2 * L)),
                of=factors("skipinit"),
                instead=factors("no-norm"),
            ),
        ),
        Step(
            "And that of the gradient by the same.",
            "relu: half of the entries pass, forwards and backwards",
            Gaussian(
                claim=lambda block: (block[1], 1 + 1 / (2 * L)),
                of=factors("skipinit"),
                instead=factors("no-norm"),
            ),
        ),
        Step(
            r"So that $L$ blocks multiply by at most $\sqrt e$.",
            r"$1 + t \le e^t$",
            Bound(
                claim=lambda block: (block[0], sp.exp(1 / (2 * L))),
                of=factors("skipinit"),
                instead=factors("no-norm"),
            ),
        ),
        Step(
            r"Without the scale each block multiplies by $\frac32$.",
            "the branch at full size",
            Gaussian(
                claim=lambda block: (block[0], sp.Rational(3, 2)),
                of=factors("no-norm"),
                instead=factors("skipinit"),
            ),
        ),
    ),
    sources=(SKIPINIT("SkipInit", seen="memory"),),
)
