"""The symbolic tasks: deriving a Jacobian at symbolic d, against the computer algebra there is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import sympy as sp
from sympy.core.cache import clear_cache

import derive
from derive import symbols
from derive.bench.machine import installed
from derive.bench.problem import Elsewhere, Problem
from derive.bench.rows import OURS
from derive.calculus.explicit import explicit

__all__ = ["derivations"]

HIDDEN = 2
"""Hidden width f of the feed-forward sublayers, where entries are written out."""

# A block in tensorgrad: the derivative by the input, then its full simplification.
_TENSORGRAD = """
import sys, time
from fractions import Fraction
import sympy
from tensorgrad import Derivative, Variable
import tensorgrad.functions as F
d, f = sympy.symbols("d f")
def norm(t, k):
    centred = t - F.mean(t, "i", keepdims=True)
    variance = F.mean(centred * centred, "i", keepdims=True)
    scale = F.pow(variance + 1e-5, Fraction(-1, 2))
    return Variable("g%d" % k, i=d) * centred * scale + Variable("b%d" % k, i=d)
def mlp(t):
    hidden = F.relu(F.dot(Variable("W1", i=d, h=f), t, ("i", "i")))
    return F.dot(Variable("W2", h=f, i=d), hidden, ("h", "h"))
x = Variable("x", i=d)
y = norm(x + mlp(x), 1) if sys.argv[1] == "post" else x + norm(mlp(norm(x, 1)), 2)
start = time.perf_counter()
Derivative(y, x).full_simplify()
print(time.perf_counter() - start)
"""


def forget() -> None:
    """Empty SymPy's cache and every memo of the toolkit."""
    clear_cache()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "derive":
            for value in vars(module).values():
                getattr(value, "cache_clear", lambda: None)()


def derivations(quick: bool) -> Iterator[Problem]:
    """Derive blocks cold, against SymPy's entries at small d and against tensorgrad."""
    rows = [
        ("post", "layernorm", "ffn:relu", "post"),
        ("x + N2(F(N1(x)))", "layernorm", "ffn:relu", "peri"),
    ]
    if not quick:
        rows.append(("post", "layernorm", "attention", "attention"))
        rows += [
            (placement, norm, sublayer, "")
            for placement in ("post", "pre")
            for norm in ("layernorm", "rmsnorm")
            for sublayer in ("abstract", "ffn:tanh", "gated:silu")
        ]
    limit = 8.0 if quick else 120.0
    yield Problem(
        "command",
        "derive show post --sublayer causal-attention --steps",
        {OURS: _show},
        memory=False,
    )
    for equation, norm, sublayer, rival in rows:
        x = derive.state("x")
        block = derive.block(equation, norm, sublayer, x)

        def ours(block: sp.Basic = block, x: sp.Basic = x) -> None:
            forget()
            derive.derivation(block, x)

        methods: dict[str, Callable[[], None]] = {OURS: ours}
        missing = {}
        if sublayer != "attention":
            for size in (2,) if quick else (2, 3):
                methods[f"SymPy entries at d={size}, Matrix.jacobian"] = partial(
                    _entries, block, size
                )
        if rival:
            seconds, why = _tensorgrad(rival, limit)
            if seconds is None:
                missing["tensorgrad full_simplify"] = why
            else:
                methods["tensorgrad full_simplify"] = Elsewhere(seconds)
        yield Problem(
            "derivation",
            f"{equation} {norm} {sublayer}, d symbolic",
            methods,
            missing,
            memory=False,
        )


def _show() -> None:
    """Run ``derive show`` in a fresh process, its import included."""
    subprocess.run(
        [sys.executable, "-m", "derive.cli", "show", "post", "--sublayer", "causal-attention",
         "--steps"],
        capture_output=True, check=True,
    )  # fmt: skip


def _entries(block: sp.Basic, d: int) -> None:
    """Differentiate entry by entry at width d."""
    forget()
    y = explicit(block, {symbols.d: d, symbols.f: HIDDEN})
    states = [s for s in y.free_symbols if s.name.startswith("x_")]
    y.jacobian(sorted(states, key=lambda s: s.name))


def _tensorgrad(name: str, limit: float) -> tuple[float | None, str]:
    """Time tensorgrad in a process of its own, which is stopped at the limit."""
    if installed("tensorgrad") is None:
        return None, "not installed"
    if name == "attention":
        return None, "not run: no multi-head attention with norm is at hand there"
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TENSORGRAD, name],
            capture_output=True, text=True, timeout=limit, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"stopped after {time.perf_counter() - start:.0f} s"
    except subprocess.CalledProcessError as error:
        return None, f"fails: {error.stderr.strip().splitlines()[-1][:80]}"
    return float(done.stdout), ""
