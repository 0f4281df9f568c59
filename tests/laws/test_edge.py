"""Edges, update amplification, spread and exponents: closed forms by hand, and stacks in NumPy."""

import math

import numpy as np
import pytest
import sympy as sp
from scipy.special import erf

from derive.blocks.placements import MIXES, PLACEMENTS, STREAMS
from derive.errors import DomainError, UnknownNameError, UnknownNodeError
from derive.laws.edge import ScaledLaw, critical_scale, residual_scaled
from derive.laws.exponents import exponent, jensen_gap, measured_gap
from derive.laws.law import DepthLaw
from derive.laws.spread import log_spread
from derive.laws.update import update_amplification
from derive.symbols import L

pytestmark = pytest.mark.slow

NEEDS_A_VALUE = {
    "admin": {"omega": 1.5},
    "mhc": {"a": 0.1, "b1": 1.0, "b2": 0.5, "c1": 0.5, "c2": 0.5},
}
BLOCKS = [name for name, entry in PLACEMENTS.items() if not entry.is_layer and name != "admin"]
GELU_F = 1 / 3 + math.sqrt(3) / (6 * math.pi)
GELU_B = 1 / 3 + 2 * math.sqrt(3) / (9 * math.pi)
RELU = DepthLaw("post")
GELU = DepthLaw("post", sublayers=("ffn:gelu",))


# -- stacks written out in NumPy, no code of the toolkit


def stack(placement, activation, layers, width, hidden, rng):
    """Matrices of every block, and a function from matrices and x to x_L and the pullback."""

    def acted(z):
        if activation == "relu":
            return np.maximum(z, 0), (z > 0) * 1.0
        cdf = (1 + erf(z / np.sqrt(2))) / 2
        return z * cdf, cdf + z * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

    def norm(z):
        c = z - z.mean()
        s = np.sqrt(np.mean(c**2))
        h = c / s
        return h, lambda g: (g - g.mean() - h * np.mean(g * h)) / s

    def run(matrices, x):
        tape = []
        for a, b in matrices:
            before = norm(x) if placement == "pre" else (x, lambda g: g)
            value, slope = acted(a @ before[0])
            total = x + b @ value
            after = norm(total) if placement == "post" else (total, lambda g: g)

            def back(g, a=a, b=b, slope=slope, inner=before[1], outer=after[1]):
                g = outer(g)
                return g + inner(a.T @ (slope * (b.T @ g)))

            x = after[0]
            tape.append(back)

        def pullback(g):
            for back in reversed(tape):
                g = back(g)
            return g

        return x, pullback

    drawn = [
        (
            rng.normal(size=(hidden, width)) / np.sqrt(width),
            rng.normal(size=(width, hidden)) / np.sqrt(hidden),
        )
        for _ in range(layers)
    ]
    return drawn, run


def start(width, rng):
    x = rng.normal(size=width)
    return x * np.sqrt(width / (x @ x))


# -- residual sums


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("post", "N(s_skip*x + s_branch*F(x))"),
        ("pre", "s_skip*x + s_branch*F(N(x))"),
        ("sandwich", "s_skip*x + s_branch*N_2(F(N_1(x)))"),
        ("ngpt", "N_2(s_skip*x + s_branch*diag(lam)*(g - x))"),
    ],
)
def test_the_factors_stand_at_the_residual_sum(name, want):
    found = str(residual_scaled(DepthLaw(name).blocks_of(1, 1)["x"]))
    assert found.replace(" ", "") == want.replace("*", "").replace(" ", "")


@pytest.mark.parametrize("name", [*PLACEMENTS, *STREAMS, *MIXES])
def test_a_scale_of_1_changes_nothing_and_another_does(name):
    law = DepthLaw(
        name, sublayers=("attention", "ffn:gelu"), tokens=3, values=NEEDS_A_VALUE.get(name)
    )
    plain = law.predict(4).gradient_ratio
    for knob in ("skip", "branch", "init"):
        one = ScaledLaw.of(law, knob, 1.0).predict(4).gradient_ratio
        assert one == pytest.approx(plain, rel=1e-12)
    other = ScaledLaw.of(law, "branch", 1.5).predict(4)
    if name not in ("rezero", "layerscale"):
        assert (other.growth, other.gradient_ratio) != pytest.approx(
            (law.predict(4).growth, plain), rel=1e-6
        )


