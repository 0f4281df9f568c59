"""Every step says what it does: both sides agree, the rules have names, the end is the answer."""

import numpy as np
import pytest
import sympy as sp

import derive
from derive.blocks.attention import CrossAttention
from derive.calculus.differential import Differential, Differentiator, ScalarDifferential
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply, JacobianOf
from derive.calculus.normal_form import equal
from derive.calculus.steps import RULES, Step
from derive.calculus.tensor import product

x = derive.state("x")
PLAIN = {
    f"{placement}-{norm}-{sublayer}": derive.block(placement, norm, sublayer)
    for placement in ("post", "pre", "sandwich", "deepnorm", "normed-residual")
    for norm in ("layernorm", "rmsnorm")
    for sublayer in ("abstract", "ffn", "gated")
}
INDEXED = {
    "attention": derive.block("post", "layernorm", "attention"),
    "cross": x + CrossAttention(label="c")(x),
    "norms": derive.Attention(query_norm=derive.RMSNorm("q"), softcap=3)(x),
}


class Opened:
    """Replaces every differential by what it is in terms of dx, from definitions alone."""

    def __init__(self):
        self.memo = {}

    def differential(self, of):
        if of == x:
            return Differential(x)
        if of in self.memo:
            return self.memo[of]
        self.memo[of] = out = self._differential(of)
        return out

    def _differential(self, of):
        if isinstance(of, Apply):
            body = of.body
            if body is None:
                return JacobianOf(of.mapping, of.argument) * self.differential(of.argument)
            return self.differential(body.output)
        inside = of.definition if isinstance(of, Let | ScalarLet) else of

        def is_atom(e):
            return e == x or (e != of and isinstance(e, Let | ScalarLet | Apply))

        terms = [
            product([t.coefficient, self.differential(t.atom)])
            for t in Differentiator(is_atom)(inside).terms
        ]
        return sum(terms[1:], terms[0]) if terms else sp.ZeroMatrix(*inside.shape)

    def __call__(self, expr):
        if isinstance(expr, Differential | ScalarDifferential):
            return self.differential(expr.args[0])
        if not expr.args or isinstance(expr, Let | ScalarLet | Apply | JacobianOf):
            return expr
        return expr.func(*[self(a) if isinstance(a, sp.Expr) else a for a in expr.args])


@pytest.mark.parametrize("name", PLAIN)
def test_both_sides_of_every_step_agree(name):
    opened = Opened()
    for step in derive.derivation(PLAIN[name], x).steps:
        assert equal(opened(step.before), opened(step.after)), str(step)


def test_a_corrupted_step_is_seen():
    opened = Opened()
    steps = derive.derivation(PLAIN["post-layernorm-abstract"], x).steps
    changed = [s for s in steps if s.rule != "read off"]
    for step in changed:
        assert not equal(opened(step.before), opened(sp.Rational(11, 10) * step.after)), str(step)


@pytest.mark.parametrize("name", [*PLAIN, *INDEXED])
def test_rules_have_names_and_reasons(name):
    D = derive.derivation({**PLAIN, **INDEXED}[name], x)
    for step in D.steps:
        assert isinstance(step, Step)
        assert step.why
        for rule in step.rule.split(", "):
            known = rule in RULES or rule.startswith("definition of ")
            assert known or rule == "deviations sum to zero"
        assert step.before != step.after
        assert str(step).endswith(f"[{step.rule}]")


@pytest.mark.parametrize("name", [*PLAIN, *INDEXED])
def test_each_step_begins_where_the_last_one_ended(name):
    D = derive.derivation({**PLAIN, **INDEXED}[name], x)
    last = {}
    for step in D.steps:
        if step.rule == "read off":
            continue
        begins = last.get(step.of, Differential(step.of))
        assert step.before == begins
        last[step.of] = step.after


@pytest.mark.parametrize("name", PLAIN)
def test_the_last_step_is_the_answer(name):
    D = derive.derivation(PLAIN[name], x)
    final = D.steps[-1]
    assert final.rule == "read off"
    assert final.after == D.jacobian * Differential(x)


def test_the_norm_is_derived_and_not_assumed():
    D = derive.derivation(derive.LayerNorm()(x), x)
    of = [str(s.of) for s in D.steps]
    assert [q for k, q in enumerate(of) if q not in of[:k]][:4] == ["mean", "var", "s", "xhat"]
    rules = {s.rule for s in D.steps}
    assert {"deviations sum to zero", "definition of s", "definition of xhat", "collect"} <= rules
    assert any("quotient" in s.rule for s in D.steps)


@pytest.mark.parametrize("name", INDEXED)
def test_attention_comes_from_the_quotient_rule(name):
    rules = [s.rule for s in derive.derivation(INDEXED[name], x).steps]
    for rule in ("quotient", "sum inside", "inner product"):
        assert any(rule in r for r in rules)
    assert np.unique(rules).size > 5
