"""Figures over depth: growth, gradient ratio, identity path, decoders."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from derive.depth import placed_stack
from derive.depth.paths import stack_terms
from derive.laws.components import Moments
from derive.laws.law import DepthLaw
from derive.laws.literature.shares import identity_path, shares
from derive.laws.measure import Estimate, Measurement, interval, measure
from derive.render.gallery.panel import Plate, Sampling, canvas, law_line, points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DEPTH", "FAMILIES"]

FAMILIES = {
    "no-norm": "no norm",
    "sandwich": "peri-norm",
    "pre": "pre-norm",
    "lns": "LayerNorm Scaling",
    "scaled-residual": r"pre-norm, $1/\sqrt{L}$",
    "post": "post-norm",
}
"""Placements, from the fastest growth to none, as the legends call them."""
DEEPEST = 96
SUBLAYER = "ffn:gelu"
TOKENS = 8


@lru_cache(maxsize=64)
def _measured(placement: str, layers: int, width: int, seeds: int) -> Measurement:
    law = DepthLaw(placement, sublayers=(SUBLAYER,))
    return measure(law, layers, width=width, hidden=width, seeds=seeds)


DEPTHS = (*sorted({round(2 ** (k / 3)) for k in range(19)}), DEEPEST)


def _over_depth(axes: Axes, what: str, sampling: Sampling) -> None:
    """Draw one quantity of every family over the number of blocks."""
    for k, (placement, label) in enumerate(FAMILIES.items()):
        law = DepthLaw(placement, sublayers=(SUBLAYER,))
        law_line(axes, k, DEPTHS, [getattr(law.predict(n), what) for n in DEPTHS], label)
        found = [_measured(placement, n, sampling.width, sampling.seeds) for n in sampling.depths]
        points(axes, k, sampling.depths, [getattr(one, what) for one in found])
    _logarithmic(axes)


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64], labels=["1", "2", "4", "8", "16", "32", "64"])
    axes.set_xlabel("depth $L$ (blocks)")


def growth_figure(sampling: Sampling) -> Figure:
    r"""Return the growth of the mean square, :math:`\mathbb E|x_L|^2/|x_0|^2`, by placement."""
    figure, (axes,) = canvas()
    _over_depth(axes, "growth", sampling)
    axes.set_ylim(0.7, 3e3)
    axes.set_ylabel(r"growth $\mathrm{E}\,|x_L|^2/|x_0|^2$")
    axes.legend(loc="upper left")
    return figure


def ratio_figure(sampling: Sampling) -> Figure:
    r"""Return the gradient ratio, :math:`\mathbb E|g_0|^2/|g_L|^2`, by placement."""
    figure, (axes,) = canvas()
    _over_depth(axes, "gradient_ratio", sampling)
    axes.set_ylim(0.4, 3e3)
    axes.set_ylabel(r"gradient ratio $\mathrm{E}\,|g_0|^2/|g_L|^2$")
    axes.legend(loc="upper left")
    return figure


def _skip_and_whole(layers: int, width: int, seed: int) -> tuple[float, float]:
    """Return log mean squares of a gradient at the input: without any branch, and whole."""
    stack = placed_stack(
        "post", layers, width=width, hidden=width, sublayer="ffn:relu", seed=seed, eps=1e-12
    )
    rng = np.random.default_rng((seed, 1))
    x, g = rng.normal(size=(2, 1, width))
    skip, size = g.ravel(), float(g.ravel() @ g.ravel())
    for terms in reversed(stack_terms(stack, x)):
        skip = terms[()].rmatvec(skip)
    whole = stack.gradient_log_norms(x, g.ravel())
    return math.log(float(skip @ skip) / size), 2 * float(whole[0] - whole[-1])


def identity_figure(sampling: Sampling) -> Figure:
    """Return post-norm's gradient beside the part that takes no branch."""
    figure, (axes,) = canvas()
    depths = list(range(1, 25))
    law = DepthLaw("post")
    whole = [law.predict(n).gradient_ratio for n in depths]
    skip = [identity_path(shares(law, n)) for n in depths]
    law_line(axes, 0, depths, whole, "gradient, over all paths")
    law_line(axes, 1, depths, skip, r"identity path alone, $(2/3)^L$")
    marks = [n for n in (2, 6, 12, 24) if n <= 4 * max(sampling.depths)]
    for k, place in ((1, 0), (0, 1)):
        found = []
        for n in marks:
            logs = [_skip_and_whole(n, sampling.width, s)[place] for s in range(sampling.seeds)]
            found.append(interval(logs))
        points(axes, k, marks, found)
    axes.set_yscale("log")
    axes.set_ylim(2e-5, 12)
    axes.set_xlabel("depth $L$ (post-norm relu blocks)")
    axes.set_ylabel(r"$\mathrm{E}\,|g_0|^2/|g_L|^2$")
    axes.legend(loc="lower left")
    return figure


