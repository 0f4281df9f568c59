"""Laws against stacks: the interval, the drawn stacks, and PyTorch's own encoder layer."""

import math

import numpy as np
import pytest

from derive.errors import DomainError, UnknownNameError
from derive.laws.components import Moments
from derive.laws.law import DepthLaw
from derive.laws.measure import Estimate, interval, measure

SIZES = {"width": 64, "seeds": 16}

CASES = {
    "post": (DepthLaw("post", sublayers=("ffn:gelu",)), {}),
    "pre-rms": (DepthLaw("pre", "rmsnorm"), {}),
    "sandwich": (DepthLaw("sandwich", sublayers=("ffn:tanh",)), {}),
    "lns-gated": (DepthLaw("lns", sublayers=("gated",)), {}),
    "sub-ln": (DepthLaw("sub-ln"), {}),
    "post-attention": (
        DepthLaw("post", sublayers=("attention", "ffn:relu"), tokens=4),
        {"correlation": 0.3, "gradient_correlation": 0.8},
    ),
    "pre-apart": (
        DepthLaw("pre", sublayers=("attention",), tokens=3),
        {"correlation": -0.4, "gradient_correlation": -0.2},
    ),
    "decoder": (
        DepthLaw(
            "decoder-2017", sublayers=("attention", "ffn"), tokens=4, memory=Moments(1.0, 1.0)
        ),
        {},
    ),
    "streams": (DepthLaw("residual"), {}),
    "streams-in-turn": (
        DepthLaw("siamesenorm", sublayers=("attention", "ffn:relu"), tokens=3),
        {"gradient_correlation": 0.5},
    ),
    "mixed": (DepthLaw("mix-ln"), {}),
    "xavier": (DepthLaw("pre", init="xavier"), {}),
    "he": (DepthLaw("post", sublayers=("ffn:gelu",), init="he"), {}),
    "gpt2": (DepthLaw("pre", sublayers=("ffn:gelu",), init="gpt2"), {"width": 96}),
    "deepnorm": (
        DepthLaw("deepnorm", sublayers=("attention", "ffn:relu"), init="deepnorm", tokens=2),
        {"gradient_correlation": 1.0},
    ),
    "start": (DepthLaw("no-norm", sublayers=("ffn:gelu",)), {"start": 0.1}),
}


@pytest.fixture(scope="module")
def measured():
    return {k: measure(law, 4, **{**SIZES, **options}) for k, (law, options) in CASES.items()}


def test_the_intervals_hold_the_laws_as_often_as_they_should(measured):
    """32 intervals of 95 %: more than 5 misses have a chance of 0.5 %."""
    missed = []
    for name, found in measured.items():
        for what in ("growth", "gradient_ratio"):
            if not getattr(found, what).covers(getattr(found.predicted, what)):
                missed.append((name, what))
    assert len(missed) <= 5, missed


@pytest.mark.parametrize(
    ("case", "wrong", "options"),
    [
        ("pre-rms", DepthLaw("pre", "rmsnorm", ("ffn:gelu",), init="he"), {}),
        ("pre-rms", DepthLaw("sandwich", "rmsnorm"), {}),
        ("xavier", DepthLaw("pre", init="he"), {}),
        ("post-attention", DepthLaw("post", tokens=4), {"gradient_correlation": 0.8}),
        ("decoder", DepthLaw("decoder-2017", sublayers=("attention", "ffn"), tokens=4), {}),
        ("start", DepthLaw("no-norm", sublayers=("ffn:gelu",)), {"start": 10.0}),
    ],
)
def test_a_wrong_law_is_rejected(measured, case, wrong, options):
    found, other = measured[case], wrong.predict(4, width=64, **options)
    assert not (
        found.growth.covers(other.growth) and found.gradient_ratio.covers(other.gradient_ratio)
    )


def test_a_quantity_without_spread_is_its_own_interval(measured):
    assert measured["post"].growth.high - measured["post"].growth.low < 1e-10
    assert measured["post"].growth.covers(1.0)
    assert not measured["post"].growth.covers(1 + 1e-6)


def test_a_seed_gives_the_same_stacks_again():
    law = DepthLaw("pre", sublayers=("attention",), tokens=2)
    small = {"width": 8, "seeds": 2}
    assert measure(law, 2, **small) == measure(law, 2, **small)
    assert measure(law, 2, **small) != measure(law, 2, seed=5, **small)


