r"""Placements that are whole layers: attention A, cross-attention C and feed-forward F together."""

from __future__ import annotations

import derive
from derive.calculus.let import Let
from derive.proof import Theorem, Verdict
from proofs.bibliography import B2T, VASWANI, XIONG
from proofs.norms.layernorm_jacobian import theorem as layernorm_jacobian
from proofs.norms.rmsnorm_jacobian import theorem as rmsnorm_jacobian
from proofs.placements._shared import DF, A, closed_form, layernorm_at, rmsnorm_at
from proofs.setting import F, identity, x

__all__ = ["theorem"]

C = derive.Sublayer("C")
N, N1, N2, N3 = (derive.LayerNorm(label) for label in ("", 1, 2, 3))
M1, M2, M3 = (derive.RMSNorm(label) for label in (1, 2, 3))
post_A, skip_A = Let("y_A", N1(x + A(x))), Let("y_A", x + A(x))
sandwich_A = Let("y_A", x + N2(A(N1(x))))

rms_A = Let("y_A", M1(x + A(x)))
rms_C = Let("y_C", M2(rms_A + C(rms_A)))
pre_A = Let("y_A", x + A(M1(x)))
pre_C = Let("y_C", pre_A + C(M2(pre_A)))

DA = identity + DF(x, A)
post_DA = layernorm_at(x + A(x), "1") * DA

theorem = Theorem(
    id="jacobians-of-layers",
    area="placements",
    title="Jacobians of whole layers",
    statement=(
        r"A layer of two or three blocks has the product of their Jacobians; where the blocks "
        r"share a skip (parallel, B2T, SpanNorm) it has a sum, without the cross term."
    ),
    verdict=Verdict.PROVED,
    uses=(layernorm_jacobian, rmsnorm_jacobian),
    steps=(
        closed_form(
            "parallel",
            r"$I + (D\!A(c) + D\!F(c))J_{N_1}(x)$ at $c = N_1(x)$",
            lambda: identity + (DF(N1(x), A) + DF(N1(x))) * layernorm_at(x, "1"),
            "parallel-two-norms",
        ),
        closed_form(
            "parallel-two-norms",
            r"$I + D\!A(N_1(x))J_{N_1}(x) + D\!F(N_2(x))J_{N_2}(x)$",
            lambda: (
                identity + DF(N1(x), A) * layernorm_at(x, "1") + DF(N2(x)) * layernorm_at(x, "2")
            ),
            "parallel",
        ),
        closed_form(
            "b2t",
            r"$J_{N_2}(u)\,(I + (I + D\!F(y))\,J_{N_1}(x + A(x))(I + D\!A(x)))$ with $y$ the "
            r"output of the attention block, here with RMSNorm",
            lambda: (
                rmsnorm_at(x + rms_A + F(rms_A), "2")
                * (identity + (identity + DF(rms_A)) * rmsnorm_at(x + A(x), "1") * DA)
            ),
            "spannorm",
            "rmsnorm",
        ),
        closed_form(
            "spannorm",
            r"$J_{N_2}(u)\,(I + D\!F(y)\,J_{N_1}(x + A(x))(I + D\!A(x)))$",
            lambda: layernorm_at(x + F(post_A), "2") * (identity + DF(post_A) * post_DA),
            "b2t",
        ),
        closed_form(
            "hybridnorm",
            r"$(I + D\!F(N_1(y)))\,J_{N_1}(y)\,(I + D\!A(x))$ at $y = x + A(x)$",
            lambda: (identity + DF(N1(skip_A))) * layernorm_at(skip_A, "1") * DA,
            "pre-mlp",
        ),
        closed_form(
            "pre-mlp",
            r"$(I + D\!F(N(y))J_N(y))\,(I + D\!A(x))$ at $y = x + A(x)$",
            lambda: (identity + DF(N(skip_A)) * layernorm_at(skip_A)) * DA,
            "hybridnorm",
        ),
        closed_form(
            "normformer",
            r"$(I + D\!F\,J_{N_3}(y))\,(I + J_{N_2}D\!A\,J_{N_1}(x))$ at $y = x + N_2(A(N_1(x)))$",
            lambda: (
                (identity + DF(N3(sandwich_A)) * layernorm_at(sandwich_A, "3"))
                * (identity + layernorm_at(A(N1(x)), "2") * DF(N1(x), A) * layernorm_at(x, "1"))
            ),
            "hybridnorm",
        ),
        closed_form(
            "decoder-2017",
            r"$J_{N_3}(I + D\!F)\,J_{N_2}(I + D\!C)\,J_{N_1}(I + D\!A)$, each at its own input, "
            "here with RMSNorm",
            lambda: (
                rmsnorm_at(rms_C + F(rms_C), "3")
                * (identity + DF(rms_C))
                * rmsnorm_at(rms_A + C(rms_A), "2")
                * (identity + DF(rms_A, C))
                * rmsnorm_at(x + A(x), "1")
                * DA
            ),
            "decoder-pre",
            "rmsnorm",
        ),
        closed_form(
            "decoder-pre",
            r"$(I + D\!F\,J_{N_3})(I + D\!C\,J_{N_2})(I + D\!A\,J_{N_1})$, each at its own input, "
            "here with RMSNorm",
            lambda: (
                (identity + DF(M3(pre_C)) * rmsnorm_at(pre_C, "3"))
                * (identity + DF(M2(pre_A), C) * rmsnorm_at(pre_A, "2"))
                * (identity + DF(M1(x), A) * rmsnorm_at(x, "1"))
            ),
            "decoder-2017",
            "rmsnorm",
        ),
    ),
    sources=(
        VASWANI("figure 1"),
        XIONG("appendix F", seen="text"),
        B2T("the authors' code", seen="code"),
    ),
)