def decoder_figure(sampling: Sampling) -> Figure:
    """Return the gradient ratio of cross-attention blocks by the correlation of their memory."""
    figure, (axes,) = canvas()
    depths = list(range(1, 25))
    cases: list[tuple[str, str, float]] = [
        ("x + C(N(x))", "pre-norm, any memory", 1.0),
        ("N(x + C(x))", r"post-norm, $\rho = 0$", 0.0),
        ("N(x + C(x))", r"post-norm, $\rho = 1/2$", 0.5),
        ("N(x + C(x))", r"post-norm, $\rho = 1$", 1.0),
    ]
    for k, (equation, label, correlation) in enumerate(cases):
        law = DepthLaw(
            equation,
            sublayers=("attention",),
            tokens=TOKENS,
            memory=Moments(1.0, correlation),
        )
        law_line(axes, k, depths, [law.predict(n).gradient_ratio for n in depths], label)
        marks = [n for n in (2, 6, 12) if n <= 4 * max(sampling.depths)]
        options: dict[str, Any] = {"width": sampling.width, "seeds": sampling.seeds}
        found: list[Estimate] = [measure(law, n, **options).gradient_ratio for n in marks]
        points(axes, k, marks, found)
    axes.set_yscale("log")
    axes.set_ylim(2e-8, 12)
    axes.set_xlabel("depth $L$ (cross-attention blocks)")
    axes.set_ylabel(r"$\mathrm{E}\,|g_0|^2/|g_L|^2$")
    axes.legend(loc="lower left")
    return figure


DEPTH = (
    Plate(
        "growth",
        "Forward variance by placement",
        "Mean square of the residual stream over depth, gelu blocks. Without a norm it grows as a "
        "power of a constant to the L; peri-norm adds 1 a block, pre-norm the branch's own mean "
        "square; LayerNorm Scaling grows as a logarithm; branches of 1/sqrt(L) stay bounded; "
        "post-norm is reset at every block. Points are those of L = 2, 6, 16, 40, drawn side by "
        "side.",
        "`DepthLaw.predict(L).growth` of each placement with sublayer `ffn:gelu`",
        growth_figure,
    ),
    Plate(
        "gradient-ratio",
        "Gradient ratio by placement",
        "Mean square of the gradient at the input over that at the output, the same stacks. "
        "It follows the growth of the stream to the power b/f = 1.07; post-norm's is "
        "((1 + b)/(1 + f))^L, 2 % a block for gelu.",
        "`DepthLaw.predict(L).gradient_ratio`; points from `derive.laws.measure`",
        ratio_figure,
    ),
    Plate(
        "identity-path",
        "Post-norm: one path vanishes, the gradient does not",
        "The gradient through the norms alone, past every branch, loses a third of its mean square "
        "at every relu block; the sum over all paths keeps it. The first is what the factor "
        "(2/3)^((L-l)/2) of Xiong et al., 2020, describes.",
        "`identity_path(shares(...))` and `DepthLaw.predict`; points: `stack_terms` of drawn "
        "stacks, the term without branches, and their whole gradient",
        identity_figure,
    ),
    Plate(
        "decoder-memory",
        "Cross-attention on correlated memory",
        "What does vanish: in N(x + C(x)) with uniform attention the branch carries no gradient to "
        "x, while its mean square is divided out: (1/2)^L where the memory's tokens are equal, "
        "(1 + A)^(-L) with A = (1 + (n - 1) rho)/n else, n = 8. Pre-norm passes it unchanged.",
        "`DepthLaw` with `memory=Moments(1, rho)`",
        decoder_figure,
    ),
)
