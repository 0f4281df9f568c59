"""Text: the Jacobian, the definitions, every step; scalar formulas mean what they say."""

from __future__ import annotations

import re

import pytest
import sympy as sp
from sympy.parsing.sympy_parser import (
    implicit_multiplication_application,
    parse_expr,
    standard_transformations,
)

import derive
from derive.blocks.activations import ACTIVATIONS
from derive.calculus.printing import text
from derive.render.chains import chains, defined, output_of
from derive.render.text import derivation_text


def test_block_jacobian_definitions(D):
    shown = derivation_text(D)
    first, second, *_ = shown.splitlines()
    assert re.fullmatch(rf"y +=\ {re.escape(text(D.block))}", first)
    assert re.fullmatch(rf"dy/dx +=\ {re.escape(text(D.jacobian))}", second)
    for name, value in defined(D):
        assert re.search(rf"^  {re.escape(text(name))} += {re.escape(text(value))}$", shown, re.M)
    assert ("dy[i]/dx[j]" in shown) == D.mixes_tokens
    assert "numerator layout: dy = J dx" in shown


def test_steps_are_numbered_and_complete(D):
    shown = derivation_text(D, steps=True)
    numbers = [int(n) for n in re.findall(r"^ +(\d+)\. ", shown, re.M)]
    assert numbers == list(range(1, len(D.steps) + 1))
    for step in D.steps[:-1]:
        assert f"= {text(step.after)}\n" in shown
        assert f"[{step.rule}]" in shown
    assert f"dy/dx = {text(D.jacobian)}\n" in shown


def test_chains_join_up(D):
    for chain in chains(D):
        assert all(a.after == b.before for a, b in zip(chain.steps, chain.steps[1:], strict=False))
    assert chains(D)[-1].of == output_of(D)
    assert sum(len(c.steps) + bool(c.reads_off) for c in chains(D)) == len(D.steps)


def test_terminal_friendly(D):
    shown = derivation_text(D, steps=True)
    assert shown.isascii()
    assert all(line == line.rstrip() for line in shown.splitlines())
    for wrong in ("**", "Kronecker", "--", "+ -", "- -", "None", "Dummy", "  []", "()"):
        assert wrong not in shown


@pytest.mark.parametrize("eps", [0, sp.Rational(1, 10**5), sp.Symbol("e", positive=True)], ids=str)
@pytest.mark.parametrize("gain", [True, False])
def test_what_is_dropped_is_said(eps, gain):
    N = derive.LayerNorm(eps=eps, gain=gain, bias=False)
    shown = derivation_text(derive.derivation(derive.block("post", N), derive.state("x")))
    assert ("gain kept" in shown) == gain
    assert "no bias" in shown
    assert {"0": "eps = 0,", "1/100000": "eps = 1e-05,", "e": "every e > 0"}[str(eps)] in shown


SCALARS = [
    *(a.derivative(k)(sp.Symbol("t", real=True)) for a in ACTIVATIONS.values() if not a.is_abstract
      for k in (0, 1) if not a.name.startswith("relu")),
    *map(sp.sympify, ("1", "-1", "1/(1+exp(-t))", "t - 1", "1 - t", "-t/2", "2/(3*sqrt(t))",
                      "(1 + t)*(2 - t)/(3*t)", "-(1+t)**2", "t**3/7", "sqrt(t+1)/t", "3*(1+t)",
                      "1/t**2 - 1/t", "exp(-t)*t", "(t**2)**(-1)", "t**(3/2)",
                      "1/t**(5/2)", "t**(1/3)", "2**t")),
]  # fmt: skip


@pytest.mark.parametrize("formula", SCALARS, ids=str)
def test_scalar_text_means_the_formula(formula):
    """Read back what is printed and compare the values: a dropped 1 or bracket shows."""
    t = sp.Symbol("t")
    names = {n: getattr(sp, n) for n in ("erf", "tanh", "exp", "sqrt")} | {
        "t": t,
        "sigmoid": lambda v: 1 / (1 + sp.exp(-v)),
        "normal_cdf": lambda v: (1 + sp.erf(v / sp.sqrt(2))) / 2,
    }
    rules = (*standard_transformations, implicit_multiplication_application)
    back = parse_expr(text(formula).replace("^", "**"), names, rules)
    for value in (sp.Rational(7, 5), sp.Rational(3, 10)):
        expected = (
            formula.subs(next(iter(formula.free_symbols)), value)
            if formula.free_symbols
            else formula
        )
        assert abs(sp.N(back.subs(t, value)) - sp.N(expected)) < 1e-12