def test_scaled_laws_are_the_laws_of_the_scaled_equations():
    for name, equation in (
        ("post", "N(alpha*x + beta*F(x))"),
        ("pre", "alpha*x + beta*F(N(x))"),
        ("sandwich", "alpha*x + beta*N2(F(N1(x)))"),
    ):
        want = DepthLaw(equation, values={"alpha": 1.3, "beta": 0.7}).predict(7)
        law = ScaledLaw(name, skip=1.3, branch=0.7).predict(7)
        assert law.growth == pytest.approx(want.growth, rel=1e-12)
        assert law.gradient_ratio == pytest.approx(want.gradient_ratio, rel=1e-12)


# -- critical scales


def by_hand(name, knob, layers, ratio):
    """Critical scales from M1 and M2 by algebra on paper."""
    q = ratio ** (1 / layers)
    return {
        ("post-gelu", "skip"): lambda: math.sqrt((GELU_B - GELU_F * q) / (q - 1)),
        ("post-gelu", "branch"): lambda: math.sqrt((q - 1) / (GELU_B - GELU_F * q)),
        ("pre", "branch"): lambda: math.sqrt(2 * (ratio - 1) / layers),
        ("sandwich", "branch"): lambda: math.sqrt((ratio - 1) / layers),
        ("no-norm", "branch"): lambda: math.sqrt(2 * (q - 1)),
        ("lns", "branch"): lambda: math.sqrt(
            2 * (ratio - 1) / sum(1 / k for k in range(1, layers + 1))
        ),
    }[name, knob]()


HELD = [
    ("post-gelu", "skip"),
    ("post-gelu", "branch"),
    ("pre", "branch"),
    ("sandwich", "branch"),
    ("no-norm", "branch"),
    ("lns", "branch"),
]


@pytest.mark.parametrize(("name", "knob"), HELD)
@pytest.mark.parametrize(("layers", "ratio"), [(8, 1.15), (48, 1.5)])
def test_critical_scales_are_those_of_the_algebra(name, knob, layers, ratio):
    law = GELU if name == "post-gelu" else DepthLaw(name)
    found = critical_scale(law, knob, layers, target=ratio)
    assert found.verdict == "scale"
    assert found.scale == pytest.approx(by_hand(name, knob, layers, ratio), rel=1e-8)
    assert found.value == pytest.approx(ratio, rel=1e-8)
    named = {str(s): s for s in found.formula.free_symbols}
    at = found.formula.subs({L: layers, named["R"]: ratio})
    assert float(at) == pytest.approx(found.scale, rel=1e-8)


def test_the_scale_found_is_the_edge():
    found = critical_scale(DepthLaw("pre", sublayers=("ffn:gelu",)), "branch", 96, target=1.5)
    for factor, inside in ((0.99, True), (1.01, False)):
        law = ScaledLaw("pre", sublayers=("ffn:gelu",), branch=found.scale * factor)
        assert (law.predict(96).gradient_ratio <= 1.5) is inside
    assert found.power == pytest.approx(-0.5, abs=0.01)


@pytest.mark.parametrize("name", ["sandwich", "res-post"])
def test_a_norm_behind_the_branch_hides_the_init_but_not_its_own_gain(name):
    assert critical_scale(DepthLaw(name), "init", 24).verdict == "no effect"
    assert critical_scale(DepthLaw(name), "branch", 24).verdict == "scale"
    assert critical_scale(DepthLaw("pre"), "init", 24).verdict == "scale"


def test_what_holds_already_is_left_alone():
    found = critical_scale(RELU, "skip", 192)
    assert (found.verdict, found.scale) == ("holds", 1.0)
    assert found.value == pytest.approx(1.0)


def test_a_pre_norm_stack_cannot_be_held_tightly_by_its_skip():
    assert critical_scale(DepthLaw("pre"), "skip", 48, target=1.01).verdict == "out of reach"


