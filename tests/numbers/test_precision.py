"""Narrow formats against torch's own, and certified runs against mpmath."""

import math

import mpmath
import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import derive
from derive.blocks.activations import ACTIVATIONS, clamped_shift, clamped_swish, xielu
from derive.calculus.explicit import explicit
from derive.depth import Stack, placed_stack
from derive.depth.opaque import opaque_block
from derive.depth.precision import precision_rows, simulate
from derive.depth.rounded import Precision, RoundedLayer, round_weights
from derive.errors import DomainError, ShapeError, UnknownNameError, UnknownNodeError, WeightError
from derive.linalg import materialise
from derive.linalg.rounded import number_format
from derive.lower import AbstractMap, evaluate, lower

x = derive.state("x")
WIDTH, TOKENS = 32, 3


def stack_of(name, layers, sublayer="ffn", width=WIDTH, tokens=TOKENS, norm="layernorm", **options):
    block = derive.block(name, norm, sublayer, x)
    return Stack.initialised(
        block, x, layers, width=width, tokens=tokens, values={"alpha": 1.3}, **options
    )


def inputs(width=WIDTH, tokens=TOKENS):
    rng = np.random.default_rng(5)
    return rng.normal(size=(tokens, width)), rng.normal(size=(tokens, width))


# -- simulation


@pytest.mark.parametrize("name", ["pre", "post", "sandwich", "deepnorm", "b2t"])
@pytest.mark.parametrize("sublayer", ["ffn", "gated", "causal-attention"])
def test_float64_is_the_exact_run(name, sublayer):
    stack = stack_of(name, 3, sublayer)
    found = simulate(stack, *inputs(), Precision.of("float64"))
    # the same operations in another order at most
    assert found.forward_errors.max() < 1e-14
    assert found.gradient_errors.max() < 1e-13
    assert not found.breakdown


@pytest.mark.parametrize("name", ["pre", "post"])
@pytest.mark.parametrize("sublayer", ["ffn", "gated", "causal-attention"])
def test_errors_scale_with_the_unit_roundoff(name, sublayer):
    stack, (start, cotangent) = stack_of(name, 4, sublayer), inputs()
    for dtype in ("float32", "float16", "bfloat16"):
        found = simulate(stack, start, cotangent, Precision.of(dtype))
        unit = number_format(dtype).unit
        # Dozens of roundings of a random sign each: some units; far from none, far from a hundred.
        for errors in (found.forward_errors[1:], found.gradient_errors[:-1]):
            assert (0.1 * unit < errors).all()
            assert (errors < 40 * unit).all()


