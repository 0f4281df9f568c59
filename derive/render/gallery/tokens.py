"""The figures of tokens that come together: rank collapse, and the edge of chaos."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.depth import placed_stack
from derive.laws.law import DepthLaw
from derive.laws.literature.tokens import layer_exponent
from derive.laws.measure import interval
from derive.render.gallery.panel import Plate, Sampling, canvas, law_line, limit, points

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TOKENS"]

COUNT = 8
DEEPEST = 32
CASES = {
    "scaled-residual": r"pre-norm, $1/\sqrt{L}$",
    "pre": "pre-norm",
    "post": "post-norm",
    "N(F(x))": "no skip",
}


def _law(placement: str) -> DepthLaw:
    return DepthLaw(placement, "rmsnorm", ("attention",), tokens=COUNT)


def _apart(placement: str, layers: int, width: int, seed: int) -> float:
    """Return ln(1 - rho) at the output of a drawn stack, from inputs that are orthogonal."""
    stack = placed_stack(
        placement,
        layers,
        width=width,
        tokens=COUNT,
        heads=1,
        norm="rmsnorm",
        sublayer="attention",
        seed=seed,
        eps=1e-12,
        values={"W_Q": 0.0, **({"alpha": layers**-0.5} if placement == "scaled-residual" else {})},
    )
    rng = np.random.default_rng((seed, 2))
    x = np.linalg.qr(rng.normal(size=(width, COUNT)))[0].T * math.sqrt(width)
    gram = stack.states(x)[-1] @ stack.states(x)[-1].T
    square = float(np.trace(gram)) / COUNT
    product = float(gram.sum() - np.trace(gram)) / (COUNT * (COUNT - 1))
    return math.log(1 - product / square)


def collapse_figure(sampling: Sampling) -> Figure:
    r"""Return :math:`1 - \rho_L` of uniform attention over depth, with and without skip."""
    figure, (axes,) = canvas()
    depths = list(range(1, DEEPEST + 1))
    marks = [n for n in (2, 6, 12, 24) if n <= 4 * max(sampling.depths)]
    for k, (placement, label) in enumerate(CASES.items()):
        last = [_law(placement).predict(n).forward[-1] for n in depths]
        values: Any = [1.0, *(float(1 - m.c / m.v) for m in last)]
        if placement == "N(F(x))":  # exactly 0 after one block: the line leaves the figure
            values = [1.0, 1e-12, *[np.nan] * (DEEPEST - 1)]
            law_line(axes, k, [0, *depths], values, label)
            continue
        law_line(axes, k, [0, *depths], values, label)
        found = [
            interval([_apart(placement, n, sampling.width, s) for s in range(sampling.seeds)])
            for n in marks
        ]
        points(axes, k, marks, found)
    axes.set_yscale("log")
    axes.set_ylim(1e-9, 4)
    axes.set_xlabel(f"depth $L$ (blocks of uniform attention, $n = {COUNT}$)")
    axes.set_ylabel(r"distance of tokens $1 - \rho_L$")
    axes.legend(loc="lower left", bbox_to_anchor=(0.08, 0.0))
    return figure


def edge_figure(sampling: Sampling) -> Figure:
    r"""Return the angle exponent of a layer over the scale of its feed-forward weights."""
    figure, (axes,) = canvas()
    scales = np.geomspace(0.25, 8, 31)
    for k, name in enumerate(("tanh", "gelu", "silu", "relu")):
        found = [layer_exponent(1.0, float(s), f"ffn:{name}", COUNT) for s in scales]
        law_line(axes, k, scales, found, name)
    limit(axes, 0.0, "edge of chaos")
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.25, 0.5, 1, 2, 4, 8], labels=["1/4", "1/2", "1", "2", "4", "8"])
    axes.set_xlabel(r"scale $\sigma_w$ of the feed-forward weights, std $\sigma_w/\sqrt{d}$")
    axes.set_ylabel(r"angle exponent $\lambda_a$ a layer")
    axes.legend(loc="upper left")
    return figure


TOKENS = (
    Plate(
        "rank-collapse",
        "Rank collapse",
        "One minus the correlation of two tokens over depth, attention with uniform weights and no "
        "feed-forward blocks, n = 8. Without a skip all tokens are equal after one block. "
        "Post-norm halves the distance a block, pre-norm loses it as 1/v_L, with branches of "
        "1/sqrt(L) it has a limit.",
        "`DepthLaw(..., sublayers=('attention',)).predict(L).forward`; points: states of drawn "
        "stacks with query weights 0, from orthogonal inputs",
        collapse_figure,
    ),
    Plate(
        "edge-of-chaos",
        "Angle exponent and the edge of chaos",
        "Logarithm of what a layer of uniform attention and a feed-forward block does to the "
        "distance of nearly equal tokens, over the scale of the feed-forward weights (branches of "
        "strength 1, normed inputs of mean square 1, hidden width d). Attention alone gives -ln 2. "
        "Only an activation that saturates brings it above zero: relu keeps distances and relative "
        "sizes, gelu and silu become relu at large scales.",
        "`derive.laws.literature.tokens.layer_exponent`; no points: the law alone",
        edge_figure,
    ),
)
