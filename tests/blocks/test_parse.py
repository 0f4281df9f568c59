"""Equations as text: read as they are meant, refused where they are not equations."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derive
from derive.blocks.parse import LONGEST, parse_block
from derive.calculus.let import Let
from derive.errors import DeriveError, ParseError, UnknownNameError

x = derive.state("x")
N, F = derive.LayerNorm(), derive.Sublayer("F")
MAPS = {"N": N, "F": F, "N1": derive.LayerNorm(1)}

READ = {
    "x": x,
    "N(x + F(x))": N(x + F(x)),
    " x+F( N(x) ) ": x + F(N(x)),
    "-x - -F(x)": F(x) - x,
    "alpha*x + F(x)*beta": None,
    "x/2 + 0.5*F(x)": (x + F(x)) / 2,
    "(1 - alpha)*x": None,
    "2*(x + F(x))": 2 * (x + F(x)),
}


@pytest.mark.parametrize("text", READ)
def test_reads(text):
    found = parse_block(text, MAPS)
    assert found.shape == x.shape
    if READ[text] is not None:
        from derive.calculus.normal_form import equal

        assert equal(found, READ[text])


@pytest.mark.parametrize("text", ["N(x + F(x))", "x + F(N(x))", "x + N(F(N(x)))"])
def test_what_is_printed_is_read_again(text):
    assert parse_block(str(parse_block(text, MAPS)), MAPS) == parse_block(text, MAPS)


def test_statements_name_intermediate_quantities():
    found = parse_block("h = x + F(N(x)); h + F(N1(h))", MAPS)
    (h,) = [a for a in found.args if isinstance(a, Let)]
    assert h == derive.let("h", x + F(N(x)))


def test_constant_vectors_multiply_entry_by_entry():
    found = parse_block("lam*F(x) + x*lam", MAPS, vectors=["lam"])
    assert str(found) == "diag(lam) F(x) + diag(lam) x"


REFUSED = {
    "": "expected an equation such as",
    "   ": "expected an equation such as",
    "x +": "cannot read",
    "x x": "cannot read",
    "N(x": "cannot read",
    "N": "the map N applied to something",
    "2": "expected a vector, got the scalar 2",
    "x + 1": "cannot add the scalar 1",
    "x * x": "non-zero scalar",
    "x / 0": "non-zero scalar",
    "x / x": "non-zero scalar",
    "x ** 2": r"non-zero scalar",
    "G(x)": "expected one of the maps F, N, N1",
    "z + x": "expected one of x, alpha, beta",
    "N(2)": "a vector as argument of N",
    "N(x, x)": "application of a map to one argument",
    "N(x=x)": "application of a map to one argument",
    "F(x)(x)": "application of a map to one argument",
    "x if x else x": "application of a map to one argument",
    "True*x": "application of a map to one argument",
    "h = x": "cannot read|expected",
    "x = N(x); x": "is taken",
    "h == x; x": "before ';'",
    "; x": "before ';'",
    "h = 2; h": "expected a vector",
    "x + \N{GREEK SMALL LETTER ALPHA}*x": "ASCII",
    "1e999*x": "number below",
}
HOSTILE = [
    "__import__('os').system('true')",
    "(lambda: x)()",
    "[x for x in (1,)]",
    "x.__class__",
    "f'{x}'",
    "x[0]",
    "exec('1')",
    "open('/etc/passwd')",
    "(x := x)",
    "*x",
    "yield x",
    "N(*x)",
]


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_a_reason(text):
    with pytest.raises(ParseError, match=REFUSED[text]):
        parse_block(text, MAPS)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_is_evaluated(text):
    with pytest.raises(ParseError, match="block"):
        parse_block(text, MAPS)


HUGE = ["(" * 400 + "x" + ")" * 400, "-" * 5000 + "x", "x" + "+x" * 5000, "F(" * 900 + "x"]


@pytest.mark.parametrize("text", HUGE, ids=["parentheses", "signs", "sum", "calls"])
def test_huge_text_is_refused(text):
    with pytest.raises(ParseError, match="block") as caught:
        parse_block(text, MAPS)
    assert len(str(caught.value)) < 2 * LONGEST


@given(st.text(max_size=60) | st.text(alphabet="xNF()+-*/ =;.12a_", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_a_block_or_an_own_error(text):
    with contextlib.suppress(DeriveError):
        parse_block(text, MAPS)


# -- names


def test_names_and_equations_give_the_same_block():
    assert derive.block("post") == derive.block("N(x + F(x))")
    assert derive.block("POST", "RMSNorm") == derive.block("N(x + F(x))", derive.RMSNorm())


UNKNOWN = {
    "placement": (lambda: derive.block("postt"), "placement: expected one of post, pre, .*'postt'"),
    "norm": (lambda: derive.block("post", "laynorm"), "norm: expected one of layernorm, rmsnorm"),
    "sublayer": (lambda: derive.sublayer("mlp"), "sublayer: expected one of abstract, ffn"),
    "activation": (lambda: derive.sublayer("ffn:gelo"), "activation: expected one of relu, gelu"),
    "activation of attention": (lambda: derive.sublayer("attention:relu"), "takes none"),
    "option": (lambda: derive.Attention(heads=4), "attention: expected options causal"),
    "layer": (lambda: derive.layer("middle"), "placement: expected one of"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_names_list_the_known_ones(case):
    action, message = UNKNOWN[case]
    with pytest.raises(UnknownNameError, match=message):
        action()


def test_state_of_one_feature_is_refused():
    with pytest.raises(DeriveError, match="width: expected an integer >= 2 or a symbol, got 1"):
        derive.state("x", 1)


@pytest.mark.parametrize("norm", [derive.LayerNorm, derive.RMSNorm])
@pytest.mark.parametrize("eps", [-1, 1j, x], ids=["negative", "complex", "vector"])
def test_eps_must_be_a_non_negative_scalar(norm, eps):
    with pytest.raises(DeriveError, match="eps"):
        norm(eps=eps)


def test_layer_takes_as_many_norms_as_it_has():
    three = tuple(derive.LayerNorm(k) for k in range(3))
    with pytest.raises(DeriveError, match="norms: placement post has 2 in a layer, got 3"):
        derive.layer("post", three)


def test_a_layer_is_two_blocks_in_a_row():
    """Its Jacobian is the product of the blocks' Jacobians, kept factored."""
    D = derive.derivation(derive.layer("post"), x)
    assert str(D.jacobian).count("(I + ") == 2
    assert [v.name for v in D.lets if v.name in ("y_A", "u_1", "u_2")]
    assert all(c.holds for c in D.check())
