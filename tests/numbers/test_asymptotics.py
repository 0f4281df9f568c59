"""Lyapunov exponents of random stacks: multiprecision, closed forms, dense NumPy."""

import json
import math

import mpmath as mp
import numpy as np
import pytest
from sympy.core.symbol import Str

import derive
from derive.blocks.norms import (
    BatchNorm,
    DynamicTanh,
    GroupNorm,
    L2Norm,
    LayerNorm,
    RMSNorm,
    ScaleNorm,
)
from derive.blocks.parse import parse_block
from derive.calculus.atoms import Inner, Ones
from derive.calculus.let import ScalarLet
from derive.calculus.maps import Body, Map
from derive.cli.output import json_text
from derive.depth import Stack, placed_stack
from derive.depth.asymptotics import (
    ContractionRate,
    contraction_rate,
    deflated_jacobians,
    lyapunov_row,
    lyapunov_spectrum,
    placed_lyapunov_spectrum,
)
from derive.depth.null_directions import null_directions
from derive.errors import DomainError, WeightError
from derive.initialise import initial_weights, layer_seed, random_state
from derive.linalg import lyapunov_spectrum as of_factors
from derive.linalg import materialise
from derive.lower import evaluate, lower
from derive.symbols import eps as EPS

x = derive.state("x")


def drawn(block, layers, width, *, eps=1e-5, gains=True, seed=0, tokens=1, **sizes):
    """Weights of a stack, with gains and biases that are neither one nor zero."""
    rng = np.random.default_rng(seed)
    weights = []
    for layer in range(layers):
        found = initial_weights(
            block, width=width, seed=layer_seed(seed, layer), tokens=tokens, heads=1, **sizes
        )
        for name in found:
            if gains and name.startswith("gain"):
                found[name] = rng.uniform(0.5, 1.5, size=width)
            if gains and name.startswith("bias"):
                found[name] = 0.3 * rng.normal(size=width)
        found["eps"] = eps
        weights.append(found)
    return weights


def spectrum_of(block, weights, state, **options):
    return of_factors(deflated_jacobians(block, x, weights, state), **options)


# -- against multiprecision


def mp_block(state, weights, norm):
    """N(x + W_2 tanh(W_1 x + b_1) + b_2) in mpmath, from its definition."""

    def matrix(name):
        return mp.matrix(np.asarray(weights[name]).tolist())

    def normalised(u):
        centre = sum(u) / len(u) if norm == "layernorm" else mp.mpf(0)
        c = [v - centre for v in u]
        root = mp.sqrt(sum(v * v for v in c) / len(c) + mp.mpf(weights["eps"]))
        shift = weights.get("bias", np.zeros(len(u)))
        return [
            mp.mpf(g) * v / root + mp.mpf(b)
            for g, v, b in zip(weights["gain"], c, shift, strict=True)
        ]

    inner = matrix("W_1") * mp.matrix(state) + matrix("b_1")
    branch = matrix("W_2") * inner.apply(mp.tanh) + matrix("b_2")
    return normalised([a + b for a, b in zip(state, branch, strict=True)])


def mp_jacobian(state, weights, norm):
    """Central differences with a step of 1e-80: exact to 1e-150 at 300 digits."""
    step = mp.mpf(10) ** -80
    columns = []
    for k in range(len(state)):
        up, down = list(state), list(state)
        up[k] += step
        down[k] -= step
        pair = zip(mp_block(up, weights, norm), mp_block(down, weights, norm), strict=True)
        columns.append([(a - b) / (2 * step) for a, b in pair])
    return mp.matrix(columns).T


def mp_logs(state, weights, norm, columns):
    """log|R_ii| of the product times the library's first frame, orthogonalised once at the end."""
    d = len(state)
    frame = np.linalg.qr(np.random.default_rng(0).normal(size=(d, columns)))[0]
    with mp.workdps(300):
        image = mp.matrix(frame.tolist())
        point = [mp.mpf(v) for v in state]
        for layer in weights:
            image = mp_jacobian(point, layer, norm) * image
            point = mp_block(point, layer, norm)
        basis, logs = [], []
        for k in range(columns):
            column = image[:, k]
            for one in basis:
                column -= (one.T * column)[0] * one
            basis.append(column / mp.norm(column))
            logs.append(float(mp.log(mp.norm(column))))
    return np.sort(logs)[::-1]


