r"""The gradient of a pre-norm stack is not bounded by the sum of the sublayers' Jacobians.

A real normalised block with a linear sublayer, W = s a vv'/|v|^2 with v orthogonal to 1 and c, has
the fixed point x (W N(x) = 0) and the Jacobian I + a vv'/|v|^2 there: |dx_L/dx_0| = (1 + a)^L. With
a = 1 and L = 24 that is 16,777,216, where the sum is 24. A bound of that kind holds for
total derivatives, which contain the products; in the sublayers' own Jacobians it is exp(sum).
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.atoms import Inner, Vector
from derive.calculus.let import Let
from derive.calculus.trace import Trace
from derive.proof import Assumption, Counterexample, Identity, Induction, Step, Theorem, Verdict
from derive.symbols import L, d
from proofs.bibliography import INTERVIEW
from proofs.placements._shared import W, linear
from proofs.placements.product_bound import theorem as product_bound
from proofs.setting import EPS_ZERO, GAIN_ONE, c, one, s, written_out, x

__all__ = ["theorem"]

a = sp.Symbol("a", positive=True)
w = Vector("w", d)
v = Let("v", w - Inner(one, w) / d * one - Inner(c, w) / Inner(c, c) * c)
stretch = {W: a * s / Inner(v, v) * v * v.T}
plain = derive.LayerNorm(eps=0, gain=False, bias=False)
direction = Vector("v", d)
ORTHOGONAL = Assumption("orthogonal", r"$v$ is the part of any vector orthogonal to $\mathbf 1, c$")


def _grown(blocks: int) -> tuple[sp.Expr, sp.Expr]:
    """Return how much the stack stretches the direction, and the sum of Frobenius norms."""
    J = derive.jacobian(x + linear(plain(x)), x)
    branch = derive.jacobian(linear(plain(x)), x)
    out = direction
    for k in range(1, blocks + 1):
        out = Let(f"y_{k}", J * out)
    stretched = sp.sqrt(Inner(out, out) / Inner(direction, direction))
    return stretched, blocks * sp.sqrt(Trace(branch.T * branch))


def _two_blocks() -> tuple[sp.Basic, sp.Basic, sp.Basic]:
    """Return two pre-norm blocks' Jacobian, and I plus the total derivatives of the branches."""
    first = derive.Sublayer("F_1")(derive.RMSNorm(1)(x))
    second = derive.Sublayer("F_2")(derive.RMSNorm(2)(x + first))
    return (
        derive.jacobian(x + first + second, x),
        derive.jacobian(first, x),
        derive.jacobian(second, x),
    )


theorem = Theorem(
    id="gradient-bounded-by-sum",
    area="placements",
    title="A pre-norm gradient bounded by a sum",
    statement=(
        "In a pre-norm stack the gradient norm stays bounded by a sum of sublayer Jacobians, not "
        "by a product."
    ),
    verdict=Verdict.REFUTED,
    assumptions=(EPS_ZERO, GAIN_ONE, ORTHOGONAL),
    uses=(product_bound,),
    steps=(
        Step(
            r"With $F(z) = Wz$, $W = a\,s\,vv^\top/|v|^2$, $v$ orthogonal to $\mathbf 1$ and $c$, "
            r"the block $x + WN(x)$ at $\epsilon = 0$ leaves $x$ where it is: $WN(x) = 0$.",
            r"$v^\top c = 0$",
            Identity(
                claim=lambda at: (x + W.xreplace(at) * written_out(plain(x)), x),
                of=lambda: stretch,
                instead=lambda: {W: one * x.T},
            ),
        ),
        Step(
            r"There $Jv = (1 + a)v$, so that $L$ such blocks stretch $v$ by $(1 + a)^L$.",
            r"$J_Nv = \frac1sv$",
            Identity(
                claim=lambda at: (
                    derive.jacobian(x + linear(plain(x)), x).xreplace(at) * v,
                    (1 + a) * v,
                ),
                of=lambda: stretch,
                instead=lambda: {W: stretch[W] / 2},
                assuming=(EPS_ZERO,),
            ),
        ),
        Step(
            r"Twenty-four blocks at $d = 4$, $x = (1, 1, -1, -1)$, $v = (1, -1, 0, 0)$, $a = 1$: "
            r"with $y_k = J y_{k-1}$ and $y_0 = v$, $|y_{24}|/|v| = 2^{24} = 16777216$, where the "
            r"sum of the sublayers' norms is 24.",
            "exact arithmetic; the branch has rank one, so that its norms are all 1",
            Counterexample(
                claim=_grown,
                of=lambda: 24,
                instead=lambda: 12,
                relation=">",
                stated=("16777216", "24"),
                at={
                    "x": (1, 1, -1, -1),
                    "v": (1, -1, 0, 0),
                    "W": (
                        ("1/2", "-1/2", 0, 0),
                        ("-1/2", "1/2", 0, 0),
                        (0, 0, 0, 0),
                        (0, 0, 0, 0),
                    ),
                },
                width=4,
            ),
        ),
        Step(
            r"For any $L$ the growth is $2^L$ at $a = 1$.",
            "induction over the number of blocks",
            Induction(
                claim=lambda factor: (2**L, sp.S.One, lambda y, _: factor * y),
                of=lambda: 2,
                instead=lambda: 1,
                name="g_L",
            ),
        ),
        Step(
            r"What is true: $\frac{dx_L}{dx_0} = I + \sum_l\frac{dF_l}{dx_0}$ with total "
            "derivatives, here for two blocks.",
            "the stream is a sum",
            Identity(
                claim=lambda parts: (parts[0], parts[1] + parts[2] + sp.Identity(d)),
                of=_two_blocks,
                instead=lambda: (_two_blocks()[0], _two_blocks()[1], _two_blocks()[1]),
            ),
        ),
    ),
    sources=(INTERVIEW("on the gradient norm of pre-norm", seen="text"),),
    holds_when=(
        "the sum is over total derivatives of the branches, which contain all products; or the "
        r"bound is $e^{\sum_l\lVert A_l\rVert_2}$."
    ),
    fails_when="the sublayers' own Jacobians are meant: they multiply.",
)
