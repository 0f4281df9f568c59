r"""A convex combination of two points of the sphere lies inside it, by a known amount.

|(1 - a) x + a g|^2 = 1 - 2a(1 - a)(1 - x'g) for unit vectors, at most 1, so that the projection
back multiplies by at least 1; for a between 0 and 1.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Inner, Vector
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import alpha, d
from proofs.bibliography import NGPT
from proofs.setting import x

__all__ = ["theorem"]

g = Vector("g", d)


def unit(v: sp.Basic) -> sp.Basic:
    """Return v/|v|."""
    return 1 / sp.sqrt(Inner(v, v)) * v


def _square(pair: tuple[sp.Basic, sp.Basic]) -> tuple[sp.Expr, sp.Expr]:
    a, b = pair
    h = (1 - alpha) * a + alpha * b
    return Inner(h, h), 1 - 2 * alpha * (1 - alpha) * (1 - Inner(a, b))


def _distance(pair: tuple[sp.Basic, sp.Basic]) -> tuple[sp.Expr, sp.Expr]:
    a, b = pair
    return 1 - Inner(a, b), Inner(a - b, a - b) / 2


theorem = Theorem(
    id="ngpt-step-shrinks",
    area="variants",
    title="The interpolation of nGPT stays inside the sphere",
    statement=(
        r"For unit vectors, $|(1 - \alpha)x + \alpha g|^2 = 1 - 2\alpha(1 - \alpha)(1 - x^\top g)$ "
        r"and $1 - x^\top g = \frac12|x - g|^2 \ge 0$: for $0 \le \alpha \le 1$ the length is at "
        "most 1 and the projection back multiplies the gradient by at least 1."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The length of the combination.",
            "multiplied out",
            Identity(claim=_square, of=lambda: (unit(x), unit(g)), instead=lambda: (x, g)),
        ),
        Step(
            r"$1 - x^\top g$ is half a square.",
            "both vectors have length 1",
            Identity(claim=_distance, of=lambda: (unit(x), unit(g)), instead=lambda: (x, g)),
        ),
    ),
    sources=(NGPT("the block's equation", seen="memory"),),
)