@pytest.mark.parametrize("eps", [1e-2, 1e-5, 1e-9, 1e-14, 1e-25])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_post_norm_against_300_digits(norm, eps):
    """The direction along xhat is contracted by about eps, however small that is."""
    block = derive.block("post", norm, "ffn:tanh", x)
    weights = drawn(block, 6, 4, eps=eps, hidden=3)
    state = random_state(4, seed=3)
    found = spectrum_of(block, weights, state, batch=6)
    nulls = 1 if norm == "layernorm" else 0
    expected = mp_logs(state[0].tolist(), weights, norm, 4 - nulls) / 6
    assert found.null_directions == nulls
    # Above the bar of 1e-8, what rounding errors of the Jacobian leave: 2e-16/1e-9, a few times.
    tol = 1e-5 if eps == 1e-9 else 1e-9
    np.testing.assert_allclose(found.exponents[: 4 - nulls], expected, atol=tol)
    assert expected[-1] == pytest.approx(math.log(eps), abs=3)


def test_a_plain_loop_prints_noise():
    """QR after every layer of the materialised Jacobians: -35 for a null direction, or worse."""
    block = derive.block("post", "layernorm", "ffn:tanh", x)
    weights = drawn(block, 40, 6, eps=1e-20)
    state, frame, logs = random_state(6, seed=1), np.eye(6), np.zeros(6)
    point = state
    for layer in weights:
        jacobian = materialise(lower(derive.jacobian(block, x), layer, point))
        frame, triangle = np.linalg.qr(jacobian @ frame)
        logs += np.log(np.abs(np.diag(triangle)) + 1e-300)
        point = evaluate(block, layer, point)
    found = spectrum_of(block, weights, state, batch=10)
    assert found.exponents[5] == -math.inf
    assert found.exponents[4] < -44  # about log(1e-20) = -46
    assert np.sort(logs / 40)[1] > -40


# -- closed forms


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_post_norm_without_a_branch(eps):
    """N(x) again and again: 1/s across, eps/s^3 along the state, nothing along 1."""
    block = derive.block("post", "layernorm", "ffn", x)
    found = lyapunov_spectrum(
        block, x, 50, width=5, std=0.0, values={"eps": eps}, transient=1, seed=2
    )
    variance, across, along = float(random_state(5, seed=2).var()), [], []
    for _ in range(50):
        across.append(-0.5 * math.log(variance + eps))
        along.append(math.log(eps) + 3 * across[-1])
        variance /= variance + eps
    # From layer 1 on, the frame lies in the image of layer 0.
    expected = [np.mean(across[1:])] * 3 + [np.mean(along[1:]), -math.inf]
    # The frame turns into the invariant directions; that costs O(1/L) of each but the sum.
    np.testing.assert_allclose(found.exponents, expected, atol=0.1)
    assert found.finite_sum == pytest.approx(sum(expected[:4]), abs=1e-10)


def test_pre_norm_without_a_branch_is_the_identity():
    found = lyapunov_spectrum(derive.block("pre", sublayer_="ffn", x=x), x, 40, width=4, std=0.0)
    np.testing.assert_allclose(found.exponents, 0, atol=1e-15)
    assert 0 <= found.kaplan_yorke <= 4  # rounding decides the signs of zeros
    assert found.null_directions == 0


@pytest.mark.parametrize("placement", ["pre", "post", "normed-residual"])
def test_sum_is_the_mean_log_determinant(placement):
    block = derive.block(placement, "rmsnorm", "ffn", x)
    found = lyapunov_spectrum(block, x, 60, width=6, transient=0, batches=7, std=0.7)
    stack = Stack.initialised(block, x, 60, width=6, std=0.7)
    logs = [np.linalg.slogdet(materialise(j))[1] for j in stack.jacobians(random_state(6))]
    assert found.sum == pytest.approx(np.mean(logs), abs=1e-9)
    assert len(found.batch_means) == 7
    assert found.batch == 8
    np.testing.assert_allclose(
        found.batch_means.sum(axis=1), np.reshape(logs[:56], (7, 8)).mean(axis=1), atol=1e-9
    )


# -- null directions


CASES = [
    ("post", "layernorm", 1e-5, 1),
    ("post", "layernorm", 0.0, 2),
    ("post", "layernorm", 1e-16, 1),
    ("post", "rmsnorm", 1e-5, 0),
    ("post", "rmsnorm", 0.0, 1),
    ("pre", "layernorm", 1e-5, 0),
    ("pre", "layernorm", 0.0, 0),
    ("N(alpha*x + F(x))", "layernorm", 1e-5, 1),
    ("N2(x + F(N1(x)))", "layernorm", 1e-5, 1),
    ("normed-residual", "layernorm", 1e-5, 1),
    ("normed-residual", "layernorm", 0.0, 2),
    ("x + N(F(x))", "layernorm", 1e-5, 0),
]


