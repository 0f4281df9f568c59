r"""LayerNorm Scaling's lower bound Theta(L) of the variance fails for independent branches.

With independent relu branches v_L = 1 + H_L/2, at most 3/2 + ln(L)/2. Linear growth needs branches
that point the same way: aligned lengths 1/sqrt(l) add to 2 sqrt(L).
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Counterexample, Induction, Step, Theorem, Verdict
from derive.symbols import L, l
from proofs.bibliography import CURSE
from proofs.depth._shared import WIDE, Recursion, law, stream
from proofs.depth.layernorm_scaling import theorem as scaling

__all__ = ["theorem"]


def _summed(R: Recursion) -> tuple[sp.Expr, sp.Expr]:
    """Return v_L, what the blocks add summed, and L/100."""
    added = R.at(0).forward
    return 1 + sp.Sum(added, (l, 1, L)), L / 100


theorem = Theorem(
    id="lns-lower-bound",
    area="literature",
    title="LayerNorm Scaling's stream grows at least linearly",
    statement=r"With LayerNorm Scaling $\Theta(L) \le \sigma_{x_L}^2 \le \Theta(L^{2-\epsilon})$.",
    verdict=Verdict.REFUTED,
    assumptions=(WIDE,),
    uses=(scaling,),
    steps=(
        Step(
            r"With relu branches at initialisation $v_L = 1 + \frac12H_L$, which is at most "
            r"$\frac32 "
            r"+ \frac12\ln L$: no multiple of $L$ stays below it.",
            "induction over the blocks",
            Induction(
                claim=stream(1 + sp.harmonic(L) / 2),
                of=law("lns"),
                instead=law("pre"),
                name="v_L",
            ),
        ),
        Step(
            r"At $L = 1000$ it is $4.743$, below $L/100$.",
            "exact arithmetic",
            Counterexample(
                claim=_summed,
                of=law("lns"),
                instead=law("pre"),
                relation="<",
                stated=("4.743", "10"),
                at={"L": 1000},
            ),
        ),
    ),
    sources=(CURSE("Lemma 4.1, version 5", seen="text"),),
    holds_when=(
        r"branches are aligned over depth: lengths of order $1/\sqrt l$ add to $2\sqrt L$, whose "
        "square is linear in L. That is also the largest that bounded branches allow, below the "
        r"stated $L^{2-\epsilon}$."
    ),
    fails_when="branches are independent, as at initialisation: the growth is logarithmic.",
    remark=(
        "In an earlier run 2.568, 3.261 and 3.922 at 12, 48 and 192 blocks, where the law has "
        "2.552, 3.229 and 3.919. The text was read in an earlier session of this project; here "
        "only its abstract was seen again."
    ),
)