def test_a_stack_beyond_a_float_has_an_edge_as_well():
    law = DepthLaw("no-norm")
    with pytest.raises(DomainError, match="expected fewer"):
        law.predict(1000)
    with pytest.raises(DomainError, match="expected fewer"):
        critical_scale(law, "branch", 1000)


@pytest.mark.parametrize("layers", [1, 2])
def test_shallow_stacks_have_edges(layers):
    found = critical_scale(DepthLaw("pre"), "branch", layers, target=1.1)
    assert found.scale == pytest.approx(by_hand("pre", "branch", layers, 1.1), rel=1e-8)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"knob": "volume"}, UnknownNameError, "knob: expected one of skip, branch, init"),
        ({"condition": "x"}, UnknownNameError, "condition: expected one of gradient, update"),
        ({"target": 1.0}, DomainError, "target: expected above 1, got 1.0"),
        ({"target": math.nan}, DomainError, "target: expected above 1"),
        ({"condition": "update", "target": 0.0}, DomainError, "target: expected above 0"),
        ({"layers": 0}, DomainError, "layers: expected at least 1"),
    ],
)
def test_mistakes_are_told(options, error, match):
    with pytest.raises(error, match=match):
        critical_scale(RELU, **{"knob": "skip", "layers": 6, **options})


# -- update amplification


@pytest.mark.parametrize("layers", [1, 8, 128])
def test_update_amplification_of_the_literature(layers):
    """Post 2N/3; pre 2 (H_{N+2} - 3/2); DeepNorm N^(-1/2)/4, to leading order in 1/alpha^2."""
    harmonic = sum(1 / k for k in range(1, layers + 3))

    def amplified(name, init="lecun"):
        found = DepthLaw(name, init=init).predict(layers, width=64, hidden=64)
        return update_amplification(found)

    assert amplified("post") == pytest.approx(2 * layers / 3, rel=1e-10)
    assert amplified("pre") == pytest.approx(2 * (harmonic - 1.5), rel=1e-10)
    deep = amplified("deepnorm", "deepnorm")
    branch = 1 / (8 * layers)
    assert deep == pytest.approx(2 * branch * layers / (math.sqrt(layers) + branch), rel=1e-10)
    if layers > 1:
        assert deep == pytest.approx(layers**-0.5 / 4, rel=0.01)


@pytest.mark.parametrize(("placement", "activation"), [("post", "gelu"), ("pre", "relu")])
def test_stacks_move_as_far_as_the_amplification_says(placement, activation):
    """Four standard errors and a finite-width share of L/d; without the first matrix it is out."""
    layers, width, hidden, seeds, step = 8, 96, 96, 40, 1e-5
    moved = []
    for seed in range(seeds):
        rng = np.random.default_rng((seed, 11))
        matrices, run = stack(placement, activation, layers, width, hidden, rng)
        x = start(width, rng)
        changed = [
            tuple(m + step * rng.normal(size=m.shape) * np.sqrt(np.mean(m**2)) for m in pair)
            for pair in matrices
        ]
        here, there = run(matrices, x)[0], run(changed, x)[0]
        moved.append(np.sum((there - here) ** 2) / (step**2 * np.sum(here**2)))
    found = DepthLaw(placement, sublayers=(f"ffn:{activation}",)).predict(
        layers, width=width, hidden=hidden
    )
    want = update_amplification(found)
    slack = 4 * np.std(moved, ddof=1) / math.sqrt(seeds) + want * layers / width
    assert abs(np.mean(moved) - want) < slack
    assert abs(np.mean(moved) - want / 2) > slack


@pytest.mark.parametrize("name", [*PLACEMENTS, *STREAMS, *MIXES])
def test_every_placement_has_an_update_amplification(name):
    values = NEEDS_A_VALUE.get(name)
    for sublayers in (("ffn:relu",), ("attention", "gated"), ("causal-attention", "ffn:gelu")):
        found = DepthLaw(name, sublayers=sublayers, tokens=4, values=values).predict(6)
        assert 0 <= update_amplification(found) < math.inf


def test_changes_through_gaussian_scores_are_refused():
    found = DepthLaw("pre", sublayers=("attention",), tokens=3, scores="gaussian").predict(2)
    with pytest.raises(UnknownNodeError, match="scores: expected uniform ones"):
        update_amplification(found)