@pytest.mark.parametrize(("placement", "norm", "eps", "each"), CASES)
@pytest.mark.parametrize(("sublayer", "tokens"), [("ffn", 1), ("ffn", 3), ("attention", 2)])
def test_how_many_exponents_are_minus_infinity(placement, norm, eps, each, sublayer, tokens):
    block = derive.block(placement, norm, sublayer, x)
    weights = drawn(block, 8, 5, eps=eps, tokens=tokens, values={"alpha": 1.3})
    found = spectrum_of(block, weights, random_state(5, tokens, seed=4), batch=4)
    assert found.null_directions == each * tokens
    assert np.all(np.isfinite(found.exponents[: found.size - each * tokens]))
    assert found.size == 5 * tokens


def test_directions_are_proved_and_take_the_jacobian_to_what_they_say():
    block = derive.block("post", "layernorm", "ffn", x)
    (weights,) = drawn(block, 1, 6)
    point = random_state(6, seed=5)
    D = derive.derivation(block, x)
    proved = null_directions(D)
    jacobian = materialise(lower(D.jacobian, weights, point))
    assert [str(v) for v in proved.left] == ["diag(1/gain) 1"]
    np.testing.assert_allclose(evaluate(proved.left[0], weights, point)[0], 1 / weights["gain"])
    (weak,) = proved.weak
    w = evaluate(weak.direction, weights, point)[0]
    row = materialise(lower(weak.row, weights, point))[0]
    np.testing.assert_allclose(w @ jacobian, row, atol=1e-15)
    assert np.linalg.norm(row) < 1e-4 * np.linalg.norm(w)
    assert proved.nullity == 1


def test_at_eps_zero_the_weak_direction_is_null():
    block = derive.block("post", "layernorm", "ffn", x)
    proved = null_directions(derive.derivation(block.xreplace({EPS: 0}), x))
    assert [str(v) for v in proved.left] == ["diag(1/gain) 1", "diag(1/gain) xhat"]
    assert proved.weak == ()


@pytest.mark.parametrize("placement", ["pre", "x - N(x)", "x + F(x)", "F(x)"])
def test_nothing_is_proved_where_nothing_is_null(placement):
    proved = null_directions(derive.derivation(derive.block(placement, x=x), x))
    assert (proved.left, proved.weak, proved.nullity) == ((), (), 0)


NORMS = {
    "layernorm, eps outside the root": (LayerNorm(outside=True), ["diag(1/gain) 1"], ["eps/s"], 1),
    "rmsnorm, eps outside the root": (RMSNorm(outside=True), [], ["eps/r"], 0),
    "zero-centred gain": (LayerNorm(offset=True), ["diag(1/(1 + gain)) 1"], ["eps/s**2"], 1),
    "eps a number": (LayerNorm(eps=1e-5), ["diag(1/gain) 1"], [], 1),
    "scalenorm": (ScaleNorm(), ["xhat"], [], 1),
    "length with eps": (L2Norm(eps=EPS), [], ["eps/r**2"], 0),
    "batchnorm": (BatchNorm(), [], [], 0),
    "dynamic tanh": (DynamicTanh(), [], [], 0),
    # A sum over groups is outside the decision procedure: the numbers say what is null.
    "groupnorm": (GroupNorm(), [], [], 2),
}


@pytest.mark.parametrize(("norm", "left", "weak", "nulls"), NORMS.values(), ids=NORMS)
def test_every_norm(norm, left, weak, nulls):
    block = norm(x + derive.sublayer("ffn")(x))
    proved = null_directions(derive.derivation(block, x))
    assert [str(v) for v in proved.left] == left
    assert [str(one.factor) for one in proved.weak] == weak
    values = {"g": 1.5, "a": 0.8}
    found = lyapunov_spectrum(block, x, 12, width=6, groups=2, values=values)
    assert found.null_directions == nulls


class Centring(Map):
    """Subtracts the mean: no norm, and not known by name anywhere."""

    def body(self, argument, suffix=""):
        rows = argument.shape[0]
        mean = ScalarLet("m" + suffix, Inner(Ones(rows), argument) / rows)
        return Body(lets=(mean,), output=argument - mean * Ones(rows))


