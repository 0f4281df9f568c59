r"""Rotary embedding: scores depend on the distance of two tokens, lengths on nothing.

R_i is made of 2 x 2 rotations by i theta. Entry by entry R_i'R_j = R_{j-i} is the addition theorem;
that lengths stay is orthogonality, in any number of dimensions.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Inner, Matrix, Vector
from derive.calculus.structured import Orthogonal
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d_h
from proofs.bibliography import ROFORMER

__all__ = ["theorem"]

i, j, theta = sp.symbols("i j theta", real=True)
q, k = Vector("q", d_h), Vector("k", d_h)
R, other = Orthogonal("R", d_h), Matrix("R", d_h, d_h)


def turn(angle: sp.Expr) -> sp.Matrix:
    """Return a rotation of the plane."""
    return sp.Matrix([[sp.cos(angle), -sp.sin(angle)], [sp.sin(angle), sp.cos(angle)]])


def _pair() -> sp.Matrix:
    return turn(i * theta).T * turn(j * theta)


theorem = Theorem(
    id="rotary-orthogonal",
    area="attention",
    title="Rotary embedding is orthogonal and relative",
    statement=(
        r"The rotations of rotary embedding have $R_i^\top R_j = R_{j-i}$ and leave lengths as "
        r"they are, so that a score $(R_iq)^\top R_jk$ depends on $j - i$ only."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"The diagonal entries of $R_i^\top R_j$ are $\cos((j - i)\theta)$.",
            "addition theorem",
            Identity(
                claim=lambda A: (A[0, 0], sp.cos((j - i) * theta)),
                of=_pair,
                instead=lambda: turn(i * theta) * turn(j * theta),
            ),
        ),
        Step(
            r"The others are $\pm\sin((j - i)\theta)$.",
            "addition theorem",
            Identity(
                claim=lambda A: (A[1, 0] - A[0, 1], 2 * sp.sin((j - i) * theta)),
                of=_pair,
                instead=lambda: turn(i * theta) * turn(j * theta),
            ),
        ),
        Step(
            "An orthogonal matrix keeps lengths and products, in any number of dimensions.",
            r"$R^\top R = I$",
            Identity(
                claim=lambda A: (Inner(A * q, A * (q + k)), Inner(q, q) + Inner(q, k)),
                of=lambda: R,
                instead=lambda: other,
            ),
        ),
    ),
    sources=(ROFORMER("section 3", seen="memory"),),
)
