"""Depth laws: known laws, solutions against recursions, and an independent Monte Carlo."""

import math

import numpy as np
import pytest
import sympy as sp

from derive.blocks.placements import MIXES, PLACEMENTS, STREAMS
from derive.errors import (
    DeriveError,
    DomainError,
    ParseError,
    UnknownNameError,
    UnknownNodeError,
    WeightError,
)
from derive.laws.components import Moments
from derive.laws.law import DepthLaw
from derive.laws.solve import solve, tidy
from derive.symbols import L, l

SINGLE = [name for name, entry in PLACEMENTS.items() if not entry.is_layer]
NEEDS_A_VALUE = {
    "mhc": {"a": 0.1, "b1": 1.0, "b2": 0.5, "c1": 0.5, "c2": 0.5},
}
PRE = sp.sqrt(3)


def gelu_moments():
    """f and b of a gelu sublayer: Gaussian integrals known in closed form."""
    f = sp.Rational(1, 3) + PRE / (6 * sp.pi)
    return f, sp.Rational(1, 3) + 2 * PRE / (9 * sp.pi)


# -- the laws that are known


KNOWN = {
    ("post", "ffn:relu"): (sp.S.One, sp.S.One),
    ("pre", "ffn:relu"): (1 + L / 2, 1 + L / 2),
    ("sandwich", "ffn:relu"): (1 + L, 1 + L),
    ("res-post", "ffn:relu"): (1 + L, 1 + L),
    ("lns", "ffn:relu"): (1 + sp.harmonic(L) / 2, 1 + sp.harmonic(L) / 2),
    ("deepnorm", "ffn:relu"): (sp.S.One, sp.S.One),
    ("keel", "ffn:relu"): (sp.S.One, sp.S.One),
    ("rezero", "ffn:relu"): (sp.S.One, sp.S.One),
    ("no-norm", "ffn:relu"): (sp.Rational(3, 2) ** L, sp.Rational(3, 2) ** L),
    ("scaled-residual", "ffn:relu"): (sp.Rational(3, 2), sp.Rational(3, 2)),
    ("admin", "ffn:relu"): (sp.S.One, sp.S.One),
}


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize(("placement", "sublayer"), KNOWN)
def test_known_laws_come_out(placement, sublayer, norm):
    found = DepthLaw(placement, norm, (sublayer,)).solution
    for got, want in zip(found.explicit(), KNOWN[placement, sublayer], strict=True):
        assert sp.simplify(got - want) == 0


def test_gelu_laws_hold_the_constants_of_the_integrals():
    f, b = gelu_moments()
    post = DepthLaw("post", sublayers=("ffn:gelu",)).solution
    assert sp.simplify(post.explicit()[1].subs(L, 1) - (1 + b) / (1 + f)) == 0
    assert str(post.gradient) == "r**L"
    pre = DepthLaw("pre", sublayers=("ffn:gelu",)).solution
    assert str(pre.forward) == "L*a + 1"
    assert {str(s): sp.simplify(e) for s, e in pre.where} == {
        "a": sp.simplify(f),
        "b": sp.simplify(b),
    }
    product = math.prod(1 + float(b) / (1 + float(f) * k) for k in range(9))
    assert pre.at(9)[1] == pytest.approx(product, rel=1e-12)


def test_uniform_attention_changes_the_gradient_by_1_by_1_over_n_or_by_n():
    n = 16
    law = DepthLaw("post", sublayers=("attention",), tokens=n)
    ratio = {
        (rho, r): law.predict(60, correlation=rho, gradient_correlation=r).gradient_ratio
        for rho in (0, 1)
        for r in (0, 1)
    }
    want = {(0, 0): 1, (1, 1): 1, (0, 1): n, (1, 0): 1 / n}
    assert ratio == {k: pytest.approx(v, rel=1e-9) for k, v in want.items()}


def test_a_decoder_on_fully_correlated_memory_halves_the_gradient_at_every_block():
    together = DepthLaw("N(x + C(x))", sublayers=("attention",), tokens=8, memory=Moments(1.0, 1.0))
    assert together.predict(12).gradient_ratio == pytest.approx(0.5**12, rel=1e-12)
    apart = DepthLaw("N(x + C(x))", sublayers=("attention",), tokens=8)
    assert apart.predict(12).gradient_ratio == pytest.approx((1 + 1 / 8) ** -12, rel=1e-12)