def test_directions_come_from_the_expression_and_not_from_a_name():
    block = parse_block(
        "C(x + F(x))", {"C": Centring(Str("C")), "F": derive.sublayer("ffn")}, x, "x"
    )
    assert [str(v) for v in null_directions(derive.derivation(block, x)).left] == ["1"]
    found = lyapunov_spectrum(block, x, 12, width=4, std=0.5)
    assert found.null_directions == 1


def test_sum_of_terms_with_one_null_direction():
    D = derive.derivation(derive.block("N(F(x)) + N(x)", sublayer_="ffn", x=x), x)
    assert [str(v) for v in null_directions(D).left] == ["diag(1/gain) 1"]
    D = derive.derivation(derive.block("N1(F(x)) + N2(x)", sublayer_="ffn", x=x), x)
    assert null_directions(D).left == ()


def test_a_gain_with_zeros():
    """1/gain does not exist; the rows that vanish are found in the numbers."""
    block = derive.block("post", "layernorm", "ffn", x)
    weights = drawn(block, 20, 6)
    for layer in weights:
        layer["gain"][[1, 4]] = 0.0
    found = spectrum_of(block, weights, random_state(6), batch=5)
    assert found.null_directions == 2


def test_hidden_width_below_the_width():
    """A block without a residual has the rank of its narrowest layer; no proof says so."""
    block = derive.block("F(x)", sublayer_="ffn", x=x)
    found = lyapunov_spectrum(block, x, 30, width=6, hidden=4, std=1.5)
    assert found.null_directions == 2


# -- streaming


def test_layers_are_those_of_a_stack_and_do_not_depend_on_their_number():
    block = derive.block("pre", "layernorm", "attention", x)
    point = random_state(4, 3, seed=7)
    stack = Stack.initialised(block, x, 5, width=4, tokens=3, heads=2, seed=7)
    streamed = list(deflated_jacobians(block, x, stack.weights, point))
    for operator, factor in zip(stack.jacobians(point), streamed, strict=True):
        np.testing.assert_allclose(materialise(factor.factor), materialise(operator), atol=1e-14)
    options = {"width": 4, "tokens": 3, "heads": 2, "seed": 7, "transient": 0}
    found = lyapunov_spectrum(block, x, 5, batches=5, **options)
    again = of_factors(stack.jacobians(point), batch=1)
    np.testing.assert_allclose(found.exponents, again.exponents, atol=1e-12)
    shorter = lyapunov_spectrum(block, x, 3, batches=3, **options)
    np.testing.assert_allclose(
        np.sort(shorter.batch_means), np.sort(found.batch_means[:3]), atol=1e-12
    )
    other = lyapunov_spectrum(block, x, 5, batches=5, **{**options, "seed": 8})
    assert not np.allclose(other.exponents, found.exponents, atol=1e-3)


@pytest.mark.parametrize(
    ("placement", "nulls"),
    [("lns", 0), ("deepnorm", 2), ("mix-ln", 2), ("residual", 2), ("N(x + F(x))", 2)],
)
def test_any_placement_as_its_stack(placement, nulls):
    """Scalars by depth, mixtures and several streams, against the materialised stack."""
    options = {"width": 4, "tokens": 2, "seed": 3, "sublayer": "causal-attention", "heads": 2}
    stack = placed_stack(placement, 8, **options)
    jacobians = [materialise(j) for j in stack.jacobians(random_state(4, 2, 3))]
    found = placed_lyapunov_spectrum(placement, 8, transient=0, batches=2, **options)
    assert found.size == jacobians[0].shape[0]
    product = np.eye(found.size)
    for jacobian in jacobians:
        product = jacobian @ product
    assert found.null_directions == nulls
    # One vector's growth is that of the product on the first column of the frame.
    top = placed_lyapunov_spectrum(placement, 8, transient=0, count=1, **options)
    start = np.random.default_rng(0).normal(size=(found.size, 1))
    growth = np.linalg.norm(product @ start) / np.linalg.norm(start)
    assert top.exponents[0] * 8 == pytest.approx(math.log(growth), abs=1e-9)


def test_progress_sees_every_layer():
    seen = []

    def watch(layers):
        for layer in layers:
            seen.append(layer)
            yield layer

    lyapunov_spectrum(derive.block("post", sublayer_="ffn", x=x), x, 7, width=3, progress=watch)
    assert seen == list(range(7))


# -- the rate


