r"""The Jacobian of attention and its three paths, at every n and all widths.

    do/dy = (u'p) W_V  +  scale V'Su q'W_K  +  scale V'SK W_Q,    S = diag(p) - pp'

The last term only for the token that asks. With u = e_j the first two are p_j W_V and
scale p_j (v_j - o) q'W_K, since V'diag(p)e_j = p_j v_j and p'e_j = p_j.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Diag, Inner
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import scale
from proofs.attention._shared import (
    KEY_ONLY,
    OTHER,
    OWN,
    QUERY_ONLY,
    VALUE_ONLY,
    W_K,
    W_Q,
    W_V,
    Query,
    q0,
    spread,
    u,
    y,
)
from proofs.attention.softmax_jacobian import theorem as softmax_jacobian
from proofs.bibliography import KIM, VASWANI

__all__ = ["theorem"]

DOUBLED = Query(W_Q * y, 2 * (W_V * y), W_K * y)


def _other(row: Query) -> tuple[sp.Basic, sp.Basic]:
    through_key = row.V.T * (Diag(row.p) * u - Inner(row.p, u) * row.p)
    return row.jacobian, Inner(u, row.p) * W_V + scale * through_key * q0.T * W_K


def _own(row: Query) -> tuple[sp.Basic, sp.Basic]:
    S, q = spread(row.p), W_Q * y
    paths = Inner(u, row.p) * W_V + scale * row.V.T * S * u * q.T * W_K
    return row.jacobian, paths + scale * row.V.T * S * row.K * W_Q


theorem = Theorem(
    id="attention-jacobian",
    area="attention",
    title="The Jacobian of attention: value, key and query path",
    statement=(
        r"For one head, token $y$ read with weights $u$ ($u = e_j$ for token $j$), "
        r"$S = \mathrm{diag}(p) - pp^\top$ and scores $\lambda Kq$, "
        r"$\frac{\partial o}{\partial y} = (u^\top p)W_V + \lambda V^\top Su\,q^\top W_K$ for a "
        r"token that does not ask, with the further term $\lambda V^\top SK\,W_Q$ for the one "
        r"that does; with $u = e_j$ the first two are $p_jW_V$ and "
        r"$\lambda p_j(v_j - o)\,q^\top W_K$."
    ),
    verdict=Verdict.PROVED,
    uses=(softmax_jacobian,),
    steps=(
        Step(
            "A token that does not ask acts through its value and its key.",
            r"$Su = p\odot u - (p^\top u)p$ and $V^\top p = o$",
            Identity(claim=_other, of=lambda: OTHER, instead=lambda: KEY_ONLY),
        ),
        Step(
            "The token that asks acts through its query as well.",
            r"$dz = \lambda(dK\,q + K\,dq)$",
            Identity(claim=_own, of=lambda: OWN, instead=lambda: DOUBLED),
        ),
        Step(
            "The Jacobian is the sum of the three that keep two of value, key and query constant.",
            "the three enter in one product each",
            Identity(
                claim=lambda row: (
                    row.jacobian,
                    _at_own(VALUE_ONLY) + _at_own(KEY_ONLY) + _at_own(QUERY_ONLY),
                ),
                of=lambda: OWN,
                instead=lambda: DOUBLED,
            ),
        ),
    ),
    sources=(
        VASWANI("equation (1), whose derivative is an own derivation here", seen="memory"),
        KIM("section 3", seen="memory"),
    ),
    remark=(
        "The sizes and the number of tokens are symbols here, and u is any constant vector. The "
        "toolkit's token-by-token form with several heads is compared in another entry."
    ),
)


def _at_own(row: Query) -> sp.Basic:
    """Return the derivative along one path, at the query, key and value of the token that asks."""
    constants = {QUERY_ONLY.key: W_K * y, QUERY_ONLY.value: W_V * y, q0: W_Q * y}
    return row.jacobian.xreplace(constants)
