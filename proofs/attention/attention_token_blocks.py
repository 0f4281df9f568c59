r"""The token-to-token blocks of multi-head attention, against the formula written out.

    J_ij = sum_h W_O [ P_ij W_V + P_ij (v_j - o_i) s q_i'W_K
                       + (i = j) sum_k P_ik (v_k - o_i) s k_k'W_Q ]

The derived Jacobian is evaluated in exact arithmetic with arbitrary values for the exponentials;
the formula is summed up by loops over the same values.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
import sympy as sp

import derive
from derive.calculus.jets import Dual, JetRing, exact_blocks
from derive.proof import Exact, Step, Theorem, Verdict
from derive.symbols import H, d, d_h, n, scale
from proofs.attention.attention_jacobian import theorem as attention_jacobian
from proofs.bibliography import VASWANI

__all__ = ["theorem"]

TOKENS, WIDTH, HEADS = 3, 2, 2
SIZES = {d: WIDTH, d_h: 2, H: HEADS, n: TOKENS}
LABEL = f"d={WIDTH}, n={TOKENS}, H={HEADS}"
FORMULA = (
    r"\Bigl(\sum_h W_O\bigl[P_{ij}W_V + \lambda P_{ij}(v_j - o_i)q_i^\top W_K + "
    r"\delta_{ij}\lambda\sum_k P_{ik}(v_k - o_i)k_k^\top W_Q\bigr]\Bigr)_{ij}"
)
x = derive.state("x")


class Ring(JetRing):
    """Arbitrary values; a causal mask, and keys and values that all heads share, if asked for."""

    def __init__(self, shared: bool = False) -> None:
        super().__init__(5)
        self.shared = shared

    def symbol(self, symbol: sp.Basic) -> Dual:
        """Return the causal mask's entry, or an arbitrary number."""
        if isinstance(symbol, sp.Indexed):
            i, j = symbol.indices
            return Dual(Fraction(int(int(j) <= int(i))))
        return super().symbol(symbol)

    def entry(self, kind: str, name: str, position: tuple[int, ...], row: int, col: int) -> Dual:
        """Return an arbitrary entry."""
        if self.shared and name in ("W_K", "W_V"):
            position = (0,)
        return super().entry(kind, name, position, row, col)


@lru_cache(maxsize=8)
def _evaluated(causal: bool, shared: bool) -> tuple[sp.Matrix, sp.Matrix]:
    """Return the derived Jacobian, and the formula, at the same values."""
    ring = Ring(shared)
    J = derive.jacobian(derive.Attention(causal=causal, scale=scale)(x), x)
    return _flat(exact_blocks(J, ring, SIZES, TOKENS)), _flat(_by_hand(ring, causal))


def _by_hand(ring: Ring, causal: bool) -> np.ndarray:
    def matrix(name: str, h: int) -> np.ndarray:
        return np.array(
            [[ring.entry("weight", name, (h,), r, c).value for c in range(2)] for r in range(2)]
        )

    X = [
        np.array([ring.entry("state", "x", (t,), r, 0).value for r in range(WIDTH)])
        for t in range(TOKENS)
    ]
    s = ring.symbol(scale).value
    out = np.full((TOKENS, TOKENS, WIDTH, WIDTH), Fraction(0))
    for h in range(HEADS):
        Q, K, V, O = (matrix(f"W_{letter}", h) for letter in "QKVO")
        q, k, v = ([W.dot(z) for z in X] for W in (Q, K, V))
        for i in range(TOKENS):
            seen = range(i + 1 if causal else TOKENS)
            e = {j: ring.function(sp.exp, Dual(s * q[i].dot(k[j]))).value for j in seen}
            P = {j: e[j] / sum(e.values()) for j in seen}
            o = sum(P[j] * v[j] for j in seen)
            for j in seen:
                away = P[j] * (v[j] - o)
                out[i, j] += O.dot(P[j] * V + s * np.outer(away, q[i].dot(K)))
                out[i, i] += O.dot(s * np.outer(away, k[j].dot(Q)))
    return out


def _flat(blocks: np.ndarray) -> sp.Matrix:
    rows = blocks.swapaxes(1, 2).reshape(TOKENS * WIDTH, TOKENS * WIDTH)
    return sp.Matrix([[sp.Rational(v.numerator, v.denominator) for v in row] for row in rows])


def _lower(J: sp.Matrix) -> sp.Matrix:
    """Return the Jacobian with the blocks above the diagonal set to 0."""
    size = WIDTH * TOKENS
    return sp.Matrix(size, size, lambda a, b: J[a, b] if b // WIDTH <= a // WIDTH else 0)


def derived(causal: bool = False, shared: bool = False) -> Callable[[], sp.Matrix]:
    """Return a subject: the derived Jacobian."""
    return lambda: _evaluated(causal, shared)[0]


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
                claim=lambda J: (J, _evaluated(False, False)[1]),
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
                claim=lambda J: (J, _evaluated(True, False)[1]),
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
                claim=lambda J: (J, _lower(J)),
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
                claim=lambda J: (J, _evaluated(False, True)[1]),
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