# -- spread over stacks


@pytest.mark.parametrize(
    ("placement", "activation"), [("post", "relu"), ("post", "gelu"), ("pre", "relu")]
)
def test_logarithms_of_stacks_spread_as_far_as_the_law_says(placement, activation):
    """Deviations over 150 stacks: 4 standard errors (6 % each) and a share of L/d."""
    layers, width, hidden, seeds = 6, 64, 96, 150
    logs = []
    for seed in range(seeds):
        rng = np.random.default_rng((seed, 5))
        matrices, run = stack(placement, activation, layers, width, hidden, rng)
        x, g = start(width, rng), rng.normal(size=width)
        out, pullback = run(matrices, x)
        back = pullback(g)
        logs.append((np.log(out @ out / width), np.log(back @ back / (g @ g))))
    growth, ratio = np.std(logs, axis=0, ddof=1)
    law = DepthLaw(placement, sublayers=(f"ffn:{activation}",))
    found = log_spread(law, law.predict(layers, width=width, hidden=hidden))
    slack = 4 / math.sqrt(2 * seeds) + layers / width
    assert ratio == pytest.approx(found.gradient, rel=slack)
    assert growth == pytest.approx(found.growth, rel=slack, abs=1e-12)
    wide = log_spread(law, law.predict(layers, width=4 * width, hidden=4 * hidden))
    assert wide.gradient == pytest.approx(found.gradient / 2, rel=1e-6)
    assert ratio != pytest.approx(wide.gradient, rel=slack)


def test_the_spread_of_a_relu_post_norm_block_by_hand():
    """(b/(1+f))^2 (Var e1 + Var e2 - 2 Cov) + 4b/(1+f)^2 (1/d + 1/d), at f = b = 1/2, hidden 4d."""
    d = 100
    found = log_spread(RELU, RELU.predict(1, width=d))
    squares = 2 * (2 / d + 5 / (4 * d)) - 2 / (4 * d)
    want = squares / 9 + 2 / 2.25 * 2 / d
    assert found.gradient**2 == pytest.approx(want, rel=1e-6)
    assert found.growth == 0


def test_the_interval_of_one_stack_is_log_normal_about_the_mean():
    found = log_spread(RELU, RELU.predict(24, width=256))
    low, high = found.interval(3.0)
    assert math.sqrt(low * high) == pytest.approx(3 * math.exp(-(found.gradient**2) / 2))
    assert math.log(high / low) == pytest.approx(2 * 1.959964 * found.gradient, rel=1e-6)


@pytest.mark.parametrize(
    ("law", "match"),
    [
        (DepthLaw("post", tokens=2), "expected one token"),
        (DepthLaw("post", dropout=0.1), "expected no dropout"),
        (DepthLaw("residual"), "expected one stream"),
        (DepthLaw("pre", sublayers=("gated",)), "expected ffn without a norm inside"),
        (DepthLaw("sub-ln"), "expected ffn without a norm inside"),
    ],
)
def test_spreads_that_are_not_known_are_refused(law, match):
    with pytest.raises(UnknownNodeError, match=match):
        log_spread(law, law.predict(3))


# -- exponents


KINDS = {
    ("post", "ffn:relu"): ("exponential", 0.0, None),
    ("post", "ffn:gelu"): ("exponential", math.log((1 + GELU_B) / (1 + GELU_F)) / 2, None),
    ("pre", "ffn:relu"): ("power", 0.0, 1.0),
    ("pre", "ffn:gelu"): ("power", 0.0, GELU_B / GELU_F),
    ("sandwich", "ffn:gelu"): ("power", 0.0, GELU_B / GELU_F),
    ("no-norm", "ffn:relu"): ("exponential", math.log(1.5) / 2, None),
    ("lns", "ffn:relu"): ("logarithmic", 0.0, 1.0),
    ("deepnorm", "ffn:relu"): ("bounded", 0.0, None),
    ("deepnorm", "ffn:gelu"): ("stretched", 0.0, 0.5),
    ("keel", "ffn:gelu"): ("bounded", 0.0, None),
    ("scaled-residual", "ffn:gelu"): ("bounded", 0.0, None),
    ("rezero", "ffn:relu"): ("bounded", 0.0, None),
    ("scaled-normed-residual", "ffn:relu"): ("power", 0.0, 0.5),
    ("mix-ln", "ffn:relu"): ("open", None, None),
}