def torch_run(stack, name, start, cotangent, dtype):
    """A hand-written block in torch, run in a format from end to end; states and gradients."""
    torch = pytest.importorskip("torch")
    nn = torch.nn.functional
    states = [torch.tensor(start).to(dtype).requires_grad_()]
    for weights in stack.weights:
        t = {k: torch.tensor(np.asarray(v)).to(dtype) for k, v in weights.items()}

        def norm(z, t=t):
            return nn.layer_norm(z, (WIDTH,), t["gain"], t["bias"], 1e-5)

        def ffn(z, t=t):
            hidden = nn.gelu(nn.linear(z, t["W_1"]) + t["b_1"])
            return nn.linear(hidden, t["W_2"]) + t["b_2"]

        z = states[-1]
        states.append(z + ffn(norm(z)) if name == "pre" else norm(z + ffn(z)))
        states[-1].retain_grad()
    states[-1].backward(torch.tensor(cotangent).to(dtype))
    to_numpy = lambda t: t.detach().to(torch.float64).numpy()  # noqa: E731
    return [to_numpy(s) for s in states], [to_numpy(s.grad) for s in states]


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["pre", "post"])
def test_errors_over_depth_are_those_of_a_torch_run(name, dtype):
    """Compared: the size of the error of every state and gradient, up to a factor.

    torch's sums run in another order and its backward kernels fuse other operations, so single
    roundings differ; how far twelve layers drift is the same up to a factor.
    """
    torch = pytest.importorskip("torch")
    stack, (start, cotangent) = stack_of(name, 12, std=0.7), inputs()
    chosen = number_format(dtype)
    start, cotangent = chosen(start), chosen(cotangent)
    narrow = Stack(
        [d.block for d in stack.derivations], x, [round_weights(w, dtype) for w in stack.weights]
    )
    true_states, true_gradients = torch_run(narrow, name, start, cotangent, torch.float64)
    states, gradients = torch_run(narrow, name, start, cotangent, getattr(torch, dtype))
    found = simulate(stack, start, cotangent, Precision.of(dtype))
    for layer in (1, 4, 8, 12):
        expected = relative(states[layer], true_states[layer])
        assert 0.4 < found.forward_errors[layer] / expected < 2.5
    for layer in (0, 4, 8, 11):
        expected = relative(gradients[layer], true_gradients[layer])
        assert 0.4 < found.gradient_errors[layer] / expected < 2.5
    norm_errors = [
        np.linalg.norm(g) / np.linalg.norm(t) - 1
        for g, t in zip(gradients, true_gradients, strict=True)
    ]
    assert np.abs(found.gradient_norm_errors).max() < 6 * np.abs(norm_errors).max()


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["pre", "post"])
def test_one_layer_has_mostly_the_very_numbers_of_torch(name, dtype):
    """torch accumulates in float32: that changes a rounding to 8 or 11 digits now and then only.

    Of float32 itself this cannot be asked, since there the accumulation rounds as well.
    """
    torch = pytest.importorskip("torch")
    stack, (start, cotangent) = stack_of(name, 1, tokens=16), inputs(tokens=16)
    chosen = number_format(dtype)
    start = chosen(start)
    weights = round_weights(stack.weights[0], dtype)
    narrow = Stack(stack.derivations[0].block, x, [weights])
    expected = torch_run(narrow, name, start, cotangent, getattr(torch, dtype))[0][1]
    opaque = opaque_block(stack.derivations[0].block, x, norms=True)
    layer = RoundedLayer(opaque, weights, start, Precision.of(dtype))
    same = np.mean(layer.value == expected)
    assert same > 0.9
    exact = evaluate(narrow.derivations[0].block, weights, start)
    assert np.mean(chosen(exact) == expected) < same  # one rounding at the end is not a run


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_attention_has_mostly_the_very_numbers_of_torch(dtype):
    """One head, causal: scores, softmax and mixing are rounded where torch's operations end."""
    torch = pytest.importorskip("torch")
    nn = torch.nn.functional
    stack = stack_of("pre", 1, "causal-attention", tokens=16, heads=1)
    chosen, kind = number_format(dtype), getattr(torch, dtype)
    start = chosen(inputs(tokens=16)[0])
    weights = round_weights(stack.weights[0], dtype)
    t = {k: torch.tensor(np.asarray(v)).to(kind) for k, v in weights.items()}
    z = torch.tensor(start).to(kind)
    normed = nn.layer_norm(z, (WIDTH,), t["gain"], t["bias"], 1e-5)
    q, k, v = (normed @ t[f"W_{c}"][0].T for c in "QKV")
    scores = (q @ k.T) / WIDTH**0.5
    hidden = torch.tril(torch.ones(16, 16, dtype=torch.bool))
    weight = torch.softmax(scores.masked_fill(~hidden, -torch.inf), -1)
    expected = (z + (weight @ v) @ t["W_O"][0].T).to(torch.float64).numpy()
    opaque = opaque_block(stack.derivations[0].block, x, norms=True)
    found = RoundedLayer(opaque, weights, start, Precision.of(dtype)).value
    exact = evaluate(stack.derivations[0].block, weights, start)
    assert np.mean(found == expected) > 0.85
    assert relative(found, expected) < 0.3 * relative(expected, exact)


