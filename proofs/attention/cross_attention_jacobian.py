r"""Attention to a fixed memory: its Jacobian is a covariance of values and keys under the weights.

Only the query path is left: scale V'SK W_Q, and V'SK = V'diag(p)K - (V'p)(K'p)'. Where values and
keys are the same it is a covariance matrix, with a'K'SKa the variance of the entries of Ka.
"""

from __future__ import annotations

from functools import lru_cache

import sympy as sp

from derive.calculus.atoms import Diag, Inner, Matrix, Vector
from derive.calculus.let import let
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d_h, n, scale
from proofs.attention._shared import W_Q, jacobian, one, softmax, spread, y
from proofs.attention.softmax_jacobian import theorem as softmax_jacobian
from proofs.bibliography import VASWANI

__all__ = ["theorem"]

K, V, a = Matrix("K", n, d_h), Matrix("V", n, d_h), Vector("a", d_h)
p = softmax(let("z", scale * (K * W_Q * y)))
away = K * a - Inner(p, K * a) * one


@lru_cache(maxsize=4)
def output_jacobian(values: sp.Basic, factor: int = 1) -> sp.Basic:
    """Return the derivative of V'p in the token that asks."""
    return jacobian(factor * values.T * p, y)


theorem = Theorem(
    id="cross-attention-jacobian",
    area="attention",
    title="The Jacobian of attention to a memory",
    statement=(
        r"With constant keys and values $\frac{\partial o}{\partial y} = "
        r"\lambda\bigl(V^\top\mathrm{diag}(p)K - (V^\top p)(K^\top p)^\top\bigr)W_Q$: $\lambda$ "
        r"times the covariance of values and keys under $p$, times $W_Q$. For $V = K$ that "
        "covariance is positive semidefinite."
    ),
    verdict=Verdict.PROVED,
    uses=(softmax_jacobian,),
    steps=(
        Step(
            "The derived Jacobian.",
            r"$V^\top SK$ multiplied out",
            Identity(
                claim=lambda J: (
                    J,
                    scale * (V.T * Diag(p) * K - V.T * p * (K.T * p).T) * W_Q,
                ),
                of=lambda: output_jacobian(V),
                instead=lambda: output_jacobian(V, 2),
            ),
        ),
        Step(
            r"For $V = K$, $a^\top K^\top SKa$ is the variance of the entries of $Ka$ under $p$.",
            r"$\sum_i p_i(Ka)_i^2 - (p^\top Ka)^2$",
            Identity(
                claim=lambda S: (Inner(a, K.T * S * K * a), Inner(away, Diag(p) * away)),
                of=lambda: spread(p),
                instead=lambda: Diag(p),
            ),
        ),
    ),
    sources=(VASWANI("section 3.2.3", seen="memory"),),
)
