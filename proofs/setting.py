r"""What the theorems share: the state, the atoms, the norms as derived, common assumptions.

Notation: x is the input of a block, c = x - mean(x) 1 its deviations, g the gain,
s = sqrt(|c|^2/d + eps) and r = sqrt(|x|^2/d + eps), C = I - 11'/d. Jacobians are derived when a
check asks for them, and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import sympy as sp

import derive
from derive.calculus.atoms import Inner, Ones, Vector, eye
from derive.calculus.derivation import Derivation
from derive.proof import Assumption
from derive.symbols import d, eps

__all__ = [
    "EPS_ZERO",
    "GAIN_ONE",
    "MEAN_ZERO",
    "C",
    "F",
    "bias",
    "block",
    "block_jacobian",
    "c",
    "derived",
    "gain",
    "identity",
    "mean",
    "norm",
    "one",
    "r",
    "s",
    "x",
]

x = derive.state("x")
one, gain, bias = Ones(d), Vector("gain", d), Vector("bias", d)
F = derive.Sublayer("F")
identity = eye(d)
C = identity - one * one.T / d

mean = Inner(one, x) / d
c = x - mean * one
s = sp.sqrt(Inner(c, c) / d + eps)
r = sp.sqrt(Inner(x, x) / d + eps)

EPS_ZERO = Assumption("eps-zero", r"$\epsilon = 0$, and the norm does not get 0", ((eps, 0),))
GAIN_ONE = Assumption("gain-one", r"the gain is $\mathbf 1$", ((gain, one),))
MEAN_ZERO = Assumption("mean-zero", r"the input has mean zero", ((x, C * x),))


@lru_cache(maxsize=64)
def _norm(kind: str) -> Derivation:
    return derive.derivation(derive.norm(kind)(x), x)


def norm(kind: str) -> Callable[[], Derivation]:
    """Return a subject: the derivation of a norm at x, ``layernorm``, ``rmsnorm``, ``dyt`` ..."""
    return lambda: _norm(kind)


@lru_cache(maxsize=256)
def block(equation: str, kind: str = "layernorm", sublayer: str = "abstract") -> sp.Basic:
    """Return a block by its placement or equation."""
    return derive.block(equation, kind, sublayer, x)


@lru_cache(maxsize=256)
def _jacobian(equation: str, kind: str, sublayer: str) -> sp.Basic:
    return derive.jacobian(block(equation, kind, sublayer), x)


def block_jacobian(
    equation: str, kind: str = "layernorm", sublayer: str = "abstract"
) -> Callable[[], sp.Basic]:
    """Return a subject: the Jacobian of a placement or equation."""
    return lambda: _jacobian(equation, kind, sublayer)


def derived(name: str, found: Derivation) -> Any:
    """Return a named quantity of a derivation: ``s``, ``r``, ``xhat``, ``mean``."""
    return next(quantity for quantity in found.lets if quantity.name == name)
