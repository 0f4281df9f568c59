"""Blocks written by hand on arrays of numbers, as oracles: nothing here comes from the engine.

A state is an object array ``(n, d)`` of tokens; the numbers are rationals, mpmath numbers or SymPy
expressions, whose functions are in `MPMATH` and `SYMPY`.
"""

from __future__ import annotations

import random
from math import isqrt
from types import SimpleNamespace

import mpmath
import numpy as np
import sympy as sp

DIGITS = 50
STEP = mpmath.mpf(10) ** -26

MPMATH = SimpleNamespace(
    sqrt=mpmath.sqrt,
    exp=mpmath.exp,
    tanh=mpmath.tanh,
    erf=mpmath.erf,
    root_two_over_pi=lambda: mpmath.sqrt(2 / mpmath.pi),
    relu=lambda t: max(t, mpmath.mpf(0)),
)
SYMPY = SimpleNamespace(
    sqrt=sp.sqrt,
    exp=sp.exp,
    tanh=sp.tanh,
    erf=sp.erf,
    root_two_over_pi=lambda: sp.sqrt(2 / sp.pi),
    relu=lambda t: sp.Piecewise((t, t > 0), (0, True)),
)

ACTIVATIONS = {
    "relu": lambda m, t: m.relu(t),
    "gelu": lambda m, t: t / 2 * (1 + m.erf(t / m.sqrt(2 + 0 * t))),
    "gelu_tanh": lambda m, t: (
        t / 2 * (1 + m.tanh(m.root_two_over_pi() * (t + t**3 * 44715 / 10**6)))
    ),
    "silu": lambda m, t: t / (1 + m.exp(-t)),
    "tanh": lambda m, t: m.tanh(t),
}


def each(function, array):
    """Apply a function to every entry."""
    array = np.asarray(array, dtype=object)
    out = np.empty(array.shape, dtype=object)
    for k in np.ndindex(*array.shape):
        out[k] = function(array[k])
    return out


def layernorm(m, x, gain, bias, eps):
    out = []
    for row in x:
        centred = row - sum(row) / len(row)
        out.append(centred / m.sqrt(sum(centred**2) / len(row) + eps) * gain + bias)
    return np.array(out, dtype=object)


def rmsnorm(m, x, gain, bias, eps):
    rows = [row / m.sqrt(sum(row**2) / len(row) + eps) * gain + bias for row in x]
    return np.array(rows, dtype=object)


NORMS = {"layernorm": layernorm, "rmsnorm": rmsnorm}


def quadratic(matrix, slope):
    """Return a concrete map for an abstract sublayer: ``B x + x (c'x)``."""
    return lambda x: np.array([matrix.dot(row) + row * slope.dot(row) for row in x], dtype=object)


def ffn(m, w, act):
    return lambda x: (
        each(lambda t: ACTIVATIONS[act](m, t), x.dot(w["W_1"].T) + w["b_1"]).dot(w["W_2"].T)
        + w["b_2"]
    )


def gated(m, w, act):
    def function(x):
        gate = each(lambda t: ACTIVATIONS[act](m, t), x.dot(w["W_gate"].T))
        return (gate * x.dot(w["W_up"].T)).dot(w["W_down"].T)

    return function


def attention(m, w, causal=False, rotary=False):
    def function(x):
        n, out = len(x), np.zeros(x.shape, dtype=object)
        for wq, wk, wv, wo in zip(w["W_Q"], w["W_K"], w["W_V"], w["W_O"], strict=True):
            q, k, v = x.dot(wq.T), x.dot(wk.T), x.dot(wv.T)
            if rotary:
                q = np.array([w["R"][i].dot(q[i]) for i in range(n)], dtype=object)
                k = np.array([w["R"][i].dot(k[i]) for i in range(n)], dtype=object)
            for i in range(n):
                seen = range(i + 1 if causal else n)
                root = m.sqrt(sp.Integer(len(wq)) if m is SYMPY else mpmath.mpf(len(wq)))
                scores = [m.exp(q[i].dot(k[j]) / root) for j in seen]
                out[i] = out[i] + wo.dot(
                    sum(e * v[j] for e, j in zip(scores, seen, strict=True)) / sum(scores)
                )
        return out

    return function


def sublayer(m, w, kind):
    """Return the sublayer of that kind by hand; ``F``, ``A`` stand for abstract ones."""
    name, _, act = kind.partition(":")
    match name:
        case "F" | "A":
            return quadratic(w[f"{name}.matrix"], w[f"{name}.slope"])
        case "ffn":
            return ffn(m, w, act)
        case "gated":
            return gated(m, w, act)
    return attention(m, w, causal="causal" in name, rotary="rotary" in name)


