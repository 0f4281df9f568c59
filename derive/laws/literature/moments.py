r"""Kedia et al., 2024 (DeepScaleLM): closed-form moments of every component, and of whole stacks.

Their formulas are those of the authors' ``simulations/*.py``; an entry of a signal has variance
:math:`s^2` and, at two tokens, correlation r; a gradient :math:`s_g^2` and :math:`r_g`. Their
"variance" and "covariance" are centred, so that ours are :math:`K(s^2, r) - K(s^2, 0)`: at
correlation 0 the kernel is the square of the mean.
"""

from __future__ import annotations

import math

import sympy as sp

from derive.laws.components import Moments
from derive.laws.gaussian import dual_kernel
from derive.laws.initial import Scheme
from derive.laws.law import DepthLaw
from derive.laws.literature.entry import Comparison, Published, between, equals

__all__ = ["MOMENTS"]

UNIT = Scheme("unit", lambda fan_in, fan_out: sp.sqrt(2) / fan_in, "own: relu blocks of gain 1")
"""Weights at which a relu block keeps the mean square, as DeepScaleLM's initialisation makes it."""


def _activation(
    name: str, published: tuple[float, ...], s: float, r: float
) -> tuple[Comparison, ...]:
    kernel, q = dual_kernel(name), s * s
    mean = math.sqrt(kernel.value(q, 0.0))
    ours = (
        mean,
        kernel.value(q, 1.0) - mean**2,
        kernel.value(q, r) - mean**2,
        kernel.slope(q, 1.0),
        kernel.slope(q, r),
    )
    names = ("mean", "variance", "covariance", "gradient variance", "gradient covariance")
    return tuple(
        equals(what, want, have) for what, want, have in zip(names, published, ours, strict=True)
    )


def _relu(s: float, r: float, law: str) -> tuple[Comparison, ...]:
    q, twice = s * s, 2 * math.pi
    published = (
        s / math.sqrt(twice),
        q * (math.pi - 1) / twice,
        q * (math.pi * r + math.sqrt(1 - r * r) - r * math.acos(r) - 1) / twice,
        0.5,
        0.25 + math.asin(r) / twice,
    )
    return _activation(law, published, s, r)


def _gelu(s: float, r: float, law: str) -> tuple[Comparison, ...]:
    q, twice = s * s, 2 * math.pi
    a, det = q / (1 + q), (1 + q) ** 2 - (r * q) ** 2
    mean = s * math.sqrt(a / twice)
    inner = q * (2 / math.pi) * (q * (1 - r * r) + 1 + r * r) / ((q + 1) * math.sqrt(det))
    published = (
        mean,
        q / twice * (math.pi - a - math.acos(a) + 2 * a * math.sqrt((1 - a) / (1 + a))),
        q / 4 * (r + r * math.asin(r * a) * 2 / math.pi + inner) - mean**2,
        0.5 + (-math.acos(a) + a * (5 * q + 3) / (1 + 2 * q) ** 1.5) / twice,
        0.5
        + (-math.acos(r * a) + r * a * ((q + 1) * (2 * q + 3) - 2 * (r * q) ** 2) / det**1.5)
        / twice,
    )
    return _activation(law, published, s, r)


def _linear(width: int, s: float, init: str) -> tuple[Comparison, ...]:
    variance = 1.0 / width  # of a weight: sigma_w^2
    law = DepthLaw("F(x)", sublayers=("attention",), init=init)  # one token: W_O W_V
    found = law.predict(1, width=width, start=s * s)
    twice = (width * variance) ** 2
    return (
        equals("variance behind two maps", twice * s * s, found.forward[-1].v),
        equals("gradient variance behind two maps", twice, found.gradient[0].v),
    )


def _attention(tokens: int, s: float, r: float, r_g: float, init: str) -> tuple[Comparison, ...]:
    law = DepthLaw("F(x)", sublayers=("attention",), tokens=tokens, init=init)
    found = law.predict(1, correlation=r, gradient_correlation=r_g, start=s * s)
    n = tokens
    forward = s * s * ((1 - r) / n + r)
    return (
        equals("variance, queries 0", forward, found.forward[-1].v),
        equals("covariance, queries 0", forward, found.forward[-1].c),
        equals("gradient variance", (1 + (n - 1) * r_g) / n, found.gradient[0].v),
        equals("gradient covariance", (1 + (n - 1) * r_g) / n, found.gradient[0].c),
    )


