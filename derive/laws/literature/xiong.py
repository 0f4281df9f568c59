r"""Xiong et al., 2020: moments of the states, and gradients of the weights, post- and pre-norm.

Their setting: uniform attention, matrices of variance 1/d, hidden width d, relu, one token here.
"""

from __future__ import annotations

import math

from derive.laws.law import DepthLaw, Prediction
from derive.laws.literature.entry import Comparison, Published, between, equals
from derive.laws.literature.shares import identity_path, shares

__all__ = ["XIONG"]

LAYER = ("attention", "ffn:relu")


def _lemma_2_post(init: str, width: int) -> tuple[Comparison, ...]:
    law = DepthLaw("no-norm", init=init)  # the argument of the norm in N(x + F(x))
    found = law.predict(1, width=width, hidden=width).growth
    return (equals("E|x|^2/d before the last norm of a layer", 1.5, found),)


def _lemma_2_pre(layers: int, tokens: int, init: str) -> tuple[Comparison, ...]:
    law = DepthLaw("pre", sublayers=LAYER, tokens=tokens, init=init)
    low, high = 1 + layers / 2, 1 + 3 * layers / 2
    apart, same = (law.predict(2 * layers, correlation=r).growth for r in (0.0, 1.0))
    return (
        between("E|x_l|^2/d, tokens independent", low, high, apart),
        equals("E|x_l|^2/d, tokens all the same: the upper end", high, same),
    )


def _norm(found: Prediction, block: int) -> float:
    """Return the norm of W_2's gradient in a block, over |g_L|."""
    return math.sqrt(found.weights[block]["W_2"])


def _last_norm(placement: str, layers: int, sublayers: tuple[str, ...], width: int) -> float:
    """Return the norm of the last W_2's gradient; behind a final norm where the stream grows."""
    law = DepthLaw(placement, sublayers=sublayers)
    found = law.predict(layers, width=width, hidden=width)
    return _norm(found, -1) / math.sqrt(found.growth)


def _exponent(values: tuple[float, float], layers: tuple[int, int]) -> float:
    return math.log(values[1] / values[0]) / math.log(layers[1] / layers[0])


def _theorem_1(width: int, post: str, pre: str) -> tuple[Comparison, ...]:
    depths = (128, 256)
    flat, falling = (
        _exponent((_last_norm(p, a, ("ffn:relu",), width), _last_norm(p, b, ("ffn:relu",), width)),
                  depths)
        for p, (a, b) in ((post, depths), (pre, depths))
    )  # fmt: skip
    norm = _last_norm(post, 12, ("ffn:relu",), width)
    return (
        between("last |dL/dW_2|/|g|, post", 0, width * math.sqrt(math.log(width)), norm),
        equals("its exponent in L, post", 0.0, flat),
        equals("its exponent in L, pre with final norm", -0.5, falling, rel=2e-2),
    )


def _figure_3(shallow: int, deep: int, placement: str) -> tuple[Comparison, ...]:
    first, second = (_last_norm(placement, 2 * n, LAYER, 512) for n in (shallow, deep))
    return (equals("last |dL/dW_2|, deepest over shallowest model", 1.0, second / first, 0.05),)


def _skip_factor(layers: int, sublayer: str) -> tuple[Comparison, ...]:
    law = DepthLaw("post", sublayers=(sublayer,))
    found = law.predict(layers)
    factor = (2 / 3) ** ((layers - 1) / 2)
    skip = math.sqrt(identity_path(shares(law, layers)[1:]))
    whole = _norm(found, 0) / _norm(found, -1)
    return (
        equals("identity path from layer L to 1", factor, skip),
        equals("|dL/dW_2|, layer 1 over layer L", factor, whole),
    )


def _pre_layers(layers: int, placement: str) -> tuple[Comparison, ...]:
    law = DepthLaw(placement, sublayers=LAYER)
    found = law.predict(2 * layers)
    ratio = _norm(found, 1) / _norm(found, -1)
    depths = (128, 256)
    first = []
    for depth in depths:
        one = DepthLaw(placement).predict(depth)
        first.append(_norm(one, 0) / math.sqrt(one.growth))
    last = tuple(_last_norm(placement, depth, ("ffn:relu",), 1024) for depth in depths)
    return (
        equals("|dL/dW_2|, layer 1 over layer L", 1.0, ratio, 0.05),
        equals("exponent in L, first layer", -0.5, _exponent((first[0], first[1]), depths), 2e-2),
        equals("exponent in L, last layer", -0.5, _exponent((last[0], last[1]), depths), 2e-2),
    )


XIONG = (
    Published(
        "xiong-lemma-2-post",
        "xiong",
        "Lemma 2",
        "text",
        "post-norm: the sum before the last norm of a layer has E|x|^2 = (3/2) d",
        _lemma_2_post,
        {"init": "lecun", "width": 512},
        "the norm before gives mean square 1, the relu branch adds 1/2",
    ),
    Published(
        "xiong-lemma-2-pre",
        "xiong",
        "Lemma 2",
        "text",
        "pre-norm, l layers: (1 + l/2) d <= E|x_l|^2 <= (1 + 3l/2) d",
        _lemma_2_pre,
        {"layers": 6, "tokens": 512, "init": "lecun"},
        "a layer adds 1/2 from its feed-forward block and A from attention, 1/n <= A <= 1; the "
        "upper end is equal tokens. Beyond l = 1 the lower end is not attained however many tokens "
        "there are: relu makes independent tokens correlated",
    ),
    Published(
        "xiong-theorem-1",
        "xiong",
        "Theorem 1",
        "text",
        "last layer: |dL/dW_2| = O(d sqrt(ln d)) post-norm, O(d sqrt(ln(d)/L)) pre-norm",
        _theorem_1,
        {"width": 1024, "post": "post", "pre": "pre"},
        "the powers of L are right; the value is sqrt(d/3)|g| for post-norm at one token, so that "
        "the bound is far above it",
    ),
    Published(
        "xiong-figure-3",
        "xiong",
        "Figure 3 (c, d)",
        "text",
        "post-norm: the gradient norm of the last layer is the same from 6-6 to 14-14",
        _figure_3,
        {"shallow": 6, "deep": 14, "placement": "post"},
        "the last block's gain does not know the depth; the figure's 1.6 depends on its loss and "
        "is not compared",
    ),
    Published(
        "xiong-skip-factor",
        "xiong",
        "Appendix F",
        "text",
        "post-norm: gradients of W_2 hold a factor (2/3)^((L-l)/2) that decays with the distance "
        "from the output, at L = 6",
        _skip_factor,
        {"layers": 6, "sublayer": "ffn:relu"},
        "it is the weight of the pure identity path, the product of the norms' Jacobians; the "
        "paths through the branches make up for it, and the gradient of W_2 is the same in every "
        "layer at the start of training",
    ),
    Published(
        "xiong-pre-layers",
        "xiong",
        "section 3.3, Appendix F",
        "text",
        "pre-norm: gradients of W_2 are likely to be the same in every layer, all normalised by "
        "sqrt(L), at L = 6",
        _pre_layers,
        {"layers": 6, "placement": "pre"},
        "|dL/dW_2| of layer l goes as 1/sqrt(v_l): only the last layers fall as 1/sqrt(L), the "
        "first do not change with L",
    ),
)
