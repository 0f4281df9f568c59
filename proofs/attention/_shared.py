r"""One query that attends to n tokens, for every n and all widths.

The keys and values of the tokens are the rows of K and V. One token is y: it is read with the
weights u, so that K = K_0 + u (W_K y)' and V = V_0 + u (W_V y)'. For token j of a sequence u is the
unit vector e_j, and K_0, V_0 hold the other tokens; nothing below needs more of u than that it is
constant. Scores are z = scale K q, weights p = e/(1'e) with e = exp(z), the output is o = V'p.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import sympy as sp

import derive
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Vector
from derive.calculus.let import let
from derive.calculus.pointwise import Activation
from derive.symbols import d, d_h, n, scale

_t = sp.Symbol("t", real=True)
EXP = Activation("exp", sp.Lambda(_t, sp.exp(_t)))

y = derive.state("y")
z = derive.state("z", n)
u, one = Vector("u", n), Ones(n)
q0 = Vector("q", d_h)
K0, V0 = Matrix("K_0", n, d_h), Matrix("V_0", n, d_h)
W_Q, W_K, W_V = (Matrix(name, d_h, d) for name in ("W_Q", "W_K", "W_V"))


def softmax(scores: sp.Basic) -> sp.Basic:
    """Return e/Z with e = exp(scores) and Z = 1'e, all named."""
    e = let("e", EXP(scores))
    Z = let("Z", Inner(one, e))
    return let("p", 1 / Z * e)


def spread(p: sp.Basic) -> sp.Basic:
    """Return diag(p) - pp'."""
    return Diag(p) - p * p.T


@lru_cache(maxsize=32)
def jacobian(expr: sp.Basic, state: sp.Basic) -> sp.Basic:
    """Return a derived Jacobian, kept."""
    return derive.jacobian(expr, state)


@dataclass(frozen=True)
class Query:
    """A query, the token y read with weights u, and what comes of them.

    Attributes
    ----------
    q : expression
        The query: a constant, or W_Q y where y is the token that asks.
    value, key : expression
        What the token shows: W_V y and W_K y, or constants in their place.
    """

    q: sp.Basic
    value: sp.Basic
    key: sp.Basic

    @property
    def K(self) -> sp.Basic:
        """The keys, one a row."""
        return K0 + u * self.key.T

    @property
    def V(self) -> sp.Basic:
        """The values, one a row."""
        return V0 + u * self.value.T

    @property
    def p(self) -> sp.Basic:
        """The weights."""
        return softmax(let("z", scale * (K0 * self.q + Inner(self.key, self.q) * u)))

    @property
    def o(self) -> sp.Basic:
        """The output."""
        return V0.T * self.p + Inner(u, self.p) * self.value

    @property
    def jacobian(self) -> sp.Basic:
        """Its derivative in y."""
        return jacobian(self.o, y)


OTHER = Query(q0, W_V * y, W_K * y)
OWN = Query(W_Q * y, W_V * y, W_K * y)
CONSTANT_KEY, CONSTANT_VALUE = Vector("k", d_h), Vector("v", d_h)
VALUE_ONLY = Query(q0, W_V * y, CONSTANT_KEY)
KEY_ONLY = Query(q0, CONSTANT_VALUE, W_K * y)
QUERY_ONLY = Query(W_Q * y, CONSTANT_VALUE, CONSTANT_KEY)
