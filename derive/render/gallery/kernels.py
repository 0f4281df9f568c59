"""The figure of the dual kernels that all laws are made of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from derive.blocks.activations import activation
from derive.laws.gaussian import dual_kernel
from derive.laws.measure import Estimate
from derive.lower import activation_function
from derive.render.gallery.panel import Plate, Sampling, canvas, law_line, points

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["KERNELS"]

NAMES = ("relu", "gelu", "silu", "tanh")
DRAWS = 4000
"""Normal pairs of a point, times the number of seeds."""


def _drawn(name: str, order: int, rho: float, seeds: int) -> Estimate:
    """Return a kernel at q = 1 from normal pairs, with a 95 % interval of the mean."""
    rng = np.random.default_rng((NAMES.index(name), order, round(100 * (rho + 1))))
    a, e = rng.normal(size=(2, DRAWS * seeds))
    f = activation_function(activation(name), order)
    product = f(a) * f(rho * a + math.sqrt(1 - rho * rho) * e)
    half = 1.96 * product.std(ddof=1) / math.sqrt(product.size)
    return Estimate(*(float(product.mean() + s * half) for s in (0, -1, 1)))


def kernels_figure(sampling: Sampling) -> Figure:
    r"""Return K(1, rho) and :math:`\dot K(1, \rho)` of four activations."""
    figure, panels = canvas(2)
    grid = np.linspace(-1, 1, 81)
    marks = (-0.8, -0.4, 0.0, 0.4, 0.8)
    for order, axes in enumerate(panels):
        for k, name in enumerate(NAMES):
            kernel = dual_kernel(name)
            value = kernel.slope if order else kernel.value
            law_line(axes, k, grid, [value(1.0, float(rho)) for rho in grid], name)
            points(axes, k, marks, [_drawn(name, order, rho, sampling.seeds) for rho in marks])
        axes.set_xticks([-1, -0.5, 0, 0.5, 1])
        axes.set_xlabel(r"correlation $\rho$ of the pre-activations")
    panels[0].set_ylabel(r"$K(1,\rho) = \mathrm{E}\,\phi(a)\phi(b)$")
    panels[1].set_ylabel(r"$\dot{K}(1,\rho) = \mathrm{E}\,\phi'(a)\phi'(b)$")
    panels[0].legend(loc="upper left")
    return figure


KERNELS = (
    Plate(
        "kernels",
        "Dual kernels of activations",
        "What a wide feed-forward block does to two tokens of correlation rho (left), and to their "
        "gradients (right), at pre-activations of variance 1. At rho = 1 they are f and b of the "
        "depth laws; relu has f = b there, and a vertical tangent on the right; the smooth "
        "ones have b > f.",
        "`dual_kernel(name).value` and `.slope`; points: products over drawn normal pairs",
        kernels_figure,
    ),
)
