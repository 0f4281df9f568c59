r"""What the theorems share: the state, the atoms, the norms as derived, common assumptions.

Notation: x is the input of a block, c = x - mean(x) 1 its deviations, g the gain,
s = sqrt(|c|^2/d + eps) and r = sqrt(|x|^2/d + eps), C = I - 11'/d. Jacobians are derived when a
check asks for them, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import sympy as sp

import derive
from derive.calculus.atoms import Inner, Ones, State, Vector, eye
from derive.calculus.derivation import Derivation
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply, Body
from derive.proof import Assumption
from derive.symbols import d, eps

__all__ = [
    "BIAS_ZERO",
    "EPS_ZERO",
    "GAIN_NOT_ZERO",
    "GAIN_ONE",
    "MEAN_ZERO",
    "NOT_CONSTANT",
    "C",
    "F",
    "bias",
    "block",
    "block_jacobian",
    "c",
    "derived",
    "gain",
    "identity",
    "jacobian",
    "mean",
    "moved",
    "ms",
    "norm",
    "one",
    "output",
    "r",
    "s",
    "var",
    "written_out",
    "x",
]

x = derive.state("x")
one, gain, bias = Ones(d), Vector("gain", d), Vector("bias", d)
F = derive.Sublayer("F")
identity = eye(d)
C = identity - one * one.T / d

mean = ScalarLet("mean", Inner(one, x) / d)
c = Let("c", x - mean * one)
var = ScalarLet("var", Inner(x - mean * one, x - mean * one) / d)
s = ScalarLet("s", sp.sqrt(var + eps))
ms = ScalarLet("ms", Inner(x, x) / d)
r = ScalarLet("r", sp.sqrt(ms + eps))

EPS_ZERO = Assumption("eps-zero", r"$\epsilon = 0$, and the norm does not get 0", ((eps, 0),))
GAIN_ONE = Assumption("gain-one", r"the gain is $\mathbf 1$", ((gain, one),))
BIAS_ZERO = Assumption("bias-zero", r"the bias is $0$", ((bias, 0 * one),))
GAIN_NOT_ZERO = Assumption("gain-not-zero", r"no entry of the gain is $0$")
NOT_CONSTANT = Assumption("not-constant", r"the entries of $x$ are not all equal")
MEAN_ZERO = Assumption("mean-zero", r"the input has mean zero", ((x, C * x),))


@lru_cache(maxsize=64)
def _norm(kind: str) -> Derivation:
    return derive.derivation(derive.norm(kind)(x), x)


def norm(kind: str) -> Callable[[], Derivation]:
    """Return a subject: the derivation of a norm at x, ``layernorm``, ``rmsnorm``, ``dyt`` ..."""
    return lambda: _norm(kind)


def jacobian(kind: str) -> Callable[[], sp.Basic]:
    """Return a subject: the Jacobian of a norm at x."""
    return lambda: _norm(kind).jacobian


def _norm_body(kind: str) -> Body:
    body = derive.norm(kind)(x).body
    assert body is not None
    return body


def output(kind: str) -> Callable[[], sp.Basic]:
    """Return a subject: what a norm returns at x, in terms of its root and normalised vector."""
    return lambda: _norm_body(kind).output


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


def moved(expr: sp.Basic, at: Mapping[sp.Basic, sp.Basic], mark: str) -> sp.Basic:
    """Return an expression at another input; its named quantities get the mark, as ``s_k``."""
    if isinstance(expr, Let | ScalarLet):
        return expr.func(f"{expr.name}_{mark}", moved(expr.definition, at, mark), *expr.indices)
    if expr in at or not expr.args or isinstance(expr, State):
        return at.get(expr, expr)
    return expr.func(*[moved(a, at, mark) if isinstance(a, sp.Expr) else a for a in expr.args])


def written_out(expr: sp.Basic) -> sp.Basic:
    """Replace every name by its definition and every concrete map by its output.

    What then holds the weights can be replaced by other weights.
    """
    if isinstance(expr, Let | ScalarLet):
        return written_out(expr.definition)
    if isinstance(expr, Apply) and expr.body is not None:
        return written_out(expr.body.output)
    if not expr.args or isinstance(expr, State):
        return expr
    return expr.func(*[written_out(a) if isinstance(a, sp.Expr) else a for a in expr.args])