def test_errors_grow_over_depth_and_post_norm_grows_faster():
    rows = {}
    for name in ("pre", "post"):
        (rows[name],) = precision_rows(name, [48], Precision.of("bfloat16"), width=32, tokens=2)
    for row in rows.values():
        assert row["forward_errors"][48] > 3 * row["forward_errors"][1]
        # roundings of random sign: a random walk, not a drift
        assert 0.25 < row["forward_growth"] < 0.85
    assert rows["post"]["gradient_errors"][0] > 1.5 * rows["pre"]["gradient_errors"][0]


def test_a_wider_stream_and_wider_statistics_are_better():
    stack, (start, cotangent) = stack_of("pre", 24), inputs()
    usual = simulate(stack, start, cotangent, Precision("bfloat16", "float32", "bfloat16"))
    naive = simulate(stack, start, cotangent, Precision("bfloat16", "bfloat16", "bfloat16"))
    wide = simulate(stack, start, cotangent, Precision("bfloat16", "float32", "float32"))
    assert naive.forward_errors[-1] > usual.forward_errors[-1]
    assert wide.forward_errors[-1] < usual.forward_errors[-1]


def test_a_large_mean_is_lost_to_statistics_in_bfloat16():
    """x = z + 100 has 8 bits in bfloat16: deviations of 1 keep one or two of them."""
    stack, (start, cotangent) = stack_of("pre", 1), inputs()
    far = simulate(stack, start + 100, cotangent, Precision("float32", "bfloat16", "float32"))
    near = simulate(stack, start, cotangent, Precision("float32", "bfloat16", "float32"))
    assert far.gradient_errors[0] > 5 * near.gradient_errors[0]


def test_a_run_that_overflows_says_where():
    stack, (start, cotangent) = stack_of("pre", 6, std=250.0), inputs()
    found = simulate(stack, start, cotangent, Precision.of("float16"))
    assert found.breakdown.startswith("layer ")
    assert "float16" in found.breakdown
    assert found.forward_errors[0] == 0.0
    assert math.isinf(found.forward_errors[-1])
    assert not simulate(stack, start, cotangent, Precision.of("bfloat16")).breakdown


def test_gradients_underflow_in_float16_and_not_in_bfloat16():
    """At 1e-6 a float16 has a handful of digits left: that is what losses are scaled for."""
    stack, (start, cotangent) = stack_of("pre", 2), inputs()
    for dtype, factor in (("float16", 20), ("bfloat16", 1)):
        plain, tiny = (
            simulate(stack, start, scale * cotangent, Precision.of(dtype)).gradient_errors[0]
            for scale in (1.0, 2.0**-20)
        )
        assert tiny > factor * plain if dtype == "float16" else tiny == plain


def test_operator_and_value_share_their_roundings():
    """Backwards uses the activations that forwards rounded, as autograd does."""
    stack, (start, _) = stack_of("pre", 1), inputs()
    weights = round_weights(stack.weights[0], "bfloat16")
    opaque = opaque_block(stack.derivations[0].block, x, norms=True)
    layer = RoundedLayer(opaque, weights, number_format("bfloat16")(start), Precision())
    exact = materialise(lower(stack.derivations[0].jacobian, weights, start))
    found = materialise(layer.jacobian)
    error = np.abs(found - exact).max()
    assert 0 < error < 0.1
    bf = number_format("bfloat16")
    np.testing.assert_array_equal(bf(found), found)  # every entry is a bfloat16 number


@pytest.mark.parametrize("name", ["pre", "post"])
def test_no_layers_and_zero_weights(name):
    for stack in (stack_of(name, 0), stack_of(name, 3, std=0.0)):
        found = simulate(stack, *inputs(), Precision())
        assert len(found.forward_errors) == stack.layers + 1
        assert found.gradient_errors[-1] == 0.0
        assert not found.breakdown


