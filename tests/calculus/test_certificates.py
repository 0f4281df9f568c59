"""Certificates of a derivation hold; those of a perturbed Jacobian do not."""

import pytest
import sympy as sp

import derive
from derive.calculus.atoms import Diag, Ones
from derive.calculus.certificates import certify_exact, certify_identity, certify_map
from derive.calculus.tensor import Product, Sum
from derive.errors import DomainError
from derive.symbols import d

x = derive.state("x")
BLOCKS = {
    f"{placement}-{norm}-{sublayer}": (placement, norm, sublayer)
    for placement in ("post", "pre", "sandwich", "deepnorm", "parallel")
    for norm in ("layernorm", "rmsnorm")
    for sublayer in ("abstract", "ffn", "gated", "causal-attention")
}


def derivation(name):
    return derive.derivation(derive.block(*BLOCKS[name]), x)


@pytest.mark.parametrize("name", BLOCKS)
def test_every_certificate_holds(name):
    certificates = derivation(name).check()
    assert all(c.holds for c in certificates)
    assert certificates[-1].kind.startswith("exact(d=3")
    assert any(c.kind == "identity" for c in certificates)


def rebuilt(expr, change):
    if isinstance(expr, Sum | Product):
        expr = expr.func(*[rebuilt(a, change) for a in expr.args])
    return change(expr)


def without(wanted):
    def change(expr):
        if isinstance(expr, Sum) and any(wanted(t) for t in expr.args):
            return expr.func(*[t for t in expr.args if not wanted(t)])
        return expr

    return change


def holds_ones(term):
    return isinstance(term, Product) and any(isinstance(a, Ones) for a in term.args)


def holds_xhat(term):
    return isinstance(term, Product) and any(str(a).startswith("xhat") for a in term.args)


def without_gain(expr):
    if not isinstance(expr, Product):
        return expr
    return expr.func(*[a for a in expr.args if not (isinstance(a, Diag) and "gain" in str(a))])


PERTURBED = {
    "sign": lambda j: -1 * j,
    "factor 1.01": lambda j: sp.Rational(101, 100) * j,
    "zero": lambda j: 0 * j,
    "no 11'/d": lambda j: rebuilt(j, without(holds_ones)),
    "no xhat xhat'/d": lambda j: rebuilt(j, without(holds_xhat)),
    "no gain": lambda j: rebuilt(j, without_gain),
    "d - 1 for d": lambda j: j.xreplace({1 / d: 1 / (d - 1)}),
    "no identity": lambda j: rebuilt(j, without(lambda t: getattr(t, "is_Identity", False))),
    "the other placement": None,
}


@pytest.mark.parametrize("perturbation", PERTURBED)
@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("sublayer", ["abstract", "ffn", "attention"])
def test_perturbed_jacobian_is_rejected(placement, sublayer, perturbation):
    block = derive.block(placement, "layernorm", sublayer)
    right = derive.jacobian(block, x)
    if perturbation == "the other placement":
        other = {"post": "pre", "pre": "post"}[placement]
        wrong = derive.jacobian(derive.block(other, "layernorm", sublayer), x)
    else:
        wrong = PERTURBED[perturbation](right)
    assert wrong != right
    assert not certify_exact(block, wrong, d=3, n=2).holds
    identity = certify_identity(block, wrong, x)
    assert identity is not None
    assert not identity.holds


def test_certificate_of_a_map_judges_a_claim():
    node = derive.LayerNorm()(x)
    assert certify_map(node).holds
    assert not certify_map(node, derive.jacobian(derive.RMSNorm()(x), x)).holds
    assert certify_map(derive.Attention()(x)) is None
    assert certify_map(derive.Sublayer("F")(x)) is None


def test_the_scope_is_stated():
    attention = derive.derivation(derive.block("pre", "layernorm", "attention"), x)
    assert attention.check()[-1].kind == "exact(d=3, n=2)"
    post = derive.block("post")
    certificate = certify_exact(post, derive.jacobian(post, x), d=4)
    assert str(certificate).startswith("[ok] exact(d=4):")


@pytest.mark.parametrize(("size", "tokens"), [(1, 2), (3, 0)])
def test_sizes_out_of_range_are_refused(size, tokens):
    with pytest.raises(DomainError, match="expected d >= 2 and n >= 1"):
        derive.derivation(derive.block("post"), x).check(d=size, n=tokens)
