r"""How fast uniform attention correlates tokens: what a skip does, what a norm does.

With A = (1 + (n - 1) rho)/n the mean square of a mean of n tokens, a post-norm block takes the
correlation rho to (rho + A)/(1 + A), and a block without norm does the same: the norm makes no
difference. In a pre-norm block the stream has grown to v, and the step is (v rho + A)/(v + A).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import sympy as sp

from derive.errors import DomainError
from derive.laws import DepthLaw
from derive.proof import Assumption, Bound, Gaussian, Step, Theorem, Verdict
from derive.symbols import n
from proofs.bibliography import NOCI

__all__ = ["theorem"]

v, rho, t, k = (sp.Symbol(name, positive=True) for name in ("v", "rho", "t", "k"))
A = (1 + (n - 1) * rho) / n
WIDE = Assumption(
    "wide-uniform",
    "weights are independent and of mean zero, the width grows without bound, attention is uniform "
    "over $n$ exchangeable tokens, biases are 0",
)


@lru_cache(maxsize=8)
def _next(placement: str, width: sp.Expr = v) -> sp.Expr:
    law = DepthLaw(placement, "layernorm", ("attention",), tokens=2)
    recursion = law.correlated
    if recursion is None:
        raise DomainError(f"placement: expected one whose tokens correlate, got {placement}")
    ahead, _ = recursion
    symbols = {str(s): s for s in ahead.c.free_symbols | ahead.v.free_symbols}
    at = {symbols["c"]: rho * width, symbols.get("v", v): width}
    return sp.simplify((ahead.c / ahead.v).subs(at, simultaneous=True))


def step(placement: str, width: sp.Expr = v) -> Callable[[], sp.Expr]:
    """Return a subject: the next correlation, at a stream of mean square v."""
    return lambda: _next(placement, width)


theorem = Theorem(
    id="attention-token-correlation",
    area="attention",
    title="The correlation of tokens over layers of uniform attention",
    statement=(
        r"With $A = (1 + (n - 1)\rho)/n$ one block of uniform attention takes the correlation "
        r"$\rho$ of two tokens to $\frac{\rho + A}{1 + A}$, post-norm and without norm alike, and "
        r"to $\frac{v\rho + A}{v + A}$ in a pre-norm block with a stream of mean square $v$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    steps=(
        Step(
            "Post-norm.",
            "the skip and the mean of the tokens add, the norm divides",
            Gaussian(
                claim=lambda after: (after, (rho + A) / (1 + A)),
                of=step("post", sp.S.One),
                instead=step("res-post", sp.S.One),
            ),
        ),
        Step(
            "Without a norm the same: a correlation does not see a scale.",
            "skip and mean grow alike",
            Gaussian(
                claim=lambda after: (after, (rho + A) / (1 + A)),
                of=step("no-norm"),
                instead=step("pre"),
            ),
        ),
        Step(
            "Pre-norm: the mean that is added has size A whatever the stream.",
            "the norm is on the branch",
            Gaussian(
                claim=lambda after: (after, (v * rho + A) / (v + A)),
                of=step("pre"),
                instead=step("no-norm"),
            ),
        ),
        Step(
            r"So that $1 - \rho$ is multiplied by $\frac1{1 + A}$ in a post-norm block, at most "
            r"$\frac n{n + 1}$ (here $\rho = \frac1{1 + t}$, $n = 1 + k$): exponentially small.",
            r"$A \ge 1/n$",
            Bound(
                claim=lambda after: (
                    sp.factor((1 - after.subs({rho: 1 / (1 + t), n: 1 + k})) * (1 + t) / t),
                    (1 + k) / (2 + k),
                ),
                of=step("post", sp.S.One),
                instead=lambda: rho / 3,
            ),
        ),
        Step(
            r"In a pre-norm block the factor is $\frac v{v + A}$: with $v = 1 + l$ the product "
            "over depth falls as a power of it.",
            r"$\frac{v - v\rho}{v + A}$",
            Gaussian(
                claim=lambda after: ((1 - after) / (1 - rho), v / (v + A)),
                of=step("pre"),
                instead=step("no-norm"),
            ),
        ),
    ),
    sources=(NOCI("section 3, on the correlation of tokens", seen="memory"),),
)
