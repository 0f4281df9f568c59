"""Attention weights that are not uniform, dropout and biases, against integrals and PyTorch."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from derive.errors import DomainError, UnknownNameError, UnknownNodeError
from derive.laws.law import DepthLaw
from derive.laws.measure import measure
from derive.laws.moments import Moments
from derive.laws.softmax import softmax_moments

pytestmark = pytest.mark.slow

# -- moments of a softmax


@pytest.mark.parametrize("variance", [0.04, 1.0, 9.0])
def test_two_tokens_have_the_moments_of_a_logistic_function(variance):
    """P_1 = 1/(1 + exp(-t)), t normal of variance 2 s^2; an adaptive integral over t."""

    def mean(of):
        def integrand(z):
            p = 1 / (1 + math.exp(-math.sqrt(2 * variance) * z))
            return of(p, 1 - p) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

        return quad(integrand, -12, 12, epsabs=1e-13, limit=200)[0]

    found = softmax_moments(2, variance, 1.0)
    assert found.same == pytest.approx(mean(lambda p, q: p * p + q * q), rel=1e-9)
    score = mean(lambda p, q: p * p + q * q - 2 * (p**3 + q**3) + (p * p + q * q) ** 2)
    assert found.same_score == pytest.approx(score, rel=1e-7)
    assert (found.other, found.other_score) == (found.same, found.same_score)


@pytest.mark.parametrize(
    ("tokens", "variance", "rho"), [(5, 1.0, 0.0), (16, 1.0, 0.6), (4, 6.0, -0.3)]
)
def test_moments_of_two_rows_agree_with_draws(tokens, variance, rho):
    """Five standard errors of 100,000 draws; a correlation of another sign or 0.2 off is out."""
    rng, draws = np.random.default_rng(tokens), 100_000
    shared, own, other = rng.normal(size=(3, draws, tokens))
    rows = []
    for sign, part in ((1, own), (math.copysign(1, rho), other)):
        mixed = sign * math.sqrt(abs(rho)) * shared + math.sqrt(1 - abs(rho)) * part
        e = np.exp(math.sqrt(variance) * mixed)
        rows.append(e / e.sum(axis=1, keepdims=True))
    p, q = rows
    squares, overlap = (p * p).sum(axis=1), (p * q).sum(axis=1)
    drawn = (
        squares,
        overlap,
        squares - 2 * (p**3).sum(axis=1) + squares**2,
        overlap - (p * q * (p + q)).sum(axis=1) + overlap**2,
    )
    found, wrong = softmax_moments(tokens, variance, rho), softmax_moments(tokens, variance, 0.9)
    for value, sample in zip(found, drawn, strict=True):
        assert abs(value - sample.mean()) < 5 * sample.std() / math.sqrt(draws)
    assert abs(wrong.other - overlap.mean()) > 5 * overlap.std() / math.sqrt(draws)


def test_moments_at_their_edges():
    """One token, no variance, and the limit exp(rho s^2)/n of many tokens."""
    assert softmax_moments(1, 3.0, 0.2) == (1, 1, 0, 0)
    assert softmax_moments(4, 0.0, 0.2) == pytest.approx((1 / 4, 1 / 4, 3 / 16, 3 / 16))
    many = softmax_moments(20_000, 1.0, 0.5)
    assert many.same * 20_000 == pytest.approx(math.e, rel=1e-3)
    assert many.other * 20_000 == pytest.approx(math.exp(0.5), rel=1e-3)
    apart = softmax_moments(7, 2.0, 0.0)  # rows that have nothing in common overlap as 1/n
    assert apart.other == pytest.approx(1 / 7, rel=1e-9)
    for arguments, match in (
        ((0, 1.0, 0.0), "at least 1 token"),
        ((4, 1.0, 1.5), "a correlation in"),
        ((4, -1.0, 0.0), "expected a variance from 0 to 16, got -1"),
        ((4, 1e9, 0.0), "expected a variance from 0 to 16"),
        ((4, math.nan, 0.0), "expected a variance"),
    ):
        with pytest.raises(DomainError, match=match):
            softmax_moments(*arguments)


# -- laws


@pytest.mark.parametrize(
    ("placement", "correlations"),
    [
        ("pre", {}),
        ("post", {"correlation": 0.5, "gradient_correlation": 1.0}),
        ("hybridnorm", {"correlation": 0.3, "gradient_correlation": 0.3}),
    ],
)
def test_stacks_with_random_queries_do_what_the_law_says(placement, correlations):
    """99 % intervals; the law of uniform weights is out."""
    laws = [
        DepthLaw(placement, sublayers=("attention", "ffn:relu"), tokens=8, scores=scores)
        for scores in ("gaussian", "uniform")
    ]
    found = measure(laws[0], 3, width=96, heads=2, seeds=20, confidence=0.99, **correlations)
    assert found.ok
    other = laws[1].predict(3, **correlations)
    if placement != "hybridnorm":
        assert not found.gradient_ratio.covers(other.gradient_ratio)


def test_gradients_of_queries_and_keys_are_those_of_the_law():
    law = DepthLaw("pre", sublayers=("attention",), tokens=6, scores="gaussian")
    options = {"width": 96, "correlation": 0.3, "gradient_correlation": 0.5}
    found = measure(law, 2, heads=2, seeds=20, confidence=0.99, weights=True, **options)
    for one in found.weights_covered():
        assert one == dict.fromkeys(("W_O", "W_V", "W_K", "W_Q"), True)
    wrong = DepthLaw("pre", sublayers=("attention",), tokens=6).predict(2, **options)
    assert wrong.weights[0]["W_K"] == 0 < found.weights[0]["W_K"].low


def test_a_decoder_of_gaussian_scores_keeps_a_path_to_its_queries():
    """Uniform cross-attention passes no gradient; random queries pass one of order 1/n."""
    laws = {
        scores: DepthLaw("N(x + C(x))", sublayers=("attention",), tokens=8, scores=scores)
        for scores in ("uniform", "gaussian")
    }
    ratio = {k: law.predict(2).gradient_ratio for k, law in laws.items()}
    assert ratio["gaussian"] > 1.05 * ratio["uniform"]
    found = measure(laws["gaussian"], 2, width=64, seeds=40, confidence=0.99)
    assert found.ok
    assert not found.gradient_ratio.covers(ratio["uniform"])
    same = DepthLaw(
        "N(x + C(x))", sublayers=("attention",), tokens=8, scores="gaussian", memory=Moments(1, 1)
    )
    assert same.predict(6).gradient_ratio == pytest.approx(0.5**6)


def test_at_queries_of_zero_gaussian_scores_are_uniform_ones():
    laws = [
        DepthLaw("post", sublayers=("attention",), tokens=5, init="mup", scores=scores)
        for scores in ("uniform", "gaussian")
    ]
    options = {"correlation": 0.2, "gradient_correlation": 0.4}
    found = [law.predict(7, **options) for law in laws]
    assert found[0].gradient_ratio == pytest.approx(found[1].gradient_ratio, rel=1e-12)


def test_dropout_of_hidden_features_and_outputs_in_closed_form():
    """Twice 1/(1 - p) at one token: v_L = 1 + L/2/(1 - p)^2, and the gradient likewise."""
    law = DepthLaw("pre", dropout=0.25)
    assert law.solution.at(9) == pytest.approx((1 + 8, 1 + 8))
    assert law.predict(9).growth == pytest.approx(9)


def test_a_matrix_of_tokens_has_the_dropout_of_two_numbers(monkeypatch):
    law = DepthLaw("pre", sublayers=("attention", "ffn:gelu"), tokens=4, dropout=0.3, init="torch")
    options = {"correlation": 0.2, "gradient_correlation": 0.6}
    two = law.predict(4, **options)
    monkeypatch.setattr(DepthLaw, "causal", True)
    many = law.predict(4, **options)
    for a, b in zip((*two.forward, *two.gradient), (*many.forward, *many.gradient), strict=True):
        assert tuple(b) == pytest.approx(tuple(a), rel=1e-10)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"scores": "peaked"}, UnknownNameError, "scores: expected one of uniform, gaussian, got"),
        ({"dropout": 1.0}, DomainError, "dropout: expected from 0 to below 1, got 1.0"),
        ({"dropout": math.nan}, DomainError, "dropout"),
        (
            {"scores": "gaussian", "sublayers": ("causal-attention",)},
            UnknownNodeError,
            "got F with a causal mask",
        ),
        (
            {"scores": "gaussian", "sublayers": ("rotary-attention",)},
            UnknownNodeError,
            "with rotary positions",
        ),
    ],
)
def test_what_has_no_law_is_refused(options, error, match):
    with pytest.raises(error, match=match):
        DepthLaw("pre", **{"sublayers": ("attention",), "tokens": 4, **options}).predict(2)


def test_stacks_are_not_drawn_with_dropout():
    with pytest.raises(DomainError, match=r"dropout: expected 0, as in the stacks drawn, got 0\.1"):
        measure(DepthLaw("pre", dropout=0.1), 2, width=8, seeds=2)


@pytest.mark.torch
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
def test_pytorch_encoder_layers_as_they_start_training(norm_first, causal):
    """torch.nn.TransformerEncoderLayer with its own weights, biases and dropout, in training mode.

    Five standard errors over seeds, and L/d for the width being finite; laws with other weights and
    other dropout are out. Behind a mask queries are zero.
    """
    import torch

    width, tokens, layers, seeds, rate = 96, 5, 2, 40, 0.3
    rows = []
    mask = torch.full((tokens, tokens), -math.inf, dtype=torch.float64).triu(1) if causal else None
    for seed in range(seeds):
        torch.manual_seed(seed)
        stack = [
            torch.nn.TransformerEncoderLayer(
                width,
                nhead=2,
                dim_feedforward=2 * width,
                dropout=rate,
                activation="relu",
                layer_norm_eps=1e-12,
                batch_first=True,
                norm_first=norm_first,
                dtype=torch.float64,
            )
            for _ in range(layers)
        ]
        if causal:
            with torch.no_grad():
                for one in stack:
                    one.self_attn.in_proj_weight[:width] = 0
        x = torch.randn(1, tokens, width, dtype=torch.float64)
        x = (x / x.pow(2).mean().sqrt()).requires_grad_()
        y = x
        for one in stack:
            y = one(y, src_mask=mask)
        g = torch.randn(1, 1, width, dtype=torch.float64).expand(1, tokens, width)
        (back,) = torch.autograd.grad(y, x, g)
        rows.append([float(y.detach().pow(2).mean()), float(back.pow(2).sum() / g.pow(2).sum())])

    def law(**changed):
        kind = "causal-attention" if causal else "attention"
        made = DepthLaw(
            "pre" if norm_first else "post",
            sublayers=(kind, "ffn:relu"),
            **{
                "init": "torch",
                "tokens": tokens,
                "dropout": rate,
                "scores": "uniform" if causal else "gaussian",
                **changed,
            },
        )
        found = made.predict(2 * layers, width=width, hidden=2 * width, gradient_correlation=1.0)
        return np.array([found.growth, found.gradient_ratio])

    runs, right = np.array(rows), law()
    slack = 5 * runs.std(axis=0, ddof=1) / math.sqrt(seeds) + 2 * layers / width
    distance = {
        name: np.abs(runs.mean(axis=0) - law(**changed)) / slack
        for name, changed in (
            ("right", {}),
            ("init", {"init": "lecun"}),
            ("dropout", {"dropout": 0.6}),
            ("no dropout", {"dropout": 0.0}),
        )
    }
    assert np.all(distance["right"] < 1), (runs.mean(axis=0), right)
    assert np.any(distance["init"] > 1)
    if norm_first:  # a norm behind the sum takes most of dropout's share back
        assert np.any(distance["dropout"] > 1)
        assert np.any(distance["no dropout"] > 1)