@pytest.mark.parametrize("scale", [0.01, 0.3, 100.0])
def test_a_norm_behind_the_branch_makes_the_law_independent_of_its_scale(scale):
    def laws(name):
        equation = name.replace("F(", "alpha*F(")
        return DepthLaw(equation, values={"alpha": scale}).predict(24)

    peri, pre = laws("x + N2(F(N1(x)))"), laws("x + F(N(x))")
    assert (peri.growth, peri.gradient_ratio) == (pytest.approx(25), pytest.approx(25))
    assert pre.growth == pytest.approx(1 + 12 * scale**2)


def test_pre_norm_gradients_are_the_variances():
    found = DepthLaw("pre").predict(24)
    v = np.array([m.v for m in found.forward])
    g = np.array([m.v for m in found.gradient])
    assert np.allclose(v, 1 + np.arange(25) / 2, rtol=1e-14)
    assert np.allclose(g, v[-1] / v, rtol=1e-13)


# -- solutions against the recursion in numbers


# The solution of ngpt with gelu holds moments at mean square 1/d: long, and slow to evaluate.
SOLVED = [
    (placement, sublayer)
    for placement in SINGLE
    for sublayer in ("ffn:relu", "ffn:gelu")
    if (placement, sublayer) != ("ngpt", "ffn:gelu")
]


@pytest.mark.parametrize(("placement", "sublayer"), SOLVED)
def test_solutions_meet_the_recursion(placement, sublayer):
    law = DepthLaw(placement, sublayers=(sublayer,))
    if law.solution is None:
        assert placement in ("fixup", "no-norm", "skipinit")  # gelu and powers of an open v
        return
    for layers in (1, 2, 11):
        forward, gradient = law.solution.at(layers)
        found = law.predict(layers)
        assert found.growth == pytest.approx(forward, rel=1e-10)
        if gradient is not None:
            assert found.gradient_ratio == pytest.approx(gradient, rel=1e-10)


@pytest.mark.parametrize(
    "placement", ["post", "pre", "sandwich", "lns", "deepnorm", "normed-residual"]
)
def test_the_symbolic_recursion_is_the_numeric_one(placement):
    law = DepthLaw(placement, sublayers=("ffn:gelu",))
    phi, gain = law.recursion
    v, value, product = sp.Symbol("v", positive=True), sp.S.One, 1.0
    for number in range(1, 6):
        at = {v: value, l: number, L: 5}
        product *= float(gain.subs(at))
        value = sp.N(phi.subs(at), 30)
    found = law.predict(5)
    assert found.growth == pytest.approx(float(value), rel=1e-12)
    assert found.gradient_ratio == pytest.approx(product, rel=1e-12)


def test_a_wrong_kernel_is_told_from_the_right_one():
    v = sp.Symbol("v", positive=True)
    half = sp.Rational(1, 2)
    right = solve(v + half, 1 + half / v, v, sp.S.One)
    for phi, gain in ((v + half, 1 + 1 / v), (v + 1, 1 + half / v), (v, 1 + half / v)):
        wrong = solve(phi, gain, v, sp.S.One)
        assert wrong is None or wrong.at(12) != pytest.approx(right.at(12), rel=0.05)


def test_constants_are_reduced():
    f, b = gelu_moments()
    root = sp.sqrt(L)
    assert tidy(root / (root + f) + f / (root + f)) == 1
    assert tidy(root / (root + f) + b / (root + f)) != 1
    assert tidy(sp.Rational(1, 4) + (1 + PRE) / 8 - PRE / 8) == sp.Rational(3, 8)


# -- every placement


@pytest.mark.parametrize(
    "sublayers",
    [("ffn:relu",), ("gated",), ("attention", "ffn:gelu"), ("causal-attention", "ffn:silu")],
)
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("placement", [*PLACEMENTS, *STREAMS, *MIXES])
def test_every_placement_has_a_law(placement, norm, sublayers):
    law = DepthLaw(placement, norm, sublayers, tokens=4, values=NEEDS_A_VALUE.get(placement))
    found = law.predict(6, correlation=0.2, gradient_correlation=0.7)
    assert len(found.forward) == len(found.gradient) == 7
    for moments in (*found.forward, *found.gradient):
        assert 0 <= moments.v < math.inf
        assert abs(moments.c) <= moments.v * (1 + 1e-12)


@pytest.mark.parametrize("placement", NEEDS_A_VALUE)
def test_what_is_profiled_is_asked_for(placement):
    with pytest.raises(DeriveError, match="no value for the scalar"):
        DepthLaw(placement).predict(4)


