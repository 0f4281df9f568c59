r"""Xiong's Theorem 1 on the last layer: its powers of L are right, its size is not sharp.

The gradient of the last W_2 is the rank-one matrix g h': in the toy of the paper its mean square is
(d/3)|g|^2 for post-norm at every depth and (d/2)|g|^2/v_L for pre-norm with a final norm. The
stated orders are d sqrt(ln d) and that over sqrt(L).
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Counterexample, Gaussian, Step, Theorem, Verdict
from derive.symbols import L, d, l
from proofs.bibliography import XIONG
from proofs.depth._shared import WIDE
from proofs.depth.last_layer_gradient import theorem as last_layer
from proofs.literature.xiong_skip_factor import last_matrices

__all__ = ["theorem"]


def _final(W: sp.Expr) -> sp.Expr:
    """Return the square of the last layer behind a final norm."""
    return sp.cancel(W.subs(l, L) / (1 + L / 2))


theorem = Theorem(
    id="xiong-theorem-1",
    area="literature",
    title="The last layer's gradient in post-norm and pre-norm",
    statement=(
        r"At initialisation $\lVert\partial\mathcal L/\partial W_{2,L}\rVert_F$ is of order "
        r"$d\sqrt{\ln d}$ in post-norm, whatever the depth, and of order $d\sqrt{\ln d/L}$ in "
        "pre-norm."
    ),
    verdict=Verdict.CONDITIONAL,
    assumptions=(WIDE,),
    uses=(last_layer,),
    steps=(
        Step(
            r"Post-norm: the mean square is $\frac d3|g|^2$ at every $L$.",
            r"$|J_N^\top g|^2|h|^2$",
            Gaussian(
                name=r"\mathbb{E}\lVert\partial\mathcal L/\partial W_2\rVert_F^2/|g|^2",
                claim=lambda W: (W.subs(l, L), d / 3),
                of=last_matrices("post"),
                instead=last_matrices("pre"),
            ),
        ),
        Step(
            r"Pre-norm with a final norm: $\frac d{L + 2}|g|^2$, of order $1/L$.",
            r"$\frac d2/v_L$",
            Gaussian(
                name=r"\mathbb{E}\lVert\partial\mathcal L/\partial W_2\rVert_F^2/|g|^2",
                claim=lambda W: (_final(W), d / (L + 2)),
                of=last_matrices("pre"),
                instead=last_matrices("post"),
            ),
        ),
        Step(
            r"At $d = 1024$ post-norm's is $18.48\,|g|$, and $d\sqrt{\ln d} = 2696$.",
            "interval arithmetic",
            Counterexample(
                claim=lambda W: (sp.sqrt(W.subs(l, L)), d * sp.sqrt(sp.log(d))),
                of=last_matrices("post"),
                instead=last_matrices("pre"),
                relation="<",
                stated=("18.48", "2695.96"),
                at={"d": 1024},
            ),
        ),
    ),
    sources=(XIONG("Theorem 1", seen="text"),),
    holds_when=(
        r"read as upper bounds for a bounded gradient $g$: both are obeyed, and the quotient of "
        r"order $\sqrt L$ is exact. The paper supposes uniform attention, one head, matrices of "
        r"variance $1/d$, $d$ hidden features, and $(\epsilon, \delta)$-bounded norms, and claims "
        r"it with probability $0.99 - \delta - \epsilon/(0.9 + \epsilon)$."
    ),
    fails_when=(
        r"read as the size: that is $\sqrt{d/3}\,|g|$, smaller by a factor $\sqrt{3d\ln d}$."
    ),
    remark=(
        "The probability is not checked here. Nothing follows for other layers: in pre-norm those "
        "near the input do not fall with the depth."
    ),
)
