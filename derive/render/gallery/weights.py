"""The figure of weight gradients by layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from derive.laws.law import DepthLaw
from derive.laws.measure import Estimate, measure
from derive.render.gallery.panel import Plate, Sampling, canvas, law_line, points

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["WEIGHTS"]

LAYERS = 16
PLACES = {"pre": "pre-norm, final norm", "sandwich": "peri-norm, final norm", "post": "post-norm"}


def _root(found: Estimate, scale: float) -> Estimate:
    return Estimate(*(math.sqrt(v / scale) for v in (found.mean, found.low, found.high)))


def weights_figure(sampling: Sampling) -> Figure:
    r"""Return :math:`\lVert\partial\mathcal L/\partial W_2\rVert_F` by layer, two placements.

    The stream that grows is divided by its final size: the gradient behind a final norm.
    """
    figure, (axes,) = canvas()
    width = sampling.width
    numbers = list(range(1, LAYERS + 1))
    for k, (placement, label) in enumerate(PLACES.items()):
        law = DepthLaw(placement)
        found = law.predict(LAYERS, width=width, hidden=width)
        size = math.sqrt(found.growth * width)
        norms = [math.sqrt(block["W_2"]) / size for block in found.weights]
        law_line(axes, k, numbers, norms, label)
        drawn = measure(
            law, LAYERS, width=width, hidden=width, seeds=sampling.seeds, weights=True
        ).weights
        marks = numbers[k::3]
        points(axes, k, marks, [_root(drawn[n - 1]["W_2"], size**2) for n in marks])
    axes.set_ylim(0, 1.2)
    axes.set_xlabel(rf"block $\ell$ of $L = {LAYERS}$ (relu)")
    axes.set_ylabel(r"$\Vert\partial\mathcal{L}/\partial W_2\Vert_F\,/\,(\sqrt{d}\,\Vert g\Vert)$")
    axes.legend(loc="upper right")
    return figure


WEIGHTS = (
    Plate(
        "weight-gradients",
        "Gradients of the weights by layer",
        "Norm of the gradient of each block's last matrix, in units of root d times the gradient "
        "behind the stack's last norm. Post-norm gives every block the same, sqrt(1/3); pre-norm "
        "falls as 1/sqrt(v_l): its first blocks get more than its last ones, which are what "
        "1/sqrt(L) describes.",
        "`DepthLaw.predict(L).weights`, block by block; points: `measure(..., weights=True)`, "
        "which uses `derive.depth.weight_gradients`",
        weights_figure,
    ),
)