def test_admin_profiles_the_weights_of_its_shortcut():
    """omega_l^2 = 1 + the variances of the branches before: the stream of pre-norm."""
    law = DepthLaw("admin", sublayers=("ffn:gelu",))
    found = law.predict(9)
    weights = [float(block.scalars["omega"]) for block, _ in found.blocks]
    f, b = (float(one) for one in gelu_moments())
    assert weights == pytest.approx([math.sqrt(1 + f * k) for k in range(9)], rel=1e-12)
    assert found.gradient_ratio == pytest.approx(
        math.prod((1 + f * k + b) / (1 + f * k + f) for k in range(9)), rel=1e-12
    )
    given = DepthLaw("admin", sublayers=("ffn:gelu",), values={"omega": 1.0}).predict(9)
    post = DepthLaw("post", sublayers=("ffn:gelu",)).predict(9)
    assert given.gradient_ratio == pytest.approx(post.gradient_ratio)
    assert found.gradient_ratio != pytest.approx(post.gradient_ratio, rel=1e-2)
    assert DepthLaw("admin", sublayers=("ffn:gelu",), start=2).solution is None
    turns = DepthLaw("admin", sublayers=("attention", "ffn:relu"), tokens=4).predict(6)
    assert float(turns.blocks[-1][0].scalars["omega"]) > float(turns.blocks[0][0].scalars["omega"])


def test_a_law_starts_from_the_mean_square_of_the_embeddings():
    for placement, want in (("pre", (4 + L / 2, 1 + L / 8)), ("post", (1, sp.Rational(1, 4)))):
        law = DepthLaw(placement, start=4)
        assert law.solution.explicit() == want
        found = law.predict(6)
        assert (found.forward[-1].v, found.gradient_ratio) == pytest.approx(law.solution.at(6))
    assert DepthLaw("pre", start=4).predict(6, start=1).growth == pytest.approx(4)
    with pytest.raises(DomainError, match="start: expected above 0, got 0"):
        DepthLaw("pre", start=0)


# -- refusals


@pytest.mark.parametrize(
    ("law", "error", "match"),
    [
        (
            {"sublayers": ("causal-attention",), "tokens": 10**5},
            DomainError,
            "tokens: expected at most 5773 behind a causal mask at 3 layers, got 100000",
        ),
        ({"sublayers": ("abstract",)}, UnknownNodeError, "whose moments are known"),
        ({"norm": "dyt"}, UnknownNodeError, "norm: expected LayerNorm"),
        ({"norm": "batchnorm"}, UnknownNodeError, "norm: expected LayerNorm"),
        ({"norm": "nonsense"}, UnknownNameError, "norm"),
        ({"sublayers": ("nonsense",)}, UnknownNameError, "sublayer"),
        ({"init": "nonsense"}, UnknownNameError, "init: expected one of lecun"),
        ({"placement": "nonsense"}, UnknownNameError, "placement"),
        ({"placement": "x + ("}, ParseError, "cannot read"),
        ({"tokens": 0}, DomainError, "tokens: expected at least 1, got 0"),
        (
            {"memory": Moments(1.0, -0.5), "tokens": 4},
            DomainError,
            "memory: expected v > 0 and a corr",
        ),
        ({"memory": Moments(0.0, 0.0)}, DomainError, "memory: expected v > 0"),
        ({"sublayers": ()}, DomainError, "sublayers: expected at least one"),
        ({"placement": "x + alpha*F(x)"}, WeightError, "no value for the scalar alpha"),
    ],
)
def test_what_has_no_law_is_refused(law, error, match):
    with pytest.raises(error, match=match):
        DepthLaw(**{"placement": "pre", **law}).predict(3)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"correlation": 1.5}, "correlation: expected -0.3333 to 1 for 4 tokens, got 1.5"),
        ({"gradient_correlation": -0.5}, "gradient_correlation: expected -0.3333"),
        ({"correlation": math.nan}, "correlation"),
        ({"layers": 0}, "layers: expected at least 1, got 0"),
        ({"width": 2}, "width: expected at least 3, got 2"),
        ({"start": 0.0}, "start: expected above 0"),
        ({"start": math.inf}, "start: expected above 0"),
    ],
)
def test_numbers_out_of_range_are_refused(options, match):
    with pytest.raises(DomainError, match=match):
        DepthLaw("pre", tokens=4).predict(**{"layers": 3, **options})