def _layernorm(width: int, s: float, r: float, norm: str) -> tuple[Comparison, ...]:
    law = DepthLaw("N(x)", norm, tokens=2)
    found = law.predict(1, width=width, correlation=r, start=s * s)
    return (
        equals("variance", 1.0, found.forward[-1].v),
        equals("gradient variance", 1 / (s * s), found.gradient[0].v),
        equals("covariance r (1 - 1/d)", r * (1 - 1 / width), found.forward[-1].c),
    )


def _forward_growth(placement: str, sublayer: str) -> tuple[Comparison, ...]:
    law = DepthLaw(placement, sublayers=(sublayer,))
    low, high = (law.predict(n) for n in (192, 384))
    last = high.forward[383].v * high.gradient[383].v, high.forward[1].v * high.gradient[1].v
    return (
        equals("exponent of v_L in L", 1.0, math.log2(high.growth / low.growth), 1e-2),
        equals("|g_l|^2 v_l, first over last block", 1.0, last[1] / last[0], 1e-6),
    )


def _backward_post(tokens: int, activation: str) -> tuple[Comparison, ...]:
    def rate(law: DepthLaw, same: float = 0.0) -> float:
        low, high = (law.predict(n, gradient_correlation=same).gradient_ratio for n in (32, 64))
        return abs(math.log(high / low)) / 32

    memory = Moments(1.0, 1.0)
    cases = {
        f"|rate| a block, {activation} block": rate(DepthLaw("post", sublayers=(activation,))),
        "|rate| a block, relu block": rate(DepthLaw("post")),
        "|rate| a block, self-attention": rate(
            DepthLaw("post", sublayers=("attention",), tokens=tokens), 1.0
        ),
        "|rate| a block, cross-attention on equal tokens": rate(
            DepthLaw("N(x + C(x))", sublayers=("attention",), tokens=tokens, memory=memory)
        ),
    }
    return tuple(between(what, 1e-3, math.inf, value) for what, value in cases.items())


def _deepscale(layers: int, init: str | Scheme, placement: str) -> tuple[Comparison, ...]:
    lam, beta = math.sqrt(1 - 2 / layers), math.sqrt(2 / layers)
    equation = {"pre": "lam*x + beta*F(N(x))", "post": "N(lam*x + beta*F(x))"}[placement]
    law = DepthLaw(equation, init=init, values={"lam": lam, "beta": beta})
    found = law.predict(2 * layers)
    return (
        equals("v_L/v_0", 1.0, found.growth),
        equals("E|g_0|^2/E|g_L|^2", 1.0, found.gradient_ratio),
    )


def _dropout(p: float, s: float, mean: float) -> tuple[Comparison, ...]:
    kept = sp.Rational(str(1 - p))
    x2 = s * s + mean * mean
    second = sum(w * y * y for w, y in ((1 - kept, sp.S.Zero), (kept, 1 / kept))) * x2
    return (
        equals("variance", (s * s + p * mean * mean) / (1 - p), float(second) - mean**2),
        equals("gradient variance", 1 / (1 - p), float(second / x2)),
    )


def _softmax(tokens: int, spread: float) -> tuple[Comparison, ...]:
    published = (math.exp(spread**2) - 1) / tokens**2
    law = DepthLaw("F(x)", sublayers=("attention",), tokens=tokens)
    squares = law.predict(1).forward[-1].v  # independent tokens: n times the square of a weight
    return (
        equals("mean of a weight", 1 / tokens, squares),
        equals("variance of a weight", published, squares / tokens - 1 / tokens**2),
    )


_ACTIVATIONS = {"s": 1.0, "r": 0.5}

