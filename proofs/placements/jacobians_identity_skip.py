r"""Placements whose skip is the identity: J = I + (the branch), with J_N in the branch only."""

from __future__ import annotations

import derive
from derive.calculus.atoms import Diag, Vector
from derive.proof import Theorem, Verdict
from derive.symbols import alpha, beta, d
from proofs.bibliography import CURSE, PERI, REZERO, XIONG
from proofs.norms.layernorm_jacobian import theorem as layernorm_jacobian
from proofs.placements._shared import DF, closed_form, layernorm_at
from proofs.setting import F, identity, x

__all__ = ["theorem"]

N, N1 = derive.LayerNorm(), derive.LayerNorm(1)
lam = Vector("lam", d)

theorem = Theorem(
    id="jacobians-identity-skip",
    area="placements",
    title="Jacobians where the skip is the identity",
    statement=(
        r"Where the skip is left alone the Jacobian is $I$ plus that of the branch: pre-norm has "
        r"$I + D\!F(N(x))\,J_N(x)$; the factor $J_N$ is part of it."
    ),
    verdict=Verdict.PROVED,
    uses=(layernorm_jacobian,),
    steps=(
        closed_form(
            "pre",
            r"$I + D\!F(N(x))J_N(x)$",
            lambda: identity + DF(N(x)) * layernorm_at(x),
            "post",
        ),
        closed_form(
            "sub-ln",
            "the same around its sublayer, whose inner norm is part of $F$",
            lambda: identity + DF(N(x)) * layernorm_at(x),
            "res-post",
        ),
        closed_form(
            "res-post",
            r"$I + J_N(F(x))D\!F(x)$",
            lambda: identity + layernorm_at(F(x)) * DF(x),
            "pre",
        ),
        closed_form(
            "sandwich",
            r"$I + J_{N_2}(F(N_1(x)))\,D\!F(N_1(x))\,J_{N_1}(x)$",
            lambda: identity + layernorm_at(F(N1(x)), "2") * DF(N1(x)) * layernorm_at(x, "1"),
            "pre",
        ),
        closed_form(
            "lns",
            r"$I + \beta D\!F(\beta N(x))J_N(x)$",
            lambda: identity + beta * DF(beta * N(x)) * layernorm_at(x),
            "pre",
        ),
        closed_form(
            "scaled-residual",
            r"$I + \alpha D\!F(N(x))J_N(x)$",
            lambda: identity + alpha * DF(N(x)) * layernorm_at(x),
            "pre",
        ),
        closed_form(
            "layerscale",
            r"$I + \mathrm{diag}(\lambda)D\!F(N(x))J_N(x)$",
            lambda: identity + Diag(lam) * DF(N(x)) * layernorm_at(x),
            "pre",
        ),
        closed_form("no-norm", r"$I + D\!F(x)$", lambda: identity + DF(x), "pre"),
        closed_form(
            "rezero",
            r"$I + \alpha D\!F(x)$, which is $I$ at $\alpha = 0$",
            lambda: identity + alpha * DF(x),
            "no-norm",
        ),
        closed_form(
            "skipinit", r"$I + \alpha D\!F(x)$", lambda: identity + alpha * DF(x), "no-norm"
        ),
        closed_form("fixup", r"$I + \alpha D\!F(x)$", lambda: identity + alpha * DF(x), "no-norm"),
    ),
    sources=(
        XIONG("appendix F", seen="text"),
        PERI("the definition of the placement"),
        CURSE("section 4", seen="text"),
        REZERO("equation (3)", seen="memory"),
    ),
)