PLACEMENTS = {
    "post": lambda m, x: m.N(x + m.F(x)),
    "pre": lambda m, x: x + m.F(m.N(x)),
    "x + N(F(N(x)))": lambda m, x: x + m.N(m.F(m.N(x))),
    "N2(x + F(N1(x)))": lambda m, x: m.N2(x + m.F(m.N1(x))),
    "N(alpha*x + F(x))": lambda m, x: m.N(m.alpha * x + m.F(x)),
    "x + A(N(x)) + F(N(x))": lambda m, x: x + m.A(m.N(x)) + m.F(m.N(x)),
    "layer post": lambda m, x: (lambda h: m.N2(h + m.F(h)))(m.N1(x + m.A(x))),
    "layer pre": lambda m, x: (lambda h: h + m.F(m.N2(h)))(x + m.A(m.N1(x))),
}


def random_weights(d, n=2, heads=2, d_h=4, seed=0):
    """Return random rationals by name: every weight, gain and bias, the state and the scalars."""
    rng = random.Random(seed)

    def draw(*shape):
        return each(
            lambda _: sp.Rational(rng.choice((-1, 1)) * rng.randint(1, 9), rng.randint(3, 7)),
            np.zeros(shape),
        )

    f = d + 1
    w = {"x": draw(n, d), "alpha": sp.Rational(7, 5), "eps": sp.Rational(1, 10)}
    for label in ("", "_1", "_2"):
        w |= {f"gain{label}": draw(d), f"bias{label}": draw(d)}
    w |= {"W_1": draw(f, d), "b_1": draw(f), "W_2": draw(d, f), "b_2": draw(d)}
    w |= {"W_gate": draw(f, d), "W_up": draw(f, d), "W_down": draw(d, f)}
    w |= {f"W_{k}": draw(heads, d_h, d) for k in "QKV"}
    w |= {"W_O": draw(heads, d, d_h), "R": draw(n, d_h, d_h)}
    for name in "FA":
        w |= {f"{name}.matrix": draw(d, d), f"{name}.slope": draw(d)}
    return w


def as_mpmath(weights):
    """Return the weights as mpmath numbers."""

    def convert(value):
        return mpmath.mpf(int(value.p)) / int(value.q)

    return {k: each(convert, v) if np.ndim(v) else convert(v) for k, v in weights.items()}


def by_hand(m, w, norm, maps, gain=True, bias=True):
    """Return the names that `PLACEMENTS` use; a norm without gain or bias has ones or zeros."""
    d = w["x"].shape[1]

    def norm_of(label):
        return lambda x: NORMS[norm](
            m,
            x,
            w[f"gain{label}"] if gain else np.full(d, 1, dtype=object),
            w[f"bias{label}"] if bias else np.full(d, 0, dtype=object),
            w.get(f"eps{label}", w["eps"]),
        )

    names = {name: sublayer(m, w, kind) for name, kind in maps.items()}
    return SimpleNamespace(
        N=norm_of(""), N1=norm_of("_1"), N2=norm_of("_2"), alpha=w["alpha"], **names
    )


def differences(function, x):
    """Return the Jacobian ``(n d, n d)`` by central differences at 80 digits.

    Truncation is h^2 times a third derivative (about 1e-52), rounding 1e-80 / h (about 1e-54).
    """
    with mpmath.workdps(80):
        columns = []
        for k in np.ndindex(*x.shape):
            step = np.full(x.shape, mpmath.mpf(0), dtype=object)
            step[k] = STEP
            columns.append(((function(x + step) - function(x - step)) / (2 * STEP)).ravel())
        return np.array(columns, dtype=object).T


def sympy_jacobian(function, x):
    """Return SymPy's Jacobian of a hand-written block at `x`: one symbolic entry at a time."""
    t = sp.Symbol("t", real=True)
    columns = []
    for k in np.ndindex(*x.shape):
        moved = x.copy()
        moved[k] = x[k] + t
        column = sp.Matrix(function(moved).ravel()).jacobian([t])
        columns.append(column.xreplace({t: sp.Integer(0)}))
    return np.array(sp.Matrix.hstack(*columns).tolist(), dtype=object)


def rational_eps(norm, row):
    """Return an eps that makes the root of this norm at `row` rational."""
    centred = row - sum(row) / len(row) if norm == "layernorm" else row
    variance = sum(centred**2) / len(row)
    return sp.Integer(isqrt(int(variance)) + 1) ** 2 - variance


def distance(left, right):
    """Return the largest difference relative to the largest entry of `right`."""
    left, right = np.asarray(left, dtype=object), np.asarray(right, dtype=object)
    assert left.shape == right.shape
    scale = max(abs(v) for v in right.ravel())
    return max(abs(a - b) for a, b in zip(left.ravel(), right.ravel(), strict=True)) / scale