# -- an independent Monte Carlo: written out in NumPy, no code of the toolkit


def normed_back(h, s):
    """Transposed Jacobian of LayerNorm at eps = 0."""
    return lambda g: (g - g.mean() - h * np.mean(g * h)) / s


def simulated(placement, layers, width, seeds):
    """Log growth and log gradient ratio of relu stacks, over seeds."""
    rows = []
    for seed in range(seeds):
        rng = np.random.default_rng((seed, 7))
        x = rng.normal(size=width)
        x *= np.sqrt(width / (x @ x))
        tape = []

        def norm(z, tape=tape):
            c = z - z.mean()
            s = np.sqrt(np.mean(c**2))
            tape.append(normed_back(c / s, s))
            return c / s

        for number in range(1, layers + 1):
            a = rng.normal(size=(width, width)) / np.sqrt(width)
            b = rng.normal(size=(width, width)) / np.sqrt(width)
            tape.append([])
            inside = tape[-1]
            z = x if placement == "post" else norm(x, inside)
            if placement == "lns":
                z = z / np.sqrt(number)
            on = a @ z > 0
            out = b @ ((a @ z) * on)
            if placement == "sandwich":
                out = norm(out, inside)

            def back(g, a=a, b=b, on=on, inside=inside, number=number):
                if placement == "post":
                    g = inside[0](g)
                    return g + a.T @ (on * (b.T @ g))
                h = inside[1](g) if placement == "sandwich" else g
                h = a.T @ (on * (b.T @ h))
                return g + inside[0](h / np.sqrt(number) if placement == "lns" else h)

            x = norm(x + out, inside) if placement == "post" else x + out
            tape[-1] = back
        g = start = rng.normal(size=width)
        for back in reversed(tape):
            g = back(g)
        rows.append((np.log(x @ x / width), np.log(g @ g / (start @ start))))
    return np.array(rows)


@pytest.mark.parametrize("placement", ["post", "pre", "sandwich", "lns"])
def test_stacks_written_out_in_numpy_do_what_the_law_says(placement):
    """Four standard errors and a finite-width share of L/d; a law without its branch is out."""
    layers, width, seeds = 8, 128, 40
    logs = simulated(placement, layers, width, seeds)
    found = DepthLaw(placement).predict(layers)
    wrong = DepthLaw(placement, sublayers=("ffn:tanh",)).predict(layers)
    for k, (right, other) in enumerate(
        ((found.growth, wrong.growth), (found.gradient_ratio, wrong.gradient_ratio))
    ):
        spread = logs[:, k].var(ddof=1)
        mean = logs[:, k].mean() + spread / 2
        slack = 4 * math.sqrt(spread / seeds + spread**2 / (2 * seeds)) + layers / width
        assert abs(mean - math.log(right)) < slack
        if placement != "post" and not (placement == "sandwich" and k == 0):
            assert abs(mean - math.log(other)) > abs(mean - math.log(right))


def test_post_norm_at_the_width_and_depth_that_were_measured():
    """d = 256, L = 24: near 1, where the pure skip path is (2/3)^24, 6e-5."""
    logs = simulated("post", 24, 256, 12)[:, 1]
    ratio = np.exp(logs.mean() + logs.var(ddof=1) / 2)
    assert DepthLaw("post").predict(24).gradient_ratio == pytest.approx(1)
    assert 0.5 < ratio < 2
    assert ratio > 1e4 * (2 / 3) ** 24


@pytest.mark.parametrize(
    ("placement", "forward"), [("peri", "L + 1"), ("post", "1"), ("res-post", "L + 1")]
)
def test_sublayers_in_turn_share_a_forward_law_where_each_does_the_same(placement, forward):
    law = DepthLaw(placement, sublayers=("attention", "ffn:relu"), tokens=4)
    assert [one.sublayers for one in law.turns] == [("attention",), ("ffn:relu",)]
    assert str(law.solution.forward) == forward
    assert law.solution.gradient is None
    predicted = law.predict(6, correlation=0.3)
    assert law.solution.at(6)[0] == pytest.approx(predicted.forward[-1].v, rel=1e-12)


def test_sublayers_in_turn_have_no_forward_law_where_they_differ():
    law = DepthLaw("pre", sublayers=("attention", "ffn:relu"), tokens=4)
    assert len(law.turns) == 2
    assert law.solution is None
