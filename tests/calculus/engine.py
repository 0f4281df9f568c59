"""The engine's side of a comparison: blocks by name, and their Jacobians as numbers."""

from __future__ import annotations

import mpmath
import numpy as np
import sympy as sp

import derive
from derive.blocks.parse import parse_block
from derive.calculus.explicit import explicit

from .oracles import DIGITS, each

STATE = derive.state("x")


def map_of(kind, name):
    """Return the engine's map of a kind that `oracles.sublayer` knows."""
    return derive.Sublayer(name) if kind == name else derive.sublayer(kind, name=name)


def block_of(placement, norm, maps, gain=True, bias=True, own_eps=False):
    """Return the block of a placement that `oracles.PLACEMENTS` knows."""
    own = {k: {"eps": sp.Symbol(f"eps_{k}", positive=True)} if own_eps else {} for k in "12"}
    N, N1, N2 = (
        derive.norm(norm, label=k, gain=gain, bias=bias, **own.get(k, {})) for k in ("", "1", "2")
    )
    F, A = (map_of(maps[name], name) for name in "FA")
    if placement.startswith("layer"):
        return derive.layer(placement.removeprefix("layer "), (N1, N2), A, F)
    if placement in derive.PLACEMENTS:
        return derive.block(placement, N, F)
    return parse_block(placement, {"N": N, "N1": N1, "N2": N2, "F": F, "A": A}, STATE)


def sizes_of(w):
    """Return the sizes of the weights by the name of their symbol."""
    n, d = w["x"].shape
    heads, d_h, _ = w["W_Q"].shape
    return {"d": d, "n": n, "f": len(w["W_1"]), "d_h": d_h, "H": heads}


def exact(jacobian, w, causal=False):
    """Return a Jacobian at rational weights, by `explicit`, its abstract sublayers quadratic."""
    values = dict(w)
    if causal:
        n = len(w["x"])
        values |= {f"m[{i}, {j}]": int(j <= i) for i in range(n) for j in range(n)}
    out = explicit(jacobian, sizes_of(w), tokens=len(w["x"]), values=values)
    for name in "FA":
        for k in range(w["x"].shape[1]):
            out = out.replace(sp.Function(f"{name}_{k}"), _component(w, name, k))
    return np.array(out.doit().tolist(), dtype=object)


def _component(w, name, k):
    matrix, slope = w[f"{name}.matrix"], w[f"{name}.slope"]
    return lambda *x: (
        sum(b * v for b, v in zip(matrix[k], x, strict=True))
        + x[k] * sum(c * v for c, v in zip(slope, x, strict=True))
    )


def as_floats(w):
    """Return the weights as SymPy numbers of 60 digits."""
    return {k: each(_rounded, v) if np.ndim(v) else _rounded(v) for k, v in w.items()}


def _rounded(value):
    return sp.Float(value, DIGITS + 10)


def as_digits(array):
    """Return an array of SymPy numbers as mpmath numbers."""
    with mpmath.workdps(DIGITS + 10):
        return each(lambda v: mpmath.mpf(sp.Float(v.evalf(DIGITS + 5))._mpf_), array)


def digits(jacobian, w, causal=False):
    """Return a Jacobian at 50 digits, by `explicit`, as an array of mpmath numbers."""
    return as_digits(exact(jacobian, as_floats(w), causal))