def test_mistakes_are_named():
    stack, (start, cotangent) = stack_of("pre", 1), inputs()
    with pytest.raises(UnknownNameError, match="dtype: expected one of"):
        Precision.of("fp8")
    with pytest.raises(ShapeError, match=r"cotangent: expected shape \(3, 32\)"):
        simulate(stack, start, cotangent[:2], Precision())
    with pytest.raises(DomainError, match="state: expected numbers within float16"):
        simulate(stack, 1e6 * start, cotangent, Precision.of("float16"))
    two = placed_stack("residual", 1, width=WIDTH)
    with pytest.raises(UnknownNodeError, match=r"expected a stack of one stream, got .* x, r"):
        simulate(two, start, cotangent, Precision())
    big = stack_of("pre", 1, std=1e6)
    with pytest.raises(DomainError, match=r"weight W_1: expected entries up to 6\.55e\+04"):
        simulate(big, start, cotangent, Precision.of("float16"))


# -- certification

SMALL = {
    "pre": ("pre", "ffn", "layernorm", 3, 4, 1),
    "post": ("post", "ffn:tanh", "rmsnorm", 3, 4, 1),
    "silu": ("sandwich", "ffn:silu", "layernorm", 2, 4, 1),
    "relu": ("pre", "ffn:relu", "layernorm", 2, 4, 2),
    "gated": ("deepnorm", "gated", "layernorm", 2, 4, 1),
    "gelu_tanh": ("pre", "ffn:gelu_tanh", "layernorm", 2, 4, 1),
    "attention": ("post", "causal-attention", "layernorm", 2, 4, 3),
    "rotary": ("pre", "rotary-attention", "rmsnorm", 1, 4, 2),
}


def small(case):
    name, sublayer, norm, layers, width, tokens = SMALL[case]
    stack = stack_of(name, layers, sublayer, width, tokens, norm, heads=2)
    return stack, inputs(width, tokens)[0]


@pytest.mark.parametrize("case", SMALL)
def test_a_certified_error_is_small_and_a_perturbed_answer_is_refuted(case):
    pytest.importorskip("flint")
    from derive.depth.certified import certify

    stack, start = small(case)
    found = certify(stack, start)
    scale = np.abs(found.answer).max()
    assert 0 < found.entry_error.upper < 1e-13 * scale
    assert found.relative_error < 1e-13
    assert found.state_error < 1e-13 * max(1, np.abs(stack.states(start)[-1]).max())
    wrong = found.answer.copy()
    wrong.flat[1] += 3 * found.entry_error.upper
    refuted = found.error_of(wrong)
    assert refuted.lower > found.entry_error.upper
    for interval, value, error in zip(
        found.singular_values,
        found.answer_singular_values,
        found.singular_value_errors,
        strict=True,
    ):
        assert interval.upper - interval.lower < 1e-12 * scale
        assert error < 1e-12 * scale
        assert interval.lower - 1e-12 * scale <= value <= interval.upper + 1e-12 * scale