def test_contraction_rate_is_that_of_one_vector():
    block = derive.block("post", "layernorm", "ffn", x)
    rate = contraction_rate(block, x, 200, width=8, transient=40, batches=10, std=0.3)
    stack = Stack.initialised(block, x, 200, width=8, std=0.3)
    vector = np.random.default_rng(0).normal(size=8)
    logs = []
    for operator in stack.jacobians(random_state(8)):
        vector = materialise(operator) @ (vector / np.linalg.norm(vector))
        logs.append(math.log(np.linalg.norm(vector)))
    means = np.reshape(logs[40:], (10, 16)).mean(axis=1)
    assert rate.exponent == pytest.approx(means.mean(), abs=1e-10)
    half = 2.2621571627409915 * means.std(ddof=1) / math.sqrt(10)  # t(9) at 97.5 %
    assert (rate.low, rate.high) == pytest.approx((means.mean() - half, means.mean() + half))
    whole = lyapunov_spectrum(block, x, 200, width=8, transient=40, batches=10, std=0.3)
    assert rate.exponent == pytest.approx(whole.exponents[0], abs=0.01)


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [(-2, -1, "contracts"), (1, 2, "expands"), (-1, 1, "neither"), (math.nan, math.nan, "neither")],
)
def test_kind_of_a_rate(low, high, kind):
    assert ContractionRate(0.0, low, high, 0.95, 0.0).kind == kind


def test_pre_norm_drifts_and_post_norm_does_not():
    """|x_l| grows like sqrt(l) in a pre-norm stack, so that its rate falls with depth."""
    pre = contraction_rate(derive.block("pre", sublayer_="ffn", x=x), x, 600, width=8, transient=0)
    post = contraction_rate(
        derive.block("post", sublayer_="ffn", x=x), x, 600, width=8, transient=60
    )
    assert abs(post.drift) < 4
    early = contraction_rate(derive.block("pre", sublayer_="ffn", x=x), x, 20, width=8, transient=0)
    assert early.exponent > 3 * abs(pre.exponent)


# -- rows and refusals


def test_row_is_json_with_all_keys():
    found = lyapunov_spectrum(derive.block("post", sublayer_="ffn", x=x), x, 40, width=4, batches=4)
    row = json.loads(json_text(lyapunov_row(found, placement="post", width=4)))
    assert list(row) == [
        "placement",
        "width",
        "layers",
        "transient",
        "batches",
        "batch",
        "exponents",
        "stderr",
        "null_directions",
        "kaplan_yorke",
        "sum",
        "finite_sum",
        "finite_sum_stderr",
        "rate",
        "running",
        "factorisations",
    ]
    assert (row["layers"], row["transient"], row["batches"], row["batch"]) == (36, 4, 4, 9)
    assert row["exponents"][-1] is None
    assert row["sum"] is None
    assert row["null_directions"] == 1
    assert row["finite_sum"] == pytest.approx(sum(row["exponents"][:-1]))
    assert row["running"]["layers"][-1] == 36
    assert row["running"]["top"][-1] == pytest.approx(row["exponents"][0])


def test_one_layer():
    found = lyapunov_spectrum(derive.block("pre", sublayer_="ffn", x=x), x, 1, width=2)
    assert found.layers == 1
    assert np.isnan(found.stderr).all()
    row = json.loads(json_text(lyapunov_row(found)))
    assert row["rate"]["low"] is None
    assert row["rate"]["kind"] == "neither"


@pytest.mark.parametrize(
    ("equation", "layers", "options", "error", "message"),
    [
        ("post", 0, {}, DomainError, "layers: expected at least 1, got 0"),
        ("post", -3, {}, DomainError, "layers: expected at least 1, got -3"),
        ("post", 5, {"transient": 5}, DomainError, "transient: expected 0 to 4"),
        ("post", 5, {"transient": -1}, DomainError, "transient: expected 0 to 4"),
        ("post", 5, {"batches": 0}, DomainError, "batches: expected at least 1"),
        ("post", 5, {"width": 1}, DomainError, "width: expected at least 2"),
        ("deepnorm", 5, {}, WeightError, "alpha"),
        ("no-norm", 400, {"std": 1e3}, DomainError, r"layer \d+: state: .* got an overflow"),
        ("post", 5, {"count": 0}, DomainError, "count"),
    ],
)
def test_refusals(equation, layers, options, error, message):
    block = derive.block(equation, sublayer_="ffn", x=x)
    with pytest.raises(error, match=message):
        lyapunov_spectrum(block, x, layers, **{"width": 4, **options})
