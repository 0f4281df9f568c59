"""Attention behind a causal mask: tokens that differ, against stacks written out in NumPy."""

import numpy as np
import pytest

from derive.laws.law import DepthLaw
from derive.laws.measure import measure
from derive.laws.moments import Moments, TokenMoments

WIDTH, TOKENS, SEEDS = 128, 5, 60
START, END = 0.3, 0.6
"""Correlation of the tokens of the input, and of the gradient at the output."""


def correlated(rng, correlation):
    own, shared = rng.normal(size=(TOKENS, WIDTH)), rng.normal(size=WIDTH)
    return np.sqrt(1 - correlation) * own + np.sqrt(correlation) * shared


def normed(z):
    """LayerNorm at eps = 0, and its transposed Jacobian."""
    c = z - z.mean(axis=1, keepdims=True)
    s = np.sqrt(np.mean(c**2, axis=1, keepdims=True))
    h = c / s

    def back(g):
        return (g - g.mean(axis=1, keepdims=True) - h * np.mean(g * h, axis=1, keepdims=True)) / s

    return h, back


def matrix(rng):
    return rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH)


def simulated(post, layers, seed):
    """Mean squares of every token at the end, and of its gradient at the start."""
    rng = np.random.default_rng((seed, 11))
    average = np.tril(np.ones((TOKENS, TOKENS))) / np.arange(1, TOKENS + 1)[:, None]
    x, tape = correlated(rng, START), []
    for number in range(layers):
        a, b = matrix(rng), matrix(rng)
        z, through = (x, None) if post else normed(x)
        if number % 2 == 0:
            out = average @ z @ a.T @ b.T

            def branch(g, a=a, b=b):
                return average.T @ g @ b @ a
        else:
            on = z @ a.T > 0
            out = (z @ a.T * on) @ b.T

            def branch(g, a=a, b=b, on=on):
                return (g @ b * on) @ a

        if post:
            x, back = normed(x + out)
            tape.append(lambda g, back=back, branch=branch: back(g) + branch(back(g)))
        else:
            x = x + out
            tape.append(lambda g, through=through, branch=branch: g + through(branch(g)))
    g = correlated(rng, END)
    ahead = np.mean(x**2, axis=1)
    for step in reversed(tape):
        g = step(g)
    return ahead, np.mean(g**2, axis=1)


@pytest.mark.parametrize("post", [False, True], ids=["pre", "post"])
def test_every_token_has_the_mean_square_of_the_law(post):
    """Five standard errors and L/d; the mean over all tokens of a law without mask is out."""
    layers = 4
    runs = np.array([simulated(post, layers, seed) for seed in range(SEEDS)])
    mean, error = runs.mean(axis=0), runs.std(axis=0, ddof=1) / np.sqrt(SEEDS)
    name = "post" if post else "pre"
    correlations = {"correlation": START, "gradient_correlation": END}

    def law(attention):
        sublayers = (attention, "ffn:relu")
        return DepthLaw(name, sublayers=sublayers, tokens=TOKENS).predict(layers, **correlations)

    found = law("causal-attention")
    profiles = (found.forward_tokens[-1], found.gradient_tokens[0])
    other = law("attention")
    for k, (profile, flat) in enumerate(
        zip(profiles, (other.forward[-1].v, other.gradient[0].v), strict=True)
    ):
        assert np.all(np.abs(mean[k] - profile) < 5 * error[k] + layers / WIDTH * profile)
        if k or not post:  # behind a norm every token has mean square 1
            assert np.any(np.abs(mean[k] - flat) > 5 * error[k] + layers / WIDTH * flat)
            assert np.any(np.abs(mean[k] - profile[::-1]) > 5 * error[k] + layers / WIDTH)
    assert found.growth == pytest.approx(profiles[0].mean())
    assert found.gradient_ratio == pytest.approx(profiles[1].mean())
    assert found.gradient_tokens[0, 0] > found.gradient_tokens[0, -1]


def test_one_step_is_the_average_and_the_gradient_its_transpose():
    """x + A(x) at lecun weights, n = 2: token 1 stays, token 2 becomes the mean of both."""
    law = DepthLaw("x + F(x)", sublayers=("causal-attention",), tokens=2).predict(1)
    assert np.allclose(law.forward_tokens[1], [2.0, 1.5])
    assert np.allclose(law.gradient_tokens[0], [1 + 1 + 1 / 4, 1 + 1 / 4])


def test_one_token_and_no_mask_are_the_law_of_two_numbers():
    for tokens, causal in ((1, "causal-attention"), (6, "attention")):
        laws = [
            DepthLaw("sandwich", sublayers=(name, "ffn:gelu"), tokens=tokens).predict(9)
            for name in (causal, "attention")
        ]
        assert laws[0].growth == pytest.approx(laws[1].growth, rel=1e-12)
        assert laws[0].gradient_ratio == pytest.approx(laws[1].gradient_ratio, rel=1e-12)


def test_a_law_token_by_token_is_the_exchangeable_one_where_no_token_differs(monkeypatch):
    """The same blocks with n x n matrices and with two numbers."""
    for placement in ("post", "pre", "normformer", "decoder-2017", "residual", "hybridnorm"):
        law = DepthLaw(placement, sublayers=("attention", "gated"), tokens=4)
        options = {"correlation": 0.2, "gradient_correlation": -0.1}
        two = law.predict(4, **options)
        with monkeypatch.context() as patched:
            patched.setattr(DepthLaw, "causal", True)
            many = law.predict(4, **options)
        for a, b in zip(
            (*two.forward, *two.gradient), (*many.forward, *many.gradient), strict=True
        ):
            assert tuple(b) == pytest.approx(tuple(a), rel=1e-10, abs=1e-12)


def test_drawn_stacks_do_what_the_law_says():
    law = DepthLaw("lns", sublayers=("causal-attention", "ffn:gelu"), tokens=4)
    options = {"width": 64, "correlation": 0.2, "gradient_correlation": 0.5}
    found = measure(law, 4, seeds=16, confidence=0.99, **options)
    assert found.ok
    other = DepthLaw("lns", sublayers=("attention", "ffn:gelu"), tokens=4).predict(4, **options)
    assert not found.gradient_ratio.covers(other.gradient_ratio)


def test_token_moments_are_means_and_correlations():
    found = TokenMoments(np.array([[1.0, 0.5, 0.0], [0.5, 4.0, 0.0], [0.0, 0.0, 0.0]]))
    assert found.mean() == Moments(pytest.approx(5 / 3), pytest.approx(1 / 6))
    assert np.allclose(found.ratio(), [[1, 0.25, 0], [0.25, 1, 0], [0, 0, 0]])
    assert np.allclose(found.times([1, 2, 3], 1).matrix[1], [1.0, 8.0, 0.0])
