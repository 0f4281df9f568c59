r"""The token-to-token blocks of multi-head attention, against the formula written out.

    J_ij = sum_h W_O [ P_ij W_V + P_ij (v_j - o_i) s q_i'W_K
                       + (i = j) sum_k P_ik (v_k - o_i) s k_k'W_Q ]

The derived Jacobian is evaluated in exact arithmetic with arbitrary values for the exponentials;
the formula is summed up by loops over the same values.
"""

from __future__ import annotations

from derive.proof import Exact, Step, Theorem, Verdict
from proofs.attention._blocks import LABEL, derived, evaluated, lower
from proofs.attention.attention_jacobian import theorem as attention_jacobian
from proofs.bibliography import VASWANI

__all__ = ["theorem"]

FORMULA = (
    r"\Bigl(\sum_h W_O\bigl[P_{ij}W_V + \lambda P_{ij}(v_j - o_i)q_i^\top W_K + "
    r"\delta_{ij}\lambda\sum_k P_{ik}(v_k - o_i)k_k^\top W_Q\bigr]\Bigr)_{ij}"
)


theorem = Theorem(
    id="attention-token-blocks",
    area="attention",
    title="The token-to-token blocks of multi-head attention",
    statement=(
        r"$J_{ij} = \sum_h W_O\bigl[P_{ij}W_V + \lambda P_{ij}(v_j - o_i)q_i^\top W_K + "
        r"\delta_{ij}\lambda\sum_k P_{ik}(v_k - o_i)k_k^\top W_Q\bigr]$: heads add, a mask acts "
        "through $P$ only, causal attention is block lower triangular, and heads that share keys "
        "and values have the same formula."
    ),
    verdict=Verdict.SUPPORTED,
    uses=(attention_jacobian,),
    steps=(
        Step(
            "Without a mask.",
            "loops over heads and tokens",
            Exact(
                claim=lambda J: (J, evaluated(False, False)[1]),
                of=derived(),
                instead=derived(causal=True),
                sizes=LABEL,
                names=("J", FORMULA),
            ),
        ),
        Step(
            "With a causal mask.",
            "the same loops over tokens up to i",
            Exact(
                claim=lambda J: (J, evaluated(True, False)[1]),
                of=derived(causal=True),
                instead=derived(),
                sizes=LABEL,
                names=("J", FORMULA),
            ),
        ),
        Step(
            "Behind a causal mask no token depends on a later one: the blocks above are 0.",
            r"$P_{ij} = 0$ for $j > i$",
            Exact(
                claim=lambda J: (J, lower(J)),
                of=derived(causal=True),
                instead=derived(),
                sizes=LABEL,
                names=("J_{ij}", r"[j \le i]\,J_{ij}"),
            ),
        ),
        Step(
            "With keys and values that the heads share.",
            "equal weights in the formula",
            Exact(
                claim=lambda J: (J, evaluated(False, True)[1]),
                of=derived(shared=True),
                instead=derived(),
                sizes=LABEL,
                names=("J", FORMULA),
            ),
        ),
    ),
    sources=(VASWANI("equation (1), whose derivative is an own derivation here", seen="memory"),),
    remark=(
        "Exact at these sizes; the exponentials are arbitrary numbers, so that nothing rests on "
        "their values. One head at every size is in the entry that is used."
    ),
)
