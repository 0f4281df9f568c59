r"""Placements whose norm stands on the skip: every path, the identity's too, passes J_N.

N(x + F(x)) and its relatives: DeepNorm, Admin, Keel, nGPT, the normed residual, a final norm.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.blocks.norms import L2Norm
from derive.calculus.atoms import Diag, Inner, Vector
from derive.proof import Theorem, Verdict
from derive.symbols import alpha, beta, d
from proofs.bibliography import ADMIN, DEEPNET, NGPT, VASWANI, XIONG
from proofs.norms.layernorm_jacobian import theorem as layernorm_jacobian
from proofs.placements._shared import DF, closed_form, layernorm_at
from proofs.setting import F, identity, x

__all__ = ["theorem"]

N, N1 = derive.LayerNorm(), derive.LayerNorm(1)
omega, lam = Vector("omega", d), Vector("lam", d)


def _unit_at(u: sp.Basic) -> sp.Basic:
    """Return the typed Jacobian of division by the length."""
    return 1 / sp.sqrt(Inner(u, u)) * (identity - u * u.T / Inner(u, u))


def _ngpt() -> sp.Basic:
    turned = identity + Diag(lam) * (_unit_at(F(x)) * DF(x) - identity)
    return _unit_at(x + Diag(lam) * (L2Norm(1)(F(x)) - x)) * turned


theorem = Theorem(
    id="jacobians-norm-on-the-skip",
    area="placements",
    title="Jacobians where the norm stands on the skip",
    statement=(
        r"Where the norm acts on the sum its Jacobian is the leftmost factor: post-norm has "
        r"$J_N(u)\,(I + D\!F(x))$ at $u = x + F(x)$, and DeepNorm, Admin, Keel and nGPT have the "
        r"same with a weight on the skip; the normed residual has it as the rightmost factor."
    ),
    verdict=Verdict.PROVED,
    uses=(layernorm_jacobian,),
    steps=(
        closed_form(
            "post",
            r"$J_N(u)(I + D\!F(x))$ at $u = x + F(x)$",
            lambda: layernorm_at(x + F(x)) * (identity + DF(x)),
            "pre",
        ),
        closed_form(
            "deepnorm",
            r"$J_N(u)(\alpha I + D\!F(x))$ at $u = \alpha x + F(x)$",
            lambda: layernorm_at(alpha * x + F(x)) * (alpha * identity + DF(x)),
            "post",
        ),
        closed_form(
            "admin",
            r"$J_N(u)(\mathrm{diag}(\omega) + D\!F(x))$ at $u = \omega\odot x + F(x)$",
            lambda: layernorm_at(Diag(omega) * x + F(x)) * (Diag(omega) + DF(x)),
            "post",
        ),
        closed_form(
            "keel",
            r"$J_{N_2}(u)(\alpha I + D\!F\,J_{N_1}(x))$ at $u = \alpha x + F(N_1(x))$",
            lambda: (
                layernorm_at(alpha * x + F(N1(x)), "2")
                * (alpha * identity + DF(N1(x)) * layernorm_at(x, "1"))
            ),
            "deepnorm",
        ),
        closed_form(
            "pre-final",
            r"$J_{N_2}(u)(I + D\!F\,J_{N_1}(x))$ at $u = x + F(N_1(x))$",
            lambda: layernorm_at(x + F(N1(x)), "2") * (identity + DF(N1(x)) * layernorm_at(x, "1")),
            "pre",
        ),
        closed_form(
            "normed-residual",
            r"$(I + D\!F(N(x)))J_N(x)$",
            lambda: (identity + DF(N(x))) * layernorm_at(x),
            "pre",
        ),
        closed_form(
            "scaled-normed-residual",
            r"$(\alpha I + \beta D\!F(N(x)))J_N(x)$",
            lambda: (alpha * identity + beta * DF(N(x))) * layernorm_at(x),
            "normed-residual",
        ),
        closed_form(
            "ngpt",
            r"$J_2(v)(I + \mathrm{diag}(\lambda)(J_1(F(x))D\!F(x) - I))$ with the Jacobians $J_1$, "
            r"$J_2$ of division by the length",
            _ngpt,
            "post",
            "l2norm",
        ),
    ),
    sources=(
        VASWANI("section 3.1"),
        XIONG("appendix F", seen="text"),
        DEEPNET("section 3", seen="code"),
        ADMIN("the authors' code", seen="code"),
        NGPT("the update of the hidden state", seen="memory"),
    ),
)
