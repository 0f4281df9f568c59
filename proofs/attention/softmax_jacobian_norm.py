r"""Softmax stretches no vector by more than 1/2, nor by more than 2 max p(1 - p).

S = diag(p) - pp' is the Laplacian of a weighted graph: rows add up to 0 and the entries off the
diagonal are not positive, so that Gershgorin's discs end at 2 p_i (1 - p_i).
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Diag, Inner, Vector
from derive.calculus.explicit import explicit
from derive.calculus.trace import Trace
from derive.proof import Bound, Identity, Laplacian, MaxAbs, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import n
from proofs.attention._shared import jacobian, one, softmax, z
from proofs.attention.softmax_jacobian import theorem as softmax_jacobian
from proofs.bibliography import KIM

__all__ = ["theorem"]

p = softmax(z)
v = Vector("v", n)
c = v - Inner(p, v) * one
rows = 2 * p - 2 * Diag(p) * p
delta = sp.Symbol("delta", real=True)


def _stretch(J: sp.Basic) -> sp.Expr:
    """Return the factor by which (1, -1) is stretched at the scores (delta, 0)."""
    at = explicit(J, {n: 2}, values={"z": [delta, 0]})
    return at[0, 0] - at[0, 1]


theorem = Theorem(
    id="softmax-jacobian-norm",
    area="attention",
    title="The norm of softmax's Jacobian",
    statement=(
        r"$S = \mathrm{diag}(p) - pp^\top$ is positive semidefinite, "
        r"$\lVert S\rVert_2 \le 2\max_i p_i(1 - p_i) \le \frac12$, attained at "
        r"$p = (\frac12, \frac12)$, and $\lVert S\rVert_F^2 = |p|^2 - 2\sum_i p_i^3 + |p|^4$."
    ),
    verdict=Verdict.PROVED,
    uses=(softmax_jacobian,),
    steps=(
        Step(
            r"$v^\top Sv = \sum_i p_i(v_i - p^\top v)^2 \ge 0$.",
            "it is the variance of the entries of v under p",
            Identity(
                claim=lambda w: (Inner(v, jacobian(w, z) * v), Inner(c, Diag(p) * c)),
                of=lambda: p,
                instead=lambda: softmax(2 * z),
            ),
        ),
        Step(
            r"$\lVert S\rVert_2 \le 2\max_i p_i(1 - p_i)$; a one-hot row has $S = 0$.",
            "Gershgorin's discs",
            Bound(
                claim=lambda w: (SpectralNorm(jacobian(w, z)), MaxAbs(rows)),
                of=lambda: p,
                instead=lambda: 3 * p,
                facts=lambda w: [Laplacian(jacobian(w, z), p, MaxAbs(rows))],
            ),
        ),
        Step(
            r"$\lVert S\rVert_2 \le \frac12$.",
            r"$2t(1 - t) = \frac12 - \frac12(1 - 2t)^2$",
            Bound(
                claim=lambda w: (SpectralNorm(jacobian(w, z)), sp.S.Half),
                of=lambda: p,
                instead=lambda: softmax(3 * z),
                facts=lambda w: [Laplacian(jacobian(w, z), p, sp.S.Half)],
            ),
        ),
        Step(
            r"At $n = 2$ and the scores $(\delta, 0)$ the vector $(1, -1)$ is stretched by "
            r"$2e^\delta/(1 + e^\delta)^2$: 1/2 at $\delta = 0$, and towards 0 for large $\delta$.",
            r"$2p_1p_2$",
            Identity(
                claim=lambda w: (
                    _stretch(jacobian(w, z)),
                    2 * sp.exp(delta) / (1 + sp.exp(delta)) ** 2,
                ),
                of=lambda: p,
                instead=lambda: softmax(2 * z),
            ),
        ),
        Step(
            r"$\lVert S\rVert_F^2 = |p|^2 - 2\sum_i p_i^3 + |p|^4$.",
            r"$\mathrm{tr}\,S^\top S$",
            Identity(
                claim=lambda w: (
                    Trace(jacobian(w, z).T * jacobian(w, z)),
                    Inner(p, p) - 2 * Inner(p, Diag(p) * p) + Inner(p, p) ** 2,
                ),
                of=lambda: p,
                instead=lambda: softmax(2 * z),
            ),
        ),
    ),
    sources=(KIM("on softmax's Jacobian", seen="memory"),),
)
