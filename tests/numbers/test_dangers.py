"""Numerical dangers, one test a row: inputs at which plausible code loses its digits.

The shifted mean, the empty softmax row, gelu at -9 and relu at 0 have tests of the plain case in
test_lower.py; here is what those leave out, and each danger is shown to be one.
"""

import mpmath
import numpy as np
import pytest
import sympy

import derive
from derive.blocks.attention import Attention
from derive.calculus.explicit import explicit
from derive.cli import main
from derive.depth import Stack
from derive.errors import DomainError, WeightError
from derive.linalg import materialise
from derive.lower import activation_function, evaluate, lower

x = derive.state("x")
WIDTH = 8


def plain(norm):
    return derive.jacobian(norm(x), x)


def layernorm_weights(eps, width=WIDTH):
    return {"eps": eps, "gain": np.ones(width), "bias": np.zeros(width)}


# -- x = z + 1e8


def test_a_large_mean_costs_one_pass_variance_its_value_and_ours_nothing():
    z = np.random.default_rng(0).integers(-8, 8, size=(1, WIDTH)) / 4  # exact in float64 at 1e8
    far = z + 1e8
    truth = float(np.var(z))
    one_pass = float(np.mean(far**2) - np.mean(far) ** 2)
    assert abs(one_pass - truth) > 0.3 * truth  # the danger: squares of 1e8 keep no digit of it
    J = plain(derive.LayerNorm())
    near, away = (materialise(lower(J, layernorm_weights(1e-5), v)) for v in (z, far))
    np.testing.assert_allclose(away, near, rtol=0, atol=1e-9)
    # forwards as well, in a stack whose first norm sees it
    block = derive.block("pre", "layernorm", "ffn")
    stack = Stack.initialised(block, x, 2, width=WIDTH)
    moved = stack.states(far)[1] - far
    np.testing.assert_allclose(moved, stack.states(z)[1] - z, rtol=0, atol=1e-7)


# -- x = 1e-3 z, with eps and without


def test_eps_dominates_a_small_input():
    """Along xhat the Jacobian is eps/s^3, 274 for unit variance, where eps = 0 has exactly 0."""
    z = np.random.default_rng(1).normal(size=(1, WIDTH))
    z = (z - z.mean()) / z.std()
    small = 1e-3 * z
    J = materialise(lower(plain(derive.LayerNorm()), layernorm_weights(1e-5), small))
    direction = z[0] / np.linalg.norm(z)
    along = float(direction @ J @ direction)
    with mpmath.workdps(40):
        s = mpmath.sqrt(mpmath.mpf(10) ** -6 + mpmath.mpf(10) ** -5)
        exact = mpmath.mpf(10) ** -5 / s**3
    # 1 - xhat'xhat/d loses a digit where it is 10/11; the input's own rounding is of that size
    assert along == pytest.approx(float(exact), rel=1e-9)
    assert round(along) == 274
    free = materialise(lower(plain(derive.LayerNorm(eps=0)), layernorm_weights(0.0), small))
    assert abs(direction @ free @ direction) < 1e-12 * 1e3
    assert np.linalg.norm(free, 2) == pytest.approx(1e3, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-8, 1e-150])
def test_without_eps_the_norm_of_the_jacobian_is_one_over_the_scale(scale):
    z = np.random.default_rng(1).normal(size=(1, WIDTH))
    z = (z - z.mean()) / z.std()
    J = materialise(lower(plain(derive.LayerNorm(eps=0)), layernorm_weights(0.0), scale * z))
    assert np.linalg.norm(J * scale, 2) == pytest.approx(1.0, rel=1e-7)


@pytest.mark.parametrize("norm", [derive.LayerNorm(eps=0), derive.RMSNorm(eps=0)])
@pytest.mark.parametrize("scale", [0.0, 1e-170])
def test_without_eps_there_is_no_jacobian_at_zero(norm, scale):
    """At 1e-170 the squares underflow: refused as zero, not answered with infinity."""
    weights = layernorm_weights(0.0)
    state = scale * np.arange(1.0, WIDTH + 1)[None]
    with pytest.raises(DomainError, match="is zero and eps = 0"):
        lower(plain(norm), weights, state)


# -- attention: rows that see nothing, masks of -1e9, peaked rows