def test_the_interval_covers_the_mean_of_a_log_normal():
    """Mean exp(m + s^2/2); coverage of 1000 intervals within four standard errors of 95 %."""
    rng = np.random.default_rng(3)
    for spread in (0.05, 0.8):
        truth = math.exp(0.3 + spread**2 / 2)
        draws = rng.normal(0.3, spread, size=(1000, 20))
        inside = np.mean([interval(row).covers(truth) for row in draws])
        assert abs(inside - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 1000)


def test_the_interval_at_its_edges():
    assert interval([-math.inf, -math.inf]) == Estimate(0.0, 0.0, 0.0)
    assert interval([2.0, 2.0, 2.0]).covers(math.exp(2))
    assert interval([-400.0, 400.0]).high == math.inf
    wide, narrow = interval([0.0, 1.0, 2.0], 0.99), interval([0.0, 1.0, 2.0], 0.5)
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high
    for values, options, match in (
        ([1.0], {}, "log_values: expected at least 2"),
        ([1.0, math.nan], {}, "log_values: expected finite"),
        ([1.0, -math.inf], {}, "log_values: expected finite"),
        ([1.0, 2.0], {"confidence": 1.0}, "confidence: expected between 0 and 1, got 1.0"),
    ):
        with pytest.raises(DomainError, match=match):
            interval(values, **options)


def test_what_cannot_be_measured():
    with pytest.raises(DomainError, match="seeds: expected at least 2, got 1"):
        measure(DepthLaw("pre"), 2, seeds=1)
    with pytest.raises(DomainError, match="correlation"):
        measure(DepthLaw("pre", tokens=4), 2, width=8, correlation=-0.5)
    with pytest.raises(UnknownNameError, match="backend: expected one of derived, torch, got 'np'"):
        measure(DepthLaw("pre"), 2, width=8, backend="np")
    with pytest.raises(UnknownNameError, match="dtype: expected float64 for derived"):
        measure(DepthLaw("pre"), 2, width=8, dtype="float32")


@pytest.mark.torch
@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize(("alike", "together"), [(0, 0), (0, 1), (1, 0)])
def test_pytorch_encoder_layers_do_what_the_law_says(norm_first, alike, together):
    """torch.nn.TransformerEncoderLayer with its own autograd; queries zero, no dropout.

    Within four standard errors over seeds, and L/d for the width being finite.
    """
    import torch

    width, tokens, layers, seeds = 96, 8, 3, 16
    rows = []
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape, generator=generator):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        stack = []
        for _ in range(layers):
            one = torch.nn.TransformerEncoderLayer(
                width,
                nhead=2,
                dim_feedforward=2 * width,
                dropout=0.0,
                activation="relu",
                layer_norm_eps=1e-12,
                batch_first=True,
                norm_first=norm_first,
                bias=False,
                dtype=torch.float64,
            )
            with torch.no_grad():
                one.self_attn.in_proj_weight.copy_(normal(3 * width, width) / math.sqrt(width))
                one.self_attn.in_proj_weight[:width] = 0
                for weight in (one.self_attn.out_proj, one.linear1, one.linear2):
                    weight.weight.copy_(normal(*weight.weight.shape) / weight.in_features**0.5)
            stack.append(one)
        x = normal(1, 1 if alike else tokens, width).expand(1, tokens, width)
        x = (x / x.pow(2).mean().sqrt()).clone().requires_grad_()
        y = x
        for one in stack:
            y = one(y)
        g = normal(1, 1 if together else tokens, width).expand(1, tokens, width)
        (back,) = torch.autograd.grad(y, x, g)
        grown, ratio = y.detach().pow(2).mean(), back.pow(2).sum() / g.pow(2).sum()
        rows.append([math.log(grown), math.log(ratio)])
    law = DepthLaw("pre" if norm_first else "post", sublayers=("attention", "ffn:relu"), tokens=8)
    found = law.predict(2 * layers, correlation=alike, gradient_correlation=together)
    other = law.predict(2 * layers, correlation=1 - alike, gradient_correlation=1 - together)
    logs = np.array(rows)
    spread = logs.var(axis=0, ddof=1)
    mean = logs.mean(axis=0) + spread / 2
    slack = 4 * np.sqrt(spread / seeds + spread**2 / (2 * seeds)) + 2 * layers / width
    assert np.all(np.abs(mean - np.log([found.growth, found.gradient_ratio])) < slack)
    if alike != together:
        assert abs(mean[1] - math.log(other.gradient_ratio)) > slack[1]
