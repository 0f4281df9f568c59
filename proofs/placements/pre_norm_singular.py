r"""When a pre-norm block is singular: exactly where J_N DF has the eigenvalue -1.

With D = DF and B = J_N, D maps the null space of I + B D onto that of I + D B, and -B maps it back.
So det(I + DF J_N) = 0 exactly where det(I + J_N DF) = 0, and with the same nullity. At eps = 0 the
null space has at most d - 2 dimensions, since 1 and x are kept; the witness reaches that.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.atoms import Inner, Matrix, Vector
from derive.calculus.trace import Trace
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.placements._shared import W, linear
from proofs.placements.pre_norm_keeps_ones import theorem as pre_norm_keeps_ones
from proofs.setting import (
    EPS_ZERO,
    GAIN_ONE,
    NOT_CONSTANT,
    block,
    c,
    identity,
    one,
    s,
    x,
)

__all__ = ["theorem"]

D, B, v = Matrix("D", d, d), Matrix("B", d, d), Vector("v", d)


def _witness(a: sp.Expr) -> sp.Basic:
    """Return the Jacobian of x + W N(x) with W = a s (I - 11'/d - cc'/|c|^2) at the point x."""
    J = derive.jacobian(block("pre", "layernorm", linear), x)
    return J.xreplace({W: a * s * (identity - one * one.T / d - c * c.T / Inner(c, c))})


theorem = Theorem(
    id="pre-norm-singular",
    area="placements",
    title="When a pre-norm block is singular",
    statement=(
        r"$I + D\!F\,J_N$ is singular exactly where $J_N\,D\!F$ has the eigenvalue $-1$, with the "
        r"same nullity, at most $d - 2$ at $\epsilon = 0$; $F(z) = -s\,Qz$ attains that: "
        r"a pre-norm block can have rank 2 of $d$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(EPS_ZERO, GAIN_ONE, NOT_CONSTANT),
    uses=(pre_norm_keeps_ones,),
    steps=(
        Step(
            r"$D(I + BD) = (I + DB)D$: $D$ maps the null space of $I + BD$ into that of $I + DB$.",
            "multiply out",
            Identity(
                claim=lambda E: (D * (identity + B * E), (identity + E * B) * D),
                of=lambda: D,
                instead=lambda: D.T,
            ),
        ),
        Step(
            r"$-B\,Dv = v - (I + BD)v$: on that null space $-B$ undoes $D$, so that the "
            "dimensions are the same.",
            "multiply out",
            Identity(
                claim=lambda E: (-1 * B * E * v, v - (identity + B * D) * v),
                of=lambda: D,
                instead=lambda: D.T,
            ),
        ),
        Step(
            r"At $\epsilon = 0$ and unit gain, with $F(z) = -s\,Qz$ where $Q = I - "
            r"\frac{\mathbf 1\mathbf 1^\top}d - \frac{cc^\top}{|c|^2}$, the Jacobian at $x$ is "
            r"$\frac{\mathbf 1\mathbf 1^\top}d + \frac{cc^\top}{|c|^2}$.",
            r"$J_N = \frac1sQ$ and $Q^2 = Q$",
            Identity(
                claim=lambda a: (
                    _witness(a),
                    one * one.T / d + 1 / Inner(c, c) * c * c.T,
                ),
                of=lambda: sp.S.NegativeOne,
                instead=lambda: sp.S.One,
                assuming=(EPS_ZERO, GAIN_ONE),
            ),
        ),
        Step(
            "This is a projection of trace, and so of rank, 2.",
            "the trace of a projection is its rank",
            Identity(
                claim=lambda a: (Trace(_witness(a)), sp.Integer(2)),
                of=lambda: sp.S.NegativeOne,
                instead=lambda: sp.S.One,
                assuming=(EPS_ZERO, GAIN_ONE),
            ),
        ),
    ),
    remark=(
        r"Equivalently $\det(I + D\!F J_N) = \det(I + J_N D\!F)$, Sylvester's identity. A skip "
        "connection does not keep a Jacobian invertible; a branch of norm below 1 does."
    ),
)
