r"""The Jacobian of a pre-norm stack is a sum over 2^L paths, one for each set of branches taken.

(I + A_L) ... (I + A_1) = sum over subsets of the products of their A_l, in order
"""

from __future__ import annotations

from functools import reduce
from itertools import combinations

import sympy as sp

import derive
from derive.calculus.atoms import Matrix
from derive.proof import Identity, Induction, Step, Theorem, Verdict
from derive.symbols import L, d
from proofs.placements._shared import DF, layernorm_at
from proofs.setting import identity, x

__all__ = ["theorem"]

A = [Matrix(f"A_{k}", d, d) for k in range(1, 5)]
S = Matrix("S", d, d)
F1, F2 = derive.Sublayer("F_1"), derive.Sublayer("F_2")
N1, N2 = derive.LayerNorm(1), derive.LayerNorm(2)


def _multiplied(factors: list[sp.Basic]) -> sp.Basic:
    """Return the product of the factors, the first one rightmost."""
    return reduce(lambda product, factor: factor * product, factors, identity)


def _paths(branches: list[sp.Basic]) -> sp.Basic:
    """Return the sum over all sets of branches."""
    sets = [c for size in range(len(branches) + 1) for c in combinations(branches, size)]
    return reduce(lambda total, taken: total + _multiplied(list(taken)), sets[1:], identity)


def _stack(second: str) -> sp.Basic:
    """Return the derived Jacobian of a pre-norm block and a second block."""
    first = x + F1(N1(x))
    after = {"pre": first + F2(N2(first)), "res-post": first + N2(F2(first))}
    return derive.jacobian(after[second], x)


def _branches() -> list[sp.Basic]:
    """Return the typed Jacobians of both branches."""
    first = x + F1(N1(x))
    return [
        DF(N1(x), F1) * layernorm_at(x, "1"),
        DF(N2(first), F2) * layernorm_at(first, "2"),
    ]


theorem = Theorem(
    id="pre-norm-paths",
    area="placements",
    title="The paths of a pre-norm stack",
    statement=(
        r"With $A_l = D\!F_l(N_l(x_{l-1}))\,J_{N_l}(x_{l-1})$, $\frac{\partial x_L}{\partial x_0} "
        r"= \prod_l (I + A_l)$ is the sum of $2^L$ products, one for each set of branches; one of "
        r"them is the identity."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"Two blocks, derived from their composition: $I + A_1 + A_2 + A_2A_1$.",
            "chain rule, then multiply out",
            Identity(
                claim=lambda second: (_stack(second), _paths(_branches())),
                of=lambda: "pre",
                instead=lambda: "res-post",
            ),
        ),
        Step(
            r"Four blocks: the 16 products, for matrices that do not commute.",
            "multiply out",
            Identity(
                claim=lambda order: (
                    _multiplied([identity + A[k] for k in order]),
                    _paths(A),
                ),
                of=lambda: (0, 1, 2, 3),
                instead=lambda: (3, 2, 1, 0),
            ),
        ),
        Step(
            r"The step to one more block: $(I + A)S = S + AS$: every path of $S$ goes on, past the "
            "new branch or through it.",
            "multiply out",
            Identity(
                claim=lambda branch: ((identity + A[0]) * S, S + branch * S),
                of=lambda: A[0],
                instead=lambda: A[1],
            ),
        ),
        Step(
            r"So their number doubles: $2^L$.",
            "induction over the number of blocks",
            Induction(
                claim=lambda ways: (2**L, sp.S.One, lambda y, _: ways * y),
                of=lambda: 2,
                instead=lambda: 3,
                name="n_L",
            ),
        ),
    ),
)
