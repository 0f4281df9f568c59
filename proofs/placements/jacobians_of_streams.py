r"""Placements with two streams: the blocks of their Jacobians, derived against typed."""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

import derive
from derive.blocks.build import streams
from derive.proof import Identity, Step, Theorem, Verdict
from proofs.bibliography import MHC, RESIDUAL
from proofs.norms.layernorm_jacobian import theorem as layernorm_jacobian
from proofs.placements._shared import DF, layernorm_at
from proofs.setting import F, identity, x

__all__ = ["theorem"]

r = derive.state("r")
N, N1, N2 = derive.LayerNorm(), derive.LayerNorm(1), derive.LayerNorm(2)
a, a11, a12, a21, b1, b2, c1, c2 = sp.symbols("a a11 a12 a21 b1 b2 c1 c2", real=True)
fused = x + N2(r)
mixed = c1 * x + c2 * r


def _block(
    name: str, out: str, of: str, words: str, closed: Callable[[], sp.Basic], instead: str
) -> Step:
    """Return the step that one block of the derived Jacobian is the one that was typed."""
    return Step(
        f"{name}, {out} by {of}: {words}.",
        "chain rule",
        Identity(
            claim=lambda other: (streams(other)[out, of].jacobian, closed()),
            of=lambda: name,
            instead=lambda: instead,
        ),
    )


theorem = Theorem(
    id="jacobians-of-streams",
    area="placements",
    title="Jacobians of placements with two streams",
    statement=(
        r"ResiDual's second stream has the Jacobian $I$ by itself and $D\!F(x)$ by the first; "
        r"SiameseNorm's, hyper-connections' and mHC's blocks are those below."
    ),
    verdict=Verdict.PROVED,
    uses=(layernorm_jacobian,),
    steps=(
        _block(
            "residual",
            "x",
            "x",
            r"$J_N(u)(I + D\!F(x))$ at $u = x + F(x)$",
            lambda: layernorm_at(x + F(x)) * (identity + DF(x)),
            "siamesenorm",
        ),
        _block("residual", "r", "x", r"$D\!F(x)$", lambda: DF(x), "siamesenorm"),
        _block("residual", "r", "r", r"$I$", lambda: identity, "siamesenorm"),
        _block(
            "siamesenorm",
            "x",
            "r",
            r"$J_{N_1}(u)\,D\!F(w)\,J_{N_2}(r)$ at $w = x + N_2(r)$",
            lambda: layernorm_at(x + F(fused), "1") * DF(fused) * layernorm_at(r, "2"),
            "mhc",
        ),
        _block(
            "siamesenorm",
            "r",
            "r",
            r"$I + D\!F(w)\,J_{N_2}(r)$",
            lambda: identity + DF(fused) * layernorm_at(r, "2"),
            "residual",
        ),
        _block(
            "hyper-connections",
            "x",
            "x",
            r"$a_{11}I + b_1c_1D\!F\,J_N(c_1x + c_2r)$",
            lambda: a11 * identity + b1 * c1 * DF(N(mixed)) * layernorm_at(mixed),
            "mhc",
        ),
        _block(
            "hyper-connections",
            "r",
            "x",
            r"$a_{21}I + b_2c_1D\!F\,J_N(c_1x + c_2r)$",
            lambda: a21 * identity + b2 * c1 * DF(N(mixed)) * layernorm_at(mixed),
            "mhc",
        ),
        _block(
            "mhc",
            "x",
            "x",
            r"$(1 - a)I + b_1c_1D\!F\,J_N(c_1x + c_2r)$",
            lambda: (1 - a) * identity + b1 * c1 * DF(N(mixed)) * layernorm_at(mixed),
            "hyper-connections",
        ),
        _block(
            "mhc",
            "x",
            "r",
            r"$aI + b_1c_2D\!F\,J_N(c_1x + c_2r)$",
            lambda: a * identity + b1 * c2 * DF(N(mixed)) * layernorm_at(mixed),
            "hyper-connections",
        ),
    ),
    sources=(
        RESIDUAL("the authors' code", seen="code"),
        MHC("the code of transformers", seen="code"),
    ),
)
