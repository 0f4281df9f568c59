"""The engine's side of a comparison: blocks by name, and their Jacobians as numbers."""

from __future__ import annotations

import mpmath
import numpy as np
import sympy as sp

import derive
from derive.blocks.parse import parse_block
from derive.calculus.explicit import SymPyRing
from derive.calculus.instantiate import Instantiation, token_blocks

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


class QuadraticRing(SymPyRing):
    """SymPy entries; the abstract sublayers are the quadratic maps of the oracles."""

    def map(self, mapping, argument):
        matrix, slope = (self.values[f"{mapping.name}.{k}"] for k in ("matrix", "slope"))
        x = np.array(argument, dtype=object)
        return list(matrix.dot(x) + x * slope.dot(x))

    def map_jacobian(self, mapping, argument):
        matrix, slope = (self.values[f"{mapping.name}.{k}"] for k in ("matrix", "slope"))
        x = np.array(argument, dtype=object)
        return matrix + np.diag([slope.dot(x)] * len(x)) + np.outer(x, slope)


def exact(jacobian, w, causal=False):
    """Return a Jacobian at rational weights, all tokens stacked, as an array of numbers."""
    n = len(w["x"])
    values = dict(w)
    if causal:
        values |= {f"m[{i}, {j}]": int(j <= i) for i in range(n) for j in range(n)}
    names = {s.name: s for s in jacobian.free_symbols if isinstance(s, sp.Symbol)}
    sizes = {names.get(k, sp.Symbol(k)): v for k, v in sizes_of(w).items()}
    instance = Instantiation(QuadraticRing(values), sizes, n)
    if not jacobian.mixes_tokens:
        return instance(jacobian)
    blocks = token_blocks(instance, jacobian)
    return blocks.swapaxes(1, 2).reshape(w["x"].size, w["x"].size)


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
