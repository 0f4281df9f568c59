"""The figure of the stream against the range and the resolution of half precision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import sympy as sp
from scipy import stats

from derive.depth import placed_stack
from derive.errors import UnknownNodeError
from derive.laws.law import DepthLaw
from derive.laws.measure import interval
from derive.render.gallery.panel import Plate, Sampling, canvas, law_line, limit, points
from derive.symbols import l

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PRECISION"]

HALF_MAX = 65504.0
"""Largest finite float16: (2 - 2^-10) 2^15."""
BFLOAT_UNIT, HALF_UNIT = 2.0**-8, 2.0**-11
"""Unit roundoff of bfloat16 (8 bits) and float16 (11 bits): half a unit in the last place of 1."""
CASES = {
    "no-norm": "no norm",
    "pre": "pre-norm",
    "sandwich": "peri-norm",
    "post": "post-norm",
}
ADDING = {"pre": "pre-norm", "sandwich": "peri-norm", "lns": "LayerNorm Scaling"}
LARGEST = 96


def _largest(placement: str, layers: int, width: int, seed: int) -> float:
    """Return the logarithm of the largest entry of the output of a drawn stack."""
    stack = placed_stack(
        placement, layers, width=width, hidden=width, sublayer="ffn:relu", seed=seed,
        std=math.sqrt(2),
    )  # fmt: skip
    x = np.random.default_rng((seed, 1)).normal(size=(1, width))
    return math.log(float(np.abs(stack.states(x)[-1]).max()))


def _added(placement: str, blocks: int) -> np.ndarray:
    """Return for each block the root of what it adds, over the mean square that it adds it to."""
    law, v = DepthLaw(placement), sp.Symbol("v", positive=True)
    more = sp.expand(law.recursion[0] - v) if law.recursion else v
    if more.has(v):
        raise UnknownNodeError(f"placement: expected blocks that add to v, got {placement}")
    numbers = np.arange(1.0, blocks + 1)
    added = np.broadcast_to(sp.lambdify(l, more, "numpy")(numbers), numbers.shape)
    stream = 1 + np.concatenate([[0.0], np.cumsum(added)[:-1]])
    return np.sqrt(added / stream)


def _expected_largest(width: int) -> float:
    """Return the median of the largest of so many normal entries, in standard deviations."""
    return float(stats.norm.ppf((1 + 0.5 ** (1 / width)) / 2))


def precision_figure(sampling: Sampling) -> Figure:
    """Return the largest entry of the stream, and a branch's size over the stream's."""
    figure, (left, right) = canvas(2)
    depths = sorted({round(2 ** (k / 3)) for k in range(20)} | {LARGEST})
    most = _expected_largest(sampling.width)
    for k, (placement, label) in enumerate(CASES.items()):
        law = DepthLaw(placement, init="he")
        sizes = [most * math.sqrt(law.predict(n).growth) for n in depths]
        law_line(left, k, depths, sizes, label)
        logs = {
            n: [_largest(placement, n, sampling.width, s) for s in range(sampling.seeds)]
            for n in sampling.depths
        }
        points(left, k, sampling.depths, [interval(logs[n]) for n in sampling.depths])
    limit(left, HALF_MAX, "largest float16")
    left.set_ylabel("largest entry of $x_L$")
    left.set_ylim(1, 1e7)
    left.legend(loc="upper left", bbox_to_anchor=(0.0, 0.66))
    numbers = np.array([2**k for k in range(0, 19)])
    for k, (placement, label) in enumerate(ADDING.items()):
        law_line(right, k + 1, numbers, _added(placement, numbers[-1])[numbers - 1], label)
    limit(right, BFLOAT_UNIT, "unit roundoff, bfloat16", left=True)
    limit(right, HALF_UNIT, "unit roundoff, float16", left=True)
    right.set_ylabel(r"branch over stream, $|F_\ell|/|x_{\ell-1}|$")
    right.set_ylim(1e-4, 2)
    right.legend(loc="upper right")
    for axes, name in ((left, "depth $L$ (blocks)"), (right, r"block $\ell$")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(name)
    left.set_xticks([1, 4, 16, 64], labels=["1", "4", "16", "64"])
    right.set_xticks([2**k for k in (0, 4, 8, 12, 16)])
    return figure


PRECISION = (
    Plate(
        "half-precision",
        "The stream against half precision",
        "Left: largest entry of the stream of relu blocks with weights of variance 2/fan-in, twice "
        "the usual mean square in a branch: only a stream without norms leaves float16's range, "
        "within twenty blocks. Right: size of a branch over that of the stream it is added to, "
        "weights of variance 1/fan-in; below the unit roundoff the sum loses it. Pre- and "
        "peri-norm come there after 2^16 blocks in bfloat16, LayerNorm Scaling after some 6,000.",
        "left, `DepthLaw(..., init='he')` times the median of the largest of d normal numbers, "
        "points: drawn stacks; right, `DepthLaw(...).recursion` and `.solution`, no points",
        precision_figure,
    ),
)
