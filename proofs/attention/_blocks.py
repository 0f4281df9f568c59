r"""Attention in exact arithmetic at three tokens: the derived Jacobian, and loops over tokens.

The exponentials are arbitrary numbers, so that nothing rests on their values.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
import sympy as sp

import derive
from derive.calculus.jets import Dual, JetRing, exact_blocks
from derive.symbols import H, d, d_h, n, scale

TOKENS, WIDTH, HEADS = 3, 2, 2
SIZES = {d: WIDTH, d_h: 2, H: HEADS, n: TOKENS}
LABEL = f"d={WIDTH}, n={TOKENS}, H={HEADS}"
x = derive.state("x")


class Ring(JetRing):
    """Arbitrary values; a causal mask where there is one.

    Heads share keys and values if asked for; token t has the values of token ``order[t]``.
    """

    order: tuple[int, ...] = tuple(range(TOKENS))

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
        if kind == "state":
            position = (self.order[position[0]],)
        return super().entry(kind, name, position, row, col)


@lru_cache(maxsize=8)
def evaluated(causal: bool, shared: bool) -> tuple[sp.Matrix, sp.Matrix]:
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


def lower(J: sp.Matrix) -> sp.Matrix:
    """Return the Jacobian with the blocks above the diagonal set to 0."""
    size = WIDTH * TOKENS
    return sp.Matrix(size, size, lambda a, b: J[a, b] if b // WIDTH <= a // WIDTH else 0)


def derived(causal: bool = False, shared: bool = False) -> Callable[[], sp.Matrix]:
    """Return a subject: the derived Jacobian."""
    return lambda: evaluated(causal, shared)[0]