@pytest.mark.parametrize("case", ["pre", "post", "silu", "gelu_tanh"])
def test_the_enclosure_holds_a_run_in_mpmath(case):
    """An independent run: the block typed out in mpmath at 50 digits, differenced centrally."""
    pytest.importorskip("flint")
    from derive.depth.certified import certify

    stack, start = small(case)
    with mpmath.workdps(50):
        functions = {
            "pre": lambda t: t * mpmath.ncdf(t),
            "post": mpmath.tanh,
            "silu": lambda t: t / (1 + mpmath.exp(-t)),
            "gelu_tanh": lambda t: (
                t
                / 2
                * (
                    1
                    + mpmath.tanh(
                        mpmath.sqrt(2 / mpmath.pi) * (t + mpmath.mpf(44715) / 10**6 * t**3)
                    )
                )
            ),
        }

        def block(v, w):
            matrix = {k: mpmath.matrix(np.asarray(w[k]).tolist()) for k in ("W_1", "W_2")}

            def norm(u, label=""):
                mean = 0 if case == "post" else sum(u) / len(u)
                centred = [a - mean for a in u]
                root = mpmath.sqrt(sum(a * a for a in centred) / len(u) + mpmath.mpf(1e-5))
                gain = w[f"gain{label}"]
                bias = w.get(f"bias{label}", np.zeros(len(u)))
                return [
                    a / root * mpmath.mpf(float(g)) + mpmath.mpf(float(b))
                    for a, g, b in zip(centred, gain, bias, strict=True)
                ]

            def ffn(z):
                hidden = matrix["W_1"] * mpmath.matrix(z)
                biased = [h + mpmath.mpf(float(b)) for h, b in zip(hidden, w["b_1"], strict=True)]
                out = matrix["W_2"] * mpmath.matrix([functions[case](h) for h in biased])
                return [o + mpmath.mpf(float(b)) for o, b in zip(out, w["b_2"], strict=True)]

            add = lambda a, b: [p + q for p, q in zip(a, b, strict=True)]  # noqa: E731
            if case == "post":
                return norm(add(v, ffn(v)))
            if case == "silu":
                return add(v, norm(ffn(norm(v, "_1")), "_2"))
            return add(v, ffn(norm(v)))

        def run(v):
            for w in stack.weights:
                v = block(v, w)
            return v

        point = [mpmath.mpf(float(v)) for v in start[0]]
        step = mpmath.mpf(10) ** -15
        columns = []
        for k in range(4):
            ahead, behind = list(point), list(point)
            ahead[k] += step
            behind[k] -= step
            pairs = zip(run(ahead), run(behind), strict=True)
            columns.append([(a - b) / (2 * step) for a, b in pairs])
        found = certify(stack, start)
        for i in range(4):
            for j in range(4):
                ball = found.jacobian[i, j]
                middle = mpmath.mpf(str(ball.mid().str(45, radius=False)))
                # central differences: the step squared, times a third derivative
                assert abs(middle - columns[j][i]) < mpmath.mpf(10) ** -26


def test_balls_hold_sympys_exact_numbers():
    """An RMSNorm at rational numbers: every entry of the Jacobian, exactly."""
    pytest.importorskip("flint")
    from derive.depth.certified import certify

    norm = derive.RMSNorm(eps=0, gain=False)
    block = norm(x)
    start = np.array([[1.0, 2.0, 2.0]])
    stack = Stack(block, x, [{}])
    exact = explicit(derive.jacobian(block, x), {"d": 3}, values={"x": [1, 2, 2]})
    found = certify(stack, start)
    for i in range(3):
        for j in range(3):
            digits = sp.N(exact[i, j], 60)
            ball = found.jacobian[i, j]
            lower, upper = (
                sp.Float(e.str(50, radius=False), 55) for e in (ball.lower(), ball.upper())
            )
            assert lower - sp.Float("1e-35") <= digits <= upper + sp.Float("1e-35")


def test_a_corner_is_not_certified():
    """relu at exactly 0: the union of both slopes never gets narrow."""
    pytest.importorskip("flint")
    from derive.depth.certified import certify

    block = x + derive.FFN("relu")(x)
    weights = {
        "W_1": np.array([[1.0, -1.0]]),
        "b_1": np.zeros(1),
        "W_2": np.array([[0.1], [0.3]]),
        "b_2": np.zeros(2),
    }
    at_zero = certify(Stack(block, x, [weights]), np.array([[2.0, 2.0]]))
    assert at_zero.entry_error.upper == 0.0  # exactly 0 is decided: the slope is 0 there
    # 2/r - 2/r with r = sqrt(5/2), which no binary number is: a ball around the corner
    around = {**weights, "W_1": np.array([[2.0, -1.0]])}
    block = x + derive.FFN("relu")(derive.RMSNorm(eps=0, gain=False)(x))
    with pytest.raises(DomainError, match="max_bits: expected a narrow enclosure within 256 bits"):
        certify(Stack(block, x, [around]), np.array([[1.0, 2.0]]), max_bits=256)
    beside = {**weights, "W_1": np.array([[2.0, -1.1]])}
    found = certify(Stack(block, x, [beside]), np.array([[1.0, 2.0]]), max_bits=256)
    assert found.entry_error.upper < 1e-15


