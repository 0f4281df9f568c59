r"""Without norms a residual stack grows exponentially, (1 + f)^L; scaled by 1/sqrt(L) it does not.

A homogeneous branch multiplies the mean square by f. With branches divided by the root of L the
growth is (1 + f/L)^L, at most e^f: ln(1 + t) is at most t.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.proof import Bound, Gaussian, Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.depth._shared import WIDE, Recursion, f, general, law, ratio, stream, v
from proofs.depth.homogeneous_conservation import theorem as conservation

__all__ = ["theorem"]

t = sp.Symbol("t", positive=True)
GROWTH = sp.Rational(3, 2) ** L


def _logarithm(R: Recursion) -> tuple[Any, Any]:
    """Return the logarithm of a block's growth, and t = f/L, by which it is bounded."""
    return sp.log(sp.cancel(R.forward / v).subs(f, t * L)), t


theorem = Theorem(
    id="no-norm-growth",
    area="depth",
    title="Residual stacks without norms, and what the scale 1/sqrt(L) does",
    statement=(
        r"For $x_{l+1} = x_l + F(x_l)$ with homogeneous branches $v_L = (1 + f)^L$, and for $b = "
        r"f$ "
        r"the gradient grows alike: $(3/2)^L$ for relu. With $F/\sqrt L$ in place of $F$, $v_L = "
        r"(1 + f/L)^L \le e^f$ at every depth."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    uses=(conservation,),
    steps=(
        Step(
            r"$v_L = (3/2)^L$ for relu.",
            "each block multiplies by 1 + f; induction",
            Induction(claim=stream(GROWTH), of=law("no-norm"), instead=law("pre"), name="v_L"),
        ),
        Step(
            "The gradient law is the same.",
            "gradient times stream is conserved",
            Induction(
                claim=ratio(GROWTH, GROWTH),
                of=law("no-norm"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            r"Scaled by $1/\sqrt L$ a block multiplies by $1 + f/L$.",
            "the squared scale is 1/L",
            Gaussian(
                name=r"v_{l+1}",
                claim=lambda R: (R.forward, v * (1 + f / L)),
                of=general("x + alpha*F(x)", alpha=1 / sp.sqrt(L)),
                instead=general("no-norm"),
            ),
        ),
        Step(
            r"Its logarithm is at most $f/L$, so that $L$ blocks have at most $f$.",
            "ln(1 + t) is at most t",
            Bound(
                claim=_logarithm,
                of=general("x + alpha*F(x)", alpha=1 / sp.sqrt(L)),
                instead=general("no-norm"),
            ),
        ),
    ),
    remark=(
        r"With a norm in front and the scale $1/\sqrt L$, $v_L = 1 + f$ at every depth; that is "
        "the `scaled-residual` placement."
    ),
)
