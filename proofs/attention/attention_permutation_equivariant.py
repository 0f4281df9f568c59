r"""Attention without a mask and without positions does not see the order of its tokens.

With the tokens permuted the output is permuted alike: exact arithmetic at three tokens, for every
permutation, with arbitrary values for the exponentials. A causal mask breaks it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import permutations

import sympy as sp

import derive
from derive.calculus.instantiate import Instantiation
from derive.proof import Exact, Step, Theorem, Verdict
from derive.symbols import scale
from proofs.attention._blocks import LABEL, SIZES, TOKENS, Ring, x
from proofs.bibliography import VASWANI

__all__ = ["theorem"]


@lru_cache(maxsize=4)
def outputs(causal: bool) -> tuple[sp.Matrix, sp.Matrix]:
    """Return the outputs of permuted tokens, and the permuted outputs, one row a permutation."""
    ring = Ring()
    instance = Instantiation(ring, SIZES, TOKENS)
    attention = derive.Attention(causal=causal, scale=scale)(x)

    def rows(order: tuple[int, ...]) -> list[list[sp.Rational]]:
        ring.order = order
        instance.forget()
        columns = [instance(attention, {}, t)[:, 0] for t in range(TOKENS)]
        return [[sp.Rational(*v.value.as_integer_ratio()) for v in column] for column in columns]

    plain = rows(tuple(range(TOKENS)))
    orders = list(permutations(range(TOKENS)))
    after = [[v for t in order for v in plain[t]] for order in orders]
    before = [[v for row in rows(order) for v in row] for order in orders]
    return sp.Matrix(before), sp.Matrix(after)


def permuted(causal: bool) -> Callable[[], tuple[sp.Matrix, sp.Matrix]]:
    """Return a subject: both matrices."""
    return lambda: outputs(causal)


theorem = Theorem(
    id="attention-permutation-equivariant",
    area="attention",
    title="Attention without positions is equivariant to permutations",
    statement=(
        r"Without mask and positions $A(\Pi X) = \Pi A(X)$ for every permutation $\Pi$ of the "
        "tokens; a causal mask breaks it."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        Step(
            "All six permutations of three tokens.",
            "both sides evaluated at the same values",
            Exact(
                claim=lambda sides: sides,
                of=permuted(causal=False),
                instead=permuted(causal=True),
                sizes=LABEL,
                names=(r"A(\Pi X)", r"\Pi A(X)"),
            ),
        ),
    ),
    sources=(VASWANI("section 3.5, the reason for positional encodings", seen="memory"),),
)