FORMULAS = {
    **{name: a for name, a in ACTIVATIONS.items() if not a.is_abstract},
    "xielu": xielu(0.8, 0.7, 0.5, -1e-6),
    "clamped_swish": clamped_swish(1.702, 3.0),
    "clamped_shift": clamped_shift(2.0),
}


@pytest.mark.parametrize("name", FORMULAS)
@settings(max_examples=25, deadline=None)
@given(st.floats(-12, 12), st.sampled_from([0.0, 1e-12, 0.5]), st.integers(0, 1))
def test_a_ball_holds_the_formula_at_every_point_of_its_argument(name, middle, radius, order):
    """SymPy's own digits of the formula, at both ends, the middle and every corner between."""
    flint = pytest.importorskip("flint")
    from derive.depth.certified import formula_ball

    formula = FORMULAS[name].derivative(order)
    (t,) = formula.variables
    rationals = {}
    for constant in formula.expr.atoms(sp.Float):
        sign, mantissa, exponent, _ = constant._mpf_
        rationals[constant] = (-1) ** sign * int(mantissa) * sp.Integer(2) ** exponent
    exact = formula.expr.xreplace(rationals)
    with flint.ctx.workprec(120):
        ball = formula_ball(formula.expr, {t: flint.arb(middle, radius)})
        corners = [c for c in (0.0, 2.0, -2.0, 3.0) if abs(c - middle) <= radius]
        for point in (middle, middle - radius, middle + radius, *corners):
            if abs(sp.Rational(point) - sp.Rational(middle)) > sp.Rational(radius):
                continue  # the end was rounded out of the ball
            digits = sp.N(exact.subs(t, sp.Rational(point)), 60)
            value = flint.arb(str(digits))  # a ball as wide as the digits are uncertain
            assert ball.overlaps(value)
            assert radius or not (ball + 1e-9).overlaps(value)


def test_certification_refuses_what_it_cannot_do():
    pytest.importorskip("flint")
    from derive.depth.certified import certify, formula_ball

    with pytest.raises(DomainError, match="x: expected at most 96 entries"):
        certify(stack_of("pre", 1, width=64, tokens=2), inputs(64, 2)[0])
    with pytest.raises(UnknownNodeError, match=r"expected a stack of one stream, got .* x, r"):
        certify(placed_stack("residual", 1, width=4), inputs(4, 1)[0])
    with pytest.raises(DomainError, match="bits: expected 64 to 2048, got 3"):
        certify(stack_of("pre", 1, width=4), inputs(4, 1)[0], bits=3)
    maps = {"F": AbstractMap(lambda z: z, lambda z: np.tile(np.eye(2), (len(z), 1, 1)))}
    abstract = Stack(x + derive.Sublayer("F")(x), x, [{}], maps)
    with pytest.raises(UnknownNodeError, match="the sublayer F is abstract"):
        certify(abstract, np.ones((1, 2)))
    with pytest.raises(UnknownNodeError, match="certify: no rule for"):
        formula_ball(sp.gamma(sp.Rational(1, 3)), {})
    with pytest.raises(WeightError):
        certify(Stack(derive.block("pre", "rmsnorm", "ffn"), x, [{"eps": 1e-5}]), np.ones((1, 2)))


def test_certified_run_of_no_layers():
    pytest.importorskip("flint")
    from derive.depth.certified import certified_row, certify

    row = certified_row(certify(stack_of("pre", 0, width=4, tokens=1), inputs(4, 1)[0]))
    assert row["entry_error"] == {"lower": 0.0, "upper": 0.0}
    assert row["relative_error"] == 0.0
    assert [v["lower"] <= 1.0 <= v["upper"] for v in row["singular_values"]] == [True] * 4
