r"""What theorems about placements share: typed Jacobians of norms, weights put into a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp
from sympy.core.symbol import Str

import derive
from derive.calculus.atoms import Diag, Inner, Matrix, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Body, JacobianOf, Map
from derive.proof import Identity, Step
from derive.symbols import d, eps
from proofs.setting import F, block_jacobian, identity, one, written_out, x

__all__ = [
    "DF",
    "A",
    "Linear",
    "W",
    "closed_form",
    "layernorm_at",
    "linear",
    "placed",
    "rmsnorm_at",
]

A = derive.Sublayer("A")
W = Matrix("W", d, d)


class Linear(Map):
    """The sublayer that multiplies by W: what explicit witnesses use."""

    family = "linear"

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return W times the argument."""
        return Body(lets=(), output=W * argument)


linear = Linear(Str("F"))


def DF(point: sp.Basic, mapping: Map = F) -> sp.Basic:
    """Return the Jacobian of an abstract sublayer at a point."""
    return JacobianOf(mapping, point)


def layernorm_at(u: sp.Basic, label: str = "") -> sp.Basic:
    """Return (1/s) diag(g) (I - 11'/d - xhat xhat'/d) at u, typed; see `layernorm-jacobian`."""
    mark = f"_{label}" if label else ""
    deviations = u - Inner(one, u) / d * one
    s = ScalarLet(f"s{mark}", sp.sqrt(Inner(deviations, deviations) / d + eps))
    xhat = Let(f"xhat{mark}", 1 / s * deviations)
    gain = Vector(f"gain{mark}", d)
    return 1 / s * Diag(gain) * (identity - one * one.T / d - xhat * xhat.T / d)


def rmsnorm_at(u: sp.Basic, label: str = "") -> sp.Basic:
    """Return (1/r) diag(g) (I - xhat xhat'/d) at u, typed; see `rmsnorm-jacobian`."""
    mark = f"_{label}" if label else ""
    r = ScalarLet(f"r{mark}", sp.sqrt(Inner(u, u) / d + eps))
    xhat = Let(f"xhat{mark}", 1 / r * u)
    return 1 / r * Diag(Vector(f"gain{mark}", d)) * (identity - xhat * xhat.T / d)


def closed_form(
    name: str, words: str, closed: Callable[[], sp.Basic], instead: str, kind: str = "layernorm"
) -> Step:
    """Return the step that the derived Jacobian of a placement is the one that was typed."""
    return Step(
        f"{name}: {words}.",
        "chain rule",
        Identity(
            claim=lambda J: (J, closed()),
            of=block_jacobian(name, kind),
            instead=block_jacobian(instead, kind),
        ),
    )


def placed(
    equation: str, weights: Mapping[sp.Basic, Any] | None = None, sublayer: Any = "abstract"
) -> sp.Basic:
    """Return the Jacobian of a placement, written out, with weights put in the place of others."""
    J = derive.jacobian(derive.block(equation, sublayer_=sublayer, x=x), x)
    return written_out(J).xreplace(dict(weights or {}))
