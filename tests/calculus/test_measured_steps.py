"""Steps by measurement: both sides have one value at random numbers, and a corrupted one not.

`test_steps` opens every differential by the engine's own rules, for every d; here nothing of the
engine's differential is used, and attention with its sums over tokens is included.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import mpmath
import numpy as np
import pytest
import sympy as sp

import derive
from derive import symbols
from derive.calculus.tensor import Product, Sum, is_scalar, product

from . import oracles
from .measured import TOLERANCE, Measured

x = derive.state("x")
BLOCKS = {
    "post layernorm abstract": derive.block("post", "layernorm"),
    "post rmsnorm abstract": derive.block("post", "rmsnorm"),
    "pre layernorm ffn": derive.block("pre", "layernorm", "ffn:tanh"),
    "pre rmsnorm gated": derive.block("pre", "rmsnorm", "gated:tanh"),
    "twice the same norm": derive.block("x + N(F(N(x)))", "layernorm"),
    "alpha on the residual": derive.block("N(alpha*x + F(x))", "rmsnorm"),
    "norm without gain, eps = 0": derive.block("post", derive.RMSNorm(eps=0, gain=False)),
    "attention": derive.Attention()(x),
    "causal attention": derive.Attention(causal=True)(x),
    "rotary attention with biases": derive.Attention(rotary=True, bias=True)(x),
    "post attention": derive.block("post", "layernorm", "attention"),
    "pre attention": derive.block("pre", "rmsnorm", "attention"),
}


@lru_cache
def numbers(seed=5):
    with mpmath.workdps(60):
        w = oracles.random_weights(2, n=2, heads=2, d_h=4, seed=seed)
        w |= {f"b_{k}": w["R"][:, 0] for k in "QKV"} | {"b_O": w["b_2"]}
        w = oracles.as_mpmath(w)
    w |= {f"m[{i}, {j}]": mpmath.mpf(j <= i) for i in range(2) for j in range(2)}
    return w


@lru_cache
def measured():
    sizes = {symbols.d: 2, symbols.n: 2, symbols.f: 3, symbols.d_h: 4, symbols.H: 2}
    direction = oracles.each(mpmath.mpf, np.array([[3, -2], [1, 5]]))
    with mpmath.workdps(60):
        return Measured(numbers(), sizes, direction)


def gap(step):
    """Return the largest difference of the two sides, over tokens and heads, relative to them."""
    evaluate, worst = measured(), mpmath.mpf(0)
    free = {s for e in (step.before, step.after) for s in _indices(e)}
    with mpmath.workdps(60):
        for place in np.ndindex(*(2 for _ in free)):
            at = dict(zip(sorted(free, key=str), place, strict=True))
            for token in range(2):
                left, right = (
                    np.atleast_1d(evaluate(e, at, token)) for e in (step.before, step.after)
                )
                scale = 1 + max(abs(v) for v in left.ravel())
                worst = max(worst, *(abs(v) / scale for v in (left - right).ravel()))
    return worst


def _indices(expr):
    return {s for s in expr.free_symbols if isinstance(s, sp.Symbol) and s.name in set("hijkl")}


@pytest.mark.parametrize("name", BLOCKS)
def test_both_sides_of_every_step_have_one_value(name):
    steps = derive.derivation(BLOCKS[name], x).steps
    assert steps
    for step in steps:
        assert gap(step) < TOLERANCE, str(step)


def corrupted(expr):
    """Yield the expression with one sign flipped, one term dropped, one scalar doubled."""
    if isinstance(expr, Sum | sp.Add) and len(expr.args) > 1:
        yield expr.func(*expr.args[1:])
        yield expr.func(product([-1, expr.args[0]]), *expr.args[1:])
    if isinstance(expr, Product):
        for k, factor in enumerate(expr.args):
            if not is_scalar(factor):
                for wrong in corrupted(factor):
                    yield product([*expr.args[:k], wrong, *expr.args[k + 1 :]])
    yield product([2, expr])


@pytest.mark.parametrize("name", ["post layernorm abstract", "pre rmsnorm gated", "post attention"])
def test_a_corrupted_step_is_caught(name):
    caught = 0
    for step in derive.derivation(BLOCKS[name], x).steps:
        for wrong in corrupted(step.after):
            assert gap(replace(step, after=wrong)) > TOLERANCE, str(wrong)
            caught += 1
    assert caught > 20