def attention_weights(tokens, width=4, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    weights = {f"W_{c}": rng.normal(size=(1, width, width)) for c in "QKV"}
    weights["W_O"] = rng.normal(size=(1, width, width))
    weights["W_Q"] = scale * weights["W_Q"]
    return weights, rng.normal(size=(tokens, width))


def test_an_empty_softmax_row_is_nan_elsewhere_and_zero_here():
    torch = pytest.importorskip("torch")
    assert torch.isnan(torch.softmax(torch.full((3,), -torch.inf), 0)).all()
    weights, state = attention_weights(3)
    weights["mask"] = np.array([[True, False, False], [False] * 3, [True] * 3])
    block = x + Attention(masked=True)(x)
    J = materialise(lower(derive.jacobian(block, x), weights, state)).reshape(3, 4, 3, 4)
    assert np.isfinite(J).all()
    np.testing.assert_array_equal(J[1, :, 1], np.eye(4))
    assert not J[1][:, [0, 2]].any()
    np.testing.assert_array_equal(evaluate(block, weights, state)[1], state[1])


def test_an_additive_mask_of_minus_1e9_is_not_a_mask():
    """On a row that is masked everywhere it attends: to all alike in float32, as if there were none
    in float64. So an additive mask is refused; a boolean one says what is meant.
    """
    scores = np.array([2.0, 1.0, -1.0])
    softmax = lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum()  # noqa: E731
    double = softmax(scores - 1e9)
    single = softmax((scores.astype(np.float32) - np.float32(1e9)).astype(np.float32))
    np.testing.assert_allclose(double, softmax(scores), atol=1e-6)
    np.testing.assert_allclose(single, 1 / 3, atol=1e-6)
    weights, state = attention_weights(3)
    block = Attention(masked=True)(x)
    with pytest.raises(WeightError, match="weight mask: expected booleans"):
        evaluate(block, {**weights, "mask": np.where(np.eye(3), 0.0, -1e9)}, state)
    nothing = {**weights, "mask": np.zeros((3, 3), dtype=bool)}
    assert not evaluate(block, nothing, state).any()
    assert not materialise(lower(derive.jacobian(block, x), nothing, state)).any()


def test_a_peaked_softmax_keeps_the_digits_of_its_jacobian():
    """Logits 30, 0, -15: p - p^2 of the first is 9.4e-14 and loses three digits.

    With values that are one key wide the derivative in the score is p_i times what the others
    weigh; the derived path p_ij (V_j - O_i) takes the difference of values, not of weights.
    """
    logits = np.array([30.0, 0.0, -15.0])
    with mpmath.workdps(40):
        terms = [mpmath.exp(mpmath.mpf(v)) for v in logits]
        p = [t / sum(terms) for t in terms]
        exact = float(p[0] * (1 - p[0]))
    weight = np.exp(logits - 30) / np.exp(logits - 30).sum()
    assert abs(weight[0] - weight[0] ** 2 - exact) > 1e-4 * exact  # the danger
    by_the_others = weight[0] * (weight[1] + weight[2])
    assert by_the_others == pytest.approx(exact, rel=1e-14)
    assert np.float32(weight[0]) - np.float32(weight[0]) ** 2 == 0.0


@pytest.mark.parametrize("peak", [5.0, 15.0, 30.0])
def test_attention_paths_of_a_peaked_row_against_mpmath(peak):
    """One query whose scores are peak, 0, -peak/2: every block of its row, at 60 digits."""
    width = 2
    state = np.array([[1.0, 0.5], [0.25, -1.0], [-0.5, 0.125]])
    # scores of token 0: q_0' k_j / sqrt(2), made by solving for W_K
    wanted = np.array([peak, 0.0, -peak / 2])
    keys = np.linalg.lstsq(state, wanted * np.sqrt(2.0), rcond=None)[0]
    weights = {
        "W_Q": np.array([[[1.0, 0.0], [0.0, 0.0]]]),
        "W_K": np.array([[keys, [0.0, 0.0]]]),
        "W_V": np.array([[[1.0, -0.5], [0.25, 1.0]]]),
        "W_O": np.array([[[1.0, 0.0], [0.5, 2.0]]]),
    }
    block = Attention()(x)
    found = materialise(lower(derive.jacobian(block, x), weights, state)).reshape(3, 2, 3, 2)[0]
    with mpmath.workdps(60):
        matrix = {k: mpmath.matrix(v[0].tolist()) for k, v in weights.items()}

        def output(rows):
            tokens = [mpmath.matrix(r) for r in rows]
            query = matrix["W_Q"] * tokens[0]
            scores = [(query.T * (matrix["W_K"] * t))[0] / mpmath.sqrt(width) for t in tokens]
            terms = [mpmath.exp(s) for s in scores]
            mixed = mpmath.matrix([0, 0])
            for term, token in zip(terms, tokens, strict=True):
                mixed += term / sum(terms) * (matrix["W_V"] * token)
            return matrix["W_O"] * mixed

        step, scale = mpmath.mpf(10) ** -20, np.abs(found).max()
        for j in range(3):
            for c in range(width):
                ahead, behind = ([[mpmath.mpf(v) for v in r] for r in state.tolist()] for _ in "ab")
                ahead[j][c] += step
                behind[j][c] -= step
                column = (output(ahead) - output(behind)) / (2 * step)
                for r in range(width):
                    # rounding of scores of size `peak` is amplified by the exponential
                    assert float(column[r]) == pytest.approx(
                        found[r, j, c], rel=1e-12, abs=4e-16 * max(peak, 1) * scale
                    )


# -- activations


@pytest.mark.parametrize("name", ["relu", "relu2"])
def test_at_its_corner_relu_has_slope_zero_as_in_torch(name):
    torch = pytest.importorskip("torch")
    point = torch.zeros(1, requires_grad=True)
    (torch.relu(point) ** (2 if name == "relu2" else 1)).sum().backward()
    found = activation_function(derive.activation(name), 1)(np.array([-0.0, 0.0]))
    np.testing.assert_array_equal(found, [point.grad.item()] * 2)
    block = x + derive.FFN("relu", bias=False)(x)
    weights = {"W_1": np.eye(3), "W_2": np.eye(3)}
    J = materialise(lower(derive.jacobian(block, x), weights, np.array([[0.0, 1.0, -1.0]])))
    np.testing.assert_array_equal(J, np.diag([1.0, 2.0, 1.0]))


@pytest.mark.parametrize("at", [-5.0, -9.0, -20.0, -37.0])
@pytest.mark.parametrize("order", [0, 1])
def test_gelu_keeps_its_digits_on_the_left(at, order):
    with mpmath.workdps(40):
        t = mpmath.mpf(at)
        density = mpmath.exp(-t * t / 2) / mpmath.sqrt(2 * mpmath.pi)
        tail = mpmath.erfc(-t / mpmath.sqrt(2)) / 2
        exact = float(t * tail if order == 0 else tail + t * density)
    found = activation_function(derive.activation("gelu"), order)(np.array([at])).item()
    # exp(-t^2/2) amplifies a rounding of its argument t^2/2 by that argument
    assert found == pytest.approx(exact, rel=1e-15 * max(10, at**2), abs=0)
    assert exact != 0.0


def test_the_usual_formula_of_gelu_is_zero_at_minus_nine():
    usual = 0.5 * (1 + float(sympy.erf(sympy.Float(-9.0, 17) / sympy.sqrt(2))))
    assert usual == 0.0


# -- overflow of the state


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("std", ["1e100", "1e160", "1e300"])
def test_overflow_is_one_line_and_no_warning(placement, std, capsys):
    """Whatever it runs into, it is an answer or one clean error; warnings are errors here."""
    with pytest.raises(SystemExit) as exit_:
        main(["depth", placement, "--std", std, "--width", "4", "--layers", "4", "--tokens", "1"])
    out, err = capsys.readouterr()
    if exit_.value.code == 0:
        numbers = [float(v) for v in out.splitlines()[1].split()[1:]]
        assert np.isfinite(numbers).all()
    else:
        assert (exit_.value.code, out) == (2, "")
        assert err.startswith("derive: ")
        assert err.count("\n") == 1


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_a_variance_that_overflows_is_not_a_jacobian_of_zero(norm):
    """1/s would be 1/inf: a zero Jacobian, finite and wrong."""
    weights = layernorm_weights(1e-5, 4)
    huge = 1e200 * np.array([[1.0, -2.0, 3.0, 0.5]])
    jacobian = derive.jacobian(derive.block("N(x)", norm, "ffn"), x)
    with pytest.raises(DomainError, match="expected a number within double precision"):
        lower(jacobian, weights, huge)


def test_state_overflow_names_what_overflows():
    stack = Stack.initialised(derive.block("no-norm", "layernorm", "ffn"), x, 400, width=4, std=9.0)
    with pytest.raises(DomainError, match="expected a block whose value is within double"):
        stack.states(np.ones((1, 4)))


def test_an_exact_jacobian_beside_the_float_one_at_an_ordinary_point():
    """The dangers above are dangers of their inputs: elsewhere all digits are there."""
    point = [1, 2, -3, 4]
    exact = explicit(
        derive.jacobian(derive.LayerNorm(gain=False, bias=False, eps=sympy.Rational(1, 4))(x), x),
        {"d": 4},
        values={"x": point},
    )
    block = derive.LayerNorm(gain=False, bias=False, eps=sympy.Rational(1, 4))(x)
    found = materialise(lower(derive.jacobian(block, x), {}, np.array([point], dtype=float)))
    np.testing.assert_allclose(found, np.array(exact.evalf(30), dtype=float), rtol=0, atol=2e-16)
