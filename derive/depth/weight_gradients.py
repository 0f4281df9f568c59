r"""Gradients of the weights of every layer of a stack, for any cotangent at its output.

One reverse sweep over depth carries the cotangent, rescaled by a power of two at every layer; what
a layer does with it is in `derive.depth.block_gradients`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from derive.depth.block_gradients import block_weight_gradients, trainable
from derive.depth.stack import Stack
from derive.depth.streams import StreamStack
from derive.errors import DomainError, ShapeError, UnknownNameError
from derive.linalg.arrays import as_array
from derive.linalg.scaled import LOG_2, log_norm_of, split_exponent

__all__ = ["LayerGradients", "weight_gradient_log_norms", "weight_gradients"]


@dataclass(frozen=True, eq=False)
class LayerGradients:
    r"""Gradients of the weights of one layer, as arrays times a power of two.

    Attributes
    ----------
    arrays : dict from str to array
        :math:`2^{-e}\,\partial\mathcal L/\partial W` by name, each of the shape of its weight.
    exponent : int
        e.
    """

    arrays: dict[str, np.ndarray]
    exponent: int

    def log_norms(self) -> dict[str, float]:
        r"""Return :math:`\log\lVert\partial\mathcal L/\partial W\rVert_F`; -inf for zero."""
        scale = self.exponent * LOG_2
        return {k: log_norm_of(np.atleast_1d(v)) + scale for k, v in self.arrays.items()}

    def value(self) -> dict[str, np.ndarray]:
        """Return the gradients themselves; entries too small for a double become 0.

        Raises
        ------
        DomainError
            If one does not fit into a double.
        """
        found = {}
        for name, array in self.arrays.items():
            with np.errstate(over="ignore", under="ignore"):
                out = np.ldexp(array, self.exponent)
            if not np.isfinite(out).all():
                raise DomainError(
                    f"cotangent: expected gradients within double precision, got an overflow in "
                    f"that of {name}; use the log norms"
                )
            found[name] = out
        return found


def weight_gradients(
    stack: Stack, x: Any, cotangent: Any, names: Iterable[str] | None = None
) -> list[LayerGradients]:
    r"""Return the gradient of every weight of every layer.

    .. math:: \frac{\partial\mathcal L}{\partial W_l} = \sum_{\text{tokens}}
              \sum_{\text{places of }W}(A^\top g_{l+1})\,v^\top,\qquad
              g_l = J_l^\top g_{l+1},\quad g_L = \frac{\partial\mathcal L}{\partial x_L}

    Parameters
    ----------
    stack : Stack
        The stack, also of several streams; a weight that several layers share counts in each.
    x : array (n, d)
        Input.
    cotangent : array (n, d)
        Gradient :math:`\partial\mathcal L/\partial x_L` at the output; ``(S, n, d)`` for S streams.
    names : iterable of str, optional
        The weights; all that are trained unless said, see `trainable`.

    Returns
    -------
    list of LayerGradients
        For layers 0 to L - 1.

    Raises
    ------
    ShapeError
        If `cotangent` does not have the shape of the output.
    WeightError
        If it is not real and finite.
    UnknownNameError
        If a layer has no weight of one of the names.
    DomainError
        If one layer overflows by itself.

    Notes
    -----
    Source: the reverse sweep is that of Griewank and Walther, *Evaluating Derivatives*, 2nd ed.,
    section 3.2, with the layers as elementary functions.
    """
    return list(_reverse_sweep(stack, x, cotangent, names))[::-1]


def weight_gradient_log_norms(
    stack: Stack, x: Any, cotangent: Any, names: Iterable[str] | None = None
) -> list[dict[str, float]]:
    r"""Return :math:`\log\lVert\partial\mathcal L/\partial W\rVert_F` of every weight, by layer.

    Takes and raises what `weight_gradients` does; only the norms of a layer are kept.

    Returns
    -------
    list of dict from str to float
        Natural logarithms for layers 0 to L - 1; -inf where a gradient is zero.
    """
    return [layer.log_norms() for layer in _reverse_sweep(stack, x, cotangent, names)][::-1]


def _reverse_sweep(
    stack: Stack, x: Any, cotangent: Any, names: Iterable[str] | None
) -> Iterator[LayerGradients]:
    """Yield the gradients of the layers, the last layer first."""
    states = stack.states(x)
    gradient = np.atleast_2d(as_array("cotangent", cotangent, (1, 2, 3)))
    if gradient.shape != states[-1].shape:
        raise ShapeError(
            f"cotangent: expected the shape {states[-1].shape} of the output, got {gradient.shape}"
        )
    wanted = None if names is None else tuple(names)
    gradient, exponent = split_exponent(gradient)
    streams = stack.jacobians(x) if isinstance(stack, StreamStack) else []
    for layer in range(stack.layers - 1, -1, -1):
        weights, state = stack.weights[layer], states[layer]
        if isinstance(stack, StreamStack):
            arrays = _stream_gradients(stack, layer, state, gradient, wanted)
            back = streams[layer].rmatvec(gradient.ravel()).reshape(gradient.shape)
        else:
            found = stack.derivations[layer]
            chosen = trainable(found.block, weights) if wanted is None else wanted
            arrays, back = block_weight_gradients(
                found, weights, state, gradient, chosen, stack.maps
            )
        yield LayerGradients(arrays, exponent)
        gradient = back
        gradient, shift = split_exponent(gradient)
        exponent += shift


def _stream_gradients(
    stack: StreamStack,
    layer: int,
    state: np.ndarray,
    gradient: np.ndarray,
    wanted: tuple[str, ...] | None,
) -> dict[str, np.ndarray]:
    """Return the gradients of one layer of streams: a weight counts in every stream's output."""
    arrays: dict[str, np.ndarray] = {}
    weights, blocks = stack.weights[layer], stack.blocks[layer]
    held = {out: trainable(blocks[out, out].block, weights) for out in stack.names}
    unknown = set(wanted or ()) - {name for names in held.values() for name in names}
    if unknown:
        raise UnknownNameError(
            f"weights: expected weights of the streams, got {', '.join(sorted(unknown))}"
        )
    for place, out in enumerate(stack.names):
        chosen = held[out] if wanted is None else [k for k in held[out] if k in wanted]
        found, _ = block_weight_gradients(
            blocks[out, out],
            stack._named(weights, state),
            state[0],
            gradient[place],
            chosen,
            stack.maps,
        )
        for name, array in found.items():
            arrays[name] = arrays[name] + array if name in arrays else array
    return arrays
