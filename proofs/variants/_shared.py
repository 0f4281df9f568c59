r"""The norms' Jacobians as the theorems about variants write them, at an argument v.

Pieces of a derived Jacobian (DF, DA, DN) are nodes of its own; a claim names them as they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import sympy as sp

import derive
from derive.blocks.build import streams
from derive.blocks.parse import parse_block
from derive.blocks.placements import PLACEMENTS, STREAM_SCALARS, STREAMS
from derive.calculus.atoms import Diag, Inner, Vector
from derive.calculus.maps import JacobianOf
from derive.symbols import d, eps
from proofs.setting import C, F, identity, x

A = derive.Sublayer("A")
lam = Vector("lam", d)


def layernorm(v: sp.Basic, label: str = "") -> sp.Basic:
    """Return LayerNorm of v, with the gain and bias of that label."""
    return derive.LayerNorm(label)(v)


def root(v: sp.Basic) -> sp.Expr:
    """Return sqrt(|v - mean|^2/d + eps)."""
    return sp.sqrt(Inner(C * v, C * v) / d + eps)


def layernorm_jacobian(v: sp.Basic, label: str = "") -> sp.Basic:
    """Return (1/s) diag(gain) (C - cc'/(d s^2)) at v."""
    gain = Vector(f"gain_{label}" if label else "gain", d)
    s, c = root(v), C * v
    return 1 / s * (Diag(gain) * (C - c * c.T / (d * s**2)))


def sphere_jacobian(v: sp.Basic) -> sp.Basic:
    """Return the Jacobian of v/|v|."""
    square = Inner(v, v)
    return 1 / sp.sqrt(square) * (identity - v * v.T / square)


def DF(v: sp.Basic) -> sp.Basic:
    """Return the Jacobian of the sublayer F at v."""
    return JacobianOf(F, v)


def DA(v: sp.Basic) -> sp.Basic:
    """Return the Jacobian of the sublayer A at v."""
    return JacobianOf(A, v)


N_1, N_2 = derive.Sublayer("N_1"), derive.Sublayer("N_2")


@lru_cache(maxsize=16)
def _layer(equation: str) -> sp.Basic:
    maps = {"A": A, "F": F, "N1": N_1, "N2": N_2}
    return derive.jacobian(parse_block(equation, maps, x, "x"), x)


def layer(equation: str) -> Callable[[], sp.Basic]:
    """Return a subject: the Jacobian of a layer whose norms may be any maps of one token."""
    return lambda: _layer(PLACEMENTS[equation].equation if equation in PLACEMENTS else equation)


def DN(number: int, v: sp.Basic) -> sp.Basic:
    """Return the Jacobian of the norm N_1 or N_2 at v."""
    return JacobianOf((N_1, N_2)[number - 1], v)


def without_branches(J: sp.Basic) -> sp.Basic:
    """Return the paths of a Jacobian that pass through no sublayer."""
    branches = {e for e in J.atoms(JacobianOf) if e.mapping in (A, F)}
    return J.xreplace({e: sp.ZeroMatrix(d, d) for e in branches})


@lru_cache(maxsize=16)
def stream_jacobians(name: str) -> dict[tuple[str, str], sp.Basic]:
    """Return the derived blocks of a placement with several streams, with LayerNorm."""
    return {key: found.jacobian for key, found in streams(name).items()}


@lru_cache(maxsize=4)
def any_norm_streams(name: str) -> dict[tuple[str, str], sp.Basic]:
    """Return the derived blocks of a placement with several streams, the norms any maps."""
    equations = STREAMS[name].equations
    states = {stream: derive.state(stream) for stream in equations}
    maps = {"F": F, "N": N_1, "N1": N_1, "N2": N_2}
    return {
        (out, stream): derive.jacobian(
            parse_block(equation, maps, states["x"], scalars=STREAM_SCALARS, others=states),
            states[stream],
        )
        for out, equation in equations.items()
        for stream in equations
    }
