r"""Attention on all inputs has no Lipschitz constant: two tokens of one feature show it.

With all weights 1 and x_1 = 0 both scores of the first token are 0, its weights are 1/2 each, and
do_1/dx_1 = 1/2 + x_2^2/4. For every M the input (0, 2 sqrt(M)) has a derivative above M.
"""

from __future__ import annotations

from functools import lru_cache

import sympy as sp

import derive
from derive.calculus.atoms import State
from derive.calculus.explicit import explicit
from derive.proof import Bound, Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import H, d, d_h
from proofs.bibliography import KIM

__all__ = ["theorem"]

x2 = sp.Symbol("x_2", real=True)
M = sp.Symbol("M", positive=True)


@lru_cache(maxsize=4)
def slope(scale: int = 1) -> sp.Expr:
    """Return do_1/dx_1 at (0, x_2), all weights 1, from the derived Jacobian of attention."""
    state = State("x", d)
    J = derive.jacobian(derive.Attention(scale=scale)(state), state)
    weights = {name: [[[1]]] for name in ("W_Q", "W_K", "W_V", "W_O")}
    entries = explicit(J, {d: 1, d_h: 1, H: 1}, tokens=2, values={**weights, "x": [[0], [x2]]})
    return sp.simplify(entries[0, 0])


theorem = Theorem(
    id="attention-not-lipschitz",
    area="attention",
    title="Dot-product attention has no Lipschitz constant",
    statement=r"Self-attention is Lipschitz continuous on the whole of $\mathbb R^{n\times d}$.",
    verdict=Verdict.REFUTED,
    steps=(
        Step(
            r"At $n = 2$, $d = 1$, weights 1 and $x_1 = 0$, "
            r"$\frac{\partial o_1}{\partial x_1} = \frac12 + \frac{x_2^2}4$.",
            "both scores are 0",
            Identity(
                claim=lambda J: (J, sp.S.Half + x2**2 / 4),
                of=slope,
                instead=lambda: slope(2),
            ),
        ),
        Step(
            r"For every $M$ the input $x = (0, 2\sqrt M)$ has a derivative of at least $M$.",
            r"it is $M + \frac12$",
            Bound(
                claim=lambda J: (M, J.subs(x2, 2 * sp.sqrt(M)) - sp.S.Half),
                of=slope,
                instead=lambda: slope(1).subs(x2, x2 / 2),
            ),
        ),
        Step(
            r"At $x_2 = 1000$ it exceeds a constant of 1000 by far.",
            "a number",
            Counterexample(
                claim=lambda J: (J, 1000),
                of=slope,
                instead=lambda: slope(2),
                relation=">",
                stated=("250000.5", "1000"),
                at={"x_2": 1000},
            ),
        ),
    ),
    sources=(KIM("Theorem 3.1", seen="memory"),),
    holds_when=(
        "The inputs are bounded, as after a norm: then every factor of the Jacobian is bounded."
    ),
    fails_when="The inputs are all of the space: the query path grows with the square of a token.",
)
