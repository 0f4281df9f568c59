r"""LayerNorm and RMSNorm have not the same Jacobian, not even its rank.

At eps = 0 and unit gain the ranks are d - 2 and d - 1. On inputs of mean zero the Jacobians agree
on all directions of mean zero, and only there.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.trace import Trace
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.setting import EPS_ZERO, GAIN_ONE, MEAN_ZERO, C, jacobian, norm, one, x

__all__ = ["theorem"]


def _at_unit_root(kind: str) -> sp.Basic:
    """Return the Jacobian times its root: at eps = 0 and unit gain a projection."""
    found = norm(kind)()
    root = next(q for q in found.lets if q.name in ("s", "r"))
    return root * found.jacobian


theorem = Theorem(
    id="norms-are-alike",
    area="norms",
    title="LayerNorm and RMSNorm as one and the same",
    statement=(
        r"LayerNorm and RMSNorm have the same Jacobian up to a factor; in particular $J_{RMS}$ "
        r"kills the direction $\mathbf 1$ and has rank $d - 2$."
    ),
    verdict=Verdict.REFUTED,
    assumptions=(EPS_ZERO, GAIN_ONE, MEAN_ZERO),
    steps=(
        Step(
            r"At $\epsilon = 0$, unit gain and $x = (1, 2)$, $J_{RMS}\mathbf 1 = "
            r"(\frac25, -\frac15)/r$ with $r^2 = \frac52$, and not 0.",
            r"$J_{RMS}\mathbf 1 = \frac1r(\mathbf 1 - \frac{\mu}{r^2}x)$",
            Counterexample(
                claim=lambda N: (derive.jacobian(N(x), x) * one, 0 * x),
                of=lambda: derive.RMSNorm(eps=0),
                instead=lambda: derive.RMSNorm(eps=1),
                relation="!=",
                stated=("0.252982213", "0"),
                at={"x": (1, 2), "gain": (1, 1)},
            ),
        ),
        Step(
            r"At $d = 4$ the trace of $rJ_{RMS}$, its rank, is 3 and that of $sJ_{LN}$ is 2.",
            "the rank of a projection is its trace",
            Counterexample(
                claim=lambda kind: (Trace(_at_unit_root(kind)), Trace(_at_unit_root("layernorm"))),
                of=lambda: "rmsnorm",
                instead=lambda: "layernorm",
                relation=">",
                stated=("3", "2"),
                at={"x": (1, 2, 4, 8), "gain": (1, 1, 1, 1), "eps": 0},
                width=4,
            ),
        ),
        Step(
            r"The traces differ by 1 for every $d$.",
            r"RMSNorm removes $x$ only, LayerNorm $c$ and $\mathbf 1$",
            Identity(
                claim=lambda kind: (Trace(_at_unit_root(kind)), d - 1),
                of=lambda: "rmsnorm",
                instead=lambda: "layernorm",
                assuming=(EPS_ZERO, GAIN_ONE),
            ),
        ),
        Step(
            r"What is true: at unit gain and an input of mean zero, "
            r"$J_{RMS}C = J_{LN}$ for every $\epsilon$.",
            r"$J_{LN}(x) = J_{RMS}(Cx)\,C$",
            Identity(
                claim=lambda J: (J * C, jacobian("layernorm")()),
                of=jacobian("rmsnorm"),
                instead=jacobian("dyt"),
                assuming=(MEAN_ZERO,),
            ),
        ),
    ),
    holds_when=(
        "the input and the directions that are looked at have mean zero: there the Jacobians agree."
    ),
    fails_when=r"a direction has a mean, or the input has one: RMSNorm passes it on.",
)