MOMENTS = (
    Published(
        "kedia-linear",
        "kedia",
        "simulations/linear.py",
        "code",
        "a linear map: variance d_in s^2 sigma_w^2, gradient d_out s_g^2 sigma_w^2",
        _linear,
        {"width": 256, "s": 3.0, "init": "lecun"},
        "the gain of a map, twice here, in the value and output projection of one token",
    ),
    Published(
        "kedia-relu",
        "kedia",
        "simulations/relu.py",
        "code",
        "relu: mean, variance, covariance, gradient variance and covariance, at s = 1, r = 1/2",
        _relu,
        {**_ACTIVATIONS, "law": "relu"},
        "the dual kernels of relu, of Cho and Saul",
    ),
    Published(
        "kedia-gelu",
        "kedia",
        "simulations/gelu.py",
        "code",
        "gelu: mean, variance, covariance, gradient variance and covariance, at s = 1, r = 1/2",
        _gelu,
        {**_ACTIVATIONS, "law": "gelu"},
        "the dual kernels of gelu, derived here by Stein's identity in another form",
    ),
    Published(
        "kedia-attention",
        "kedia",
        "simulations/SHA.py",
        "code",
        "attention without dropout, one map: variance, covariance and their gradients",
        _attention,
        {"tokens": 16, "s": 1.0, "r": 0.3, "r_g": 0.5, "init": "lecun"},
        "equal at queries of zero, where attention is uniform; with scores their gradient variance "
        "is off by up to 44.5 % in the authors' own expected_output.txt (99th percentile)",
    ),
    Published(
        "kedia-layernorm",
        "kedia",
        "simulations/layernorm.py",
        "code",
        "LayerNorm: variance 1, gradient s_g^2/s^2, covariance r (1 - 1/d)",
        _layernorm,
        {"width": 64, "s": 3.0, "r": 0.5, "norm": "layernorm"},
        "the law is for wide layers and has r; the mean of a sample correlation is "
        "r (1 - (1 - r^2)/(2d)) to first order, so that r (1 - 1/d) has the wrong share of 1/d",
    ),
    Published(
        "kedia-dropout",
        "kedia",
        "simulations/dropout.py",
        "code",
        "dropout: variance (s^2 + p mean^2)/(1 - p), gradient s_g^2/(1 - p)",
        _dropout,
        {"p": 0.1, "s": 1.0, "mean": 0.5},
        "the two outcomes of the mask, summed; the depth laws are without dropout",
    ),
    Published(
        "kedia-softmax",
        "kedia",
        "simulations/softmax.py",
        "code",
        "softmax of n scores of variance s^2: mean 1/n, variance (exp(s^2) - 1)/n^2",
        _softmax,
        {"tokens": 256, "spread": 0.5},
        "the laws take uniform weights, as at scores of zero: the mean agrees, the variance is "
        "left out",
    ),
    Published(
        "kedia-pre-stack",
        "kedia",
        "statement on Pre-LN",
        "second-hand",
        "pre-norm: v_L = Theta(L), gradients grow hyperbolically towards the input",
        _forward_growth,
        {"placement": "pre", "sublayer": "ffn:relu"},
        "|g_l|^2 v_l is the same at every l: a hyperbola in l. For gelu it is a power "
        "(v_L/v_l)^1.072",
    ),
    Published(
        "kedia-post-stack",
        "kedia",
        "statement on Post-LN",
        "second-hand",
        "post-norm: gradients decay or explode exponentially with depth",
        _backward_post,
        {"tokens": 16, "activation": "ffn:gelu"},
        "exponential with smooth activations (2 % a block for gelu) and in cross-attention "
        "((1/2)^L on equal tokens); constant for relu blocks, and between 1/n and n in all for "
        "self-attention",
    ),
    Published(
        "kedia-deepscalelm",
        "kedia",
        "DeepScaleLM, residual scales",
        "memory",
        "lambda^2 = 1 - 2/N, beta^2 = 2/N keep the moments of the state and of the gradient at 1, "
        "with branches of unit gain, N layers of two blocks",
        _deepscale,
        {"layers": 48, "init": UNIT, "placement": "pre"},
        "lambda^2 + beta^2 f = 1 at f = 1, and b = f for relu; with 1/fan-in weights f = 1/2 and "
        "neither stays",
    ),
)
