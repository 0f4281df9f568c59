r"""LayerNorm Scaling makes the stream grow like a logarithm: v_L = 1 + f H_L.

Branch l gets an input of mean square 1/l, and a homogeneous branch adds f/l. The harmonic numbers
lie between ln(L + 1) and 1 + ln L, since ln(1 + 1/l) is at most 1/l and at least 1/(l + 1).
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.proof import Bound, Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import CURSE
from proofs.depth._shared import WIDE, Recursion, f, general, law, ratio, stream
from proofs.depth.homogeneous_conservation import theorem as conservation

__all__ = ["theorem"]

t = sp.Symbol("t", positive=True)


def _added(R: Recursion) -> sp.Expr:
    """Return what block 1/t adds, in units of f."""
    return sp.cancel((R.at(1, 1 / t).forward - 1) / f)


def _below(R: Recursion) -> tuple[Any, Any]:
    return sp.log(1 + t), _added(R)


def _above(R: Recursion) -> tuple[Any, Any]:
    return sp.cancel(_added(R).subs(t, t / (1 + t))), sp.log(1 + t)


theorem = Theorem(
    id="layernorm-scaling",
    area="depth",
    title="LayerNorm Scaling grows like a logarithm",
    statement=(
        r"With the norm of block $l$ scaled by $1/\sqrt l$ and homogeneous branches, $v_L = 1 + "
        r"f H_L$ and, for $b = f$, $\mathbb E|g_0|^2/\mathbb E|g_L|^2 = 1 + fH_L$, where "
        r"$\ln(L+1) \le H_L \le 1 + \ln L$."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    uses=(conservation,),
    steps=(
        Step(
            r"$v_L = 1 + fH_L$.",
            "block l adds f/l; induction",
            Induction(
                claim=stream(1 + f * sp.harmonic(L)),
                of=general("lns"),
                instead=general("pre"),
                name="v_L",
            ),
        ),
        Step(
            r"With relu the gradient law is $1 + H_L/2$ as well.",
            "gradient times stream is conserved",
            Induction(
                claim=ratio(1 + sp.harmonic(L) / 2, 1 + sp.harmonic(L) / 2),
                of=law("lns"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            r"Block $l = 1/t$ adds at least $f\ln(1 + 1/l)$, so that $H_L \ge \ln(L+1)$.",
            "the logarithm is concave; the sum telescopes",
            Bound(claim=_below, of=general("lns"), instead=general("rezero")),
        ),
        Step(
            r"Block $l + 1$ adds at most $f\ln(1 + 1/l)$, so that $H_L \le 1 + \ln L$.",
            "the same from above",
            Bound(claim=_above, of=general("lns"), instead=general("pre")),
        ),
    ),
    sources=(CURSE("the scaling by 1/sqrt(l)", seen="text"),),
    remark="1 + H_L/2 is 2.55, 3.23 and 3.92 at 12, 48 and 192 blocks.",
)