@pytest.mark.parametrize(("placement", "sublayer"), KINDS)
def test_what_happens_as_l_grows(placement, sublayer):
    found = exponent(DepthLaw(placement, sublayers=(sublayer,)))
    kind, rate, power = KINDS[placement, sublayer]
    assert found.kind == kind
    assert found.annealed == (rate if rate is None else pytest.approx(rate, abs=1e-12))
    assert found.power == (power if power is None else pytest.approx(power, rel=1e-4))


@pytest.mark.parametrize(
    ("placement", "sublayer"), [k for k, (kind, _, _) in KINDS.items() if kind == "power"]
)
def test_powers_are_those_of_the_law_at_large_depths(placement, sublayer):
    law = DepthLaw(placement, sublayers=(sublayer,))
    low, high = (law.solution.at(2**k)[1] for k in (14, 16))
    power = exponent(law).power
    assert math.log(high / low) / math.log(4) == pytest.approx(power, abs=2e-3)


def test_the_gap_of_jensen_is_a_quarter_of_the_variance_of_a_block():
    found = exponent(RELU, width=50)
    assert found.gap == pytest.approx(log_spread(RELU, RELU.predict(1, width=50)).gradient ** 2 / 4)
    assert found.quenched == pytest.approx(-found.gap)
    assert exponent(DepthLaw("post", tokens=3)).quenched is None


@pytest.mark.parametrize("law", [RELU, GELU], ids=["relu", "gelu"])
def test_stacks_have_the_gap_of_jensen(law):
    """Log of the mean less mean of the log, by 4 standard errors and a share of 1/d of itself."""
    width = 24
    found, want = measured_gap(law, 160, width=width, stacks=5), exponent(law, width=width)
    assert abs(found.gap - want.gap) < 4 * found.gap_error + 3 * want.gap / width
    assert abs(found.gap - 2 * want.gap) > 4 * found.gap_error + 3 * want.gap / width
    assert found.annealed - found.quenched == pytest.approx(found.gap, rel=1e-9)


def test_gaps_of_made_up_factors():
    logs = np.random.default_rng(0).normal(0.1, 0.3, size=(20, 4000))
    found = jensen_gap(logs)
    assert abs(found.gap - 0.3**2 / 4) < 4 * found.gap_error
    assert abs(found.quenched - 0.05) < 4 * found.quenched_error
    for wrong in (logs[:1], logs[0], np.array([[1.0], [math.nan]])):
        with pytest.raises(DomainError, match="log_factors: expected finite"):
            jensen_gap(wrong)


@pytest.mark.parametrize("law", [DepthLaw("pre", init="xavier"), DepthLaw("pre", tokens=2)])
def test_gaps_are_measured_for_one_token_at_lecun(law):
    with pytest.raises(DomainError, match="law: expected one token at the initialisation lecun"):
        measured_gap(law, 4, width=8)


def test_streams_have_no_measured_gap():
    with pytest.raises(DomainError, match="law: expected one stream"):
        measured_gap(DepthLaw("residual"), 4, width=8)


@pytest.mark.slow
def test_the_top_exponent_of_a_relu_post_norm_stack():
    r"""Of order 1/d: half of m/d less a quarter of the variance, with m = 11/18 by hand.

    The second moments of 1/s^2, of the branch along the norm's two directions and of the number of
    active features add up to log E Z = 0.611/d at hidden 4d; log-normal factors of variance
    2.444/d then give lambda_1 = -0.306/d.
    """
    from derive.depth.asymptotics import ContractionRate, placed_lyapunov_spectrum

    found = placed_lyapunov_spectrum("post", 12_000, width=16, sublayer="ffn:relu", count=1)
    rate = ContractionRate.of(found, 0.999)
    assert rate.low < -0.611 / (2 * 16) < rate.high
    assert not rate.low < 0 < rate.high
    assert sp.Rational(11, 18) == pytest.approx(0.6111, abs=1e-4)
