r"""What the query path of attention is at most: half of |V||K||W_Q| times the factor of the scores.

It is scale V'SK W_Q, and |S| <= 1/2 whatever the scores are. On inputs of bounded length, as after
a norm, K and V are bounded, and with them the Jacobian; without a bound they are not.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Matrix
from derive.calculus.let import let
from derive.proof import Bound, Laplacian, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import d, d_h, n, scale
from proofs.attention._shared import W_Q, softmax, spread, y
from proofs.attention.attention_jacobian import theorem as attention_jacobian
from proofs.attention.softmax_jacobian_norm import theorem as softmax_norm
from proofs.bibliography import KIM

__all__ = ["theorem"]

K, V, X = Matrix("K", n, d_h), Matrix("V", n, d_h), Matrix("X", n, d)
W_K, W_V = Matrix("W_K", d, d_h), Matrix("W_V", d, d_h)


def _path(keys: sp.Basic, values: sp.Basic, factor: int = 1) -> tuple[sp.Basic, sp.Basic]:
    """Return the query path and its weights."""
    p = softmax(let("z", scale * (keys * W_Q * y)))
    return factor * scale * values.T * spread(p) * keys * W_Q, p


def _facts(path: tuple[sp.Basic, sp.Basic]) -> list[Laplacian]:
    return [Laplacian(spread(path[1]), path[1], sp.S.Half)]


def _sizes(*matrices: sp.Basic) -> sp.Expr:
    return sp.Mul(*map(SpectralNorm, matrices))


theorem = Theorem(
    id="attention-query-path-bound",
    area="attention",
    title="A bound of attention's query path",
    statement=(
        r"The query path $\lambda V^\top SKW_Q$ has norm at most "
        r"$\frac\lambda2\lVert V\rVert\lVert K\rVert\lVert W_Q\rVert$, that is at most "
        r"$\frac\lambda2\lVert X\rVert^2\lVert W_V\rVert\lVert W_K\rVert\lVert W_Q\rVert$ for "
        r"tokens $X$; after a norm with unit gain $\lVert X\rVert^2 \le nd$."
    ),
    verdict=Verdict.PROVED,
    uses=(attention_jacobian, softmax_norm),
    steps=(
        Step(
            "For keys K and values V.",
            r"$\lVert S\rVert \le \frac12$",
            Bound(
                claim=lambda path: (SpectralNorm(path[0]), scale / 2 * _sizes(V, K, W_Q)),
                of=lambda: _path(K, V),
                instead=lambda: _path(K, V, 1000),
                facts=_facts,
            ),
        ),
        Step(
            "For keys and values of tokens X.",
            "submultiplicativity",
            Bound(
                claim=lambda path: (
                    SpectralNorm(path[0]),
                    scale / 2 * _sizes(X) ** 2 * _sizes(W_V, W_K, W_Q),
                ),
                of=lambda: _path(X * W_K, X * W_V),
                instead=lambda: _path(X * W_K, X * W_V, 10**9),
                facts=_facts,
            ),
        ),
    ),
    sources=(KIM("section 3, that the input has to be bounded", seen="memory"),),
    remark=(
        r"After a norm $|x_i|^2 \le d\lVert\gamma\rVert_\infty^2$, so that "
        r"$\lVert X\rVert_F^2 \le nd\lVert\gamma\rVert_\infty^2$ and self-attention behind a norm "
        r"has a bounded Jacobian for given weights; the bound grows with the weights."
    ),
)
