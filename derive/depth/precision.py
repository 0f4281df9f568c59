r"""Stacks in narrow formats: how far a run in float32 or bfloat16 is from the exact one.

Forwards and backwards every operation of the derived expressions is rounded (see
`derive.depth.rounded`); the reference is the same stack in float64, with the same weights and the
same input, rounded already, so that only arithmetic differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from derive.depth.opaque import opaque_block
from derive.depth.placed import placed_stack
from derive.depth.rounded import Precision, RoundedLayer, round_weights
from derive.depth.stack import Stack
from derive.depth.streams import StreamStack
from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg.rounded import number_format
from derive.linalg.scaled import LOG_2, log_norm_of, split_exponent

__all__ = ["Simulation", "precision_rows", "simulate"]


@dataclass(frozen=True)
class Simulation:
    r"""A run in narrow formats, against the same run in float64.

    Attributes
    ----------
    precision : Precision
        The formats.
    forward_errors : ndarray, shape (L + 1,)
        :math:`\lVert\tilde x_l-x_l\rVert_F/\lVert x_l\rVert_F` for l = 0..L; infinite from where
        the run breaks down.
    gradient_errors : ndarray, shape (L + 1,)
        :math:`\lVert\tilde g_l-g_l\rVert_F/\lVert g_l\rVert_F`.
    gradient_norm_errors : ndarray, shape (L + 1,)
        :math:`\lVert\tilde g_l\rVert/\lVert g_l\rVert-1`.
    log_gradient_norms : ndarray, shape (L + 1,)
        Logs of :math:`\lVert\tilde g_l\rVert`; -inf where the gradient has underflowed to zero.
    breakdown : str
        Where and why the run could not go on; empty if it could.
    states : list of ndarray
        The rounded states as far as they go.
    """

    precision: Precision
    forward_errors: np.ndarray
    gradient_errors: np.ndarray
    gradient_norm_errors: np.ndarray
    log_gradient_norms: np.ndarray
    breakdown: str
    states: list[np.ndarray]


def simulate(stack: Stack, x: Any, cotangent: Any, precision: Precision) -> Simulation:
    r"""Run a stack forwards and backwards in narrow formats.

    Parameters
    ----------
    stack : Stack
        The stack.
    x : array (n, d)
        Its input.
    cotangent : array (n, d)
        The gradient at its output.
    precision : Precision
        The formats.

    Returns
    -------
    Simulation

    Raises
    ------
    ShapeError
        If `cotangent` has not the shape of the input.
    DomainError
        If a weight, the input or the cotangent is beyond the largest number of the format.
    WeightError, UnknownNodeError
        As for `derive.lower.evaluate`.
    """
    if isinstance(stack, StreamStack):
        raise UnknownNodeError(
            f"stack: expected a stack of one stream, got the streams {', '.join(stack.names)}"
        )
    residual = number_format(precision.residual)
    start = residual(np.atleast_2d(np.asarray(x, dtype=float)))
    gradient = residual(np.asarray(cotangent, dtype=float).reshape(-1))
    if gradient.size != start.size:
        raise ShapeError(f"cotangent: expected shape {start.shape}, got {np.shape(cotangent)}")
    for name, values in (("state", start), ("cotangent", gradient)):
        if not np.isfinite(values).all():
            raise DomainError(f"{name}: expected numbers within {residual.name}, got an overflow")
    weights = [round_weights(w, precision.dtype) for w in stack.weights]
    blocks = [found.block for found in stack.derivations]
    variable = stack.derivations[0].state if blocks else None
    exact = Stack(blocks, variable, weights, stack.maps)
    reference = exact.states(start)
    states, layers, breakdown = [start], [], ""
    for place, (block, given) in enumerate(zip(blocks, weights, strict=True)):
        opaque = opaque_block(block, variable, norms=True)
        try:
            layer = RoundedLayer(opaque, given, states[-1], precision)
            states.append(layer.value)
        except DomainError as error:
            breakdown = f"layer {place}: {error}"
            break
        layers.append(layer)
    depth = stack.layers
    forward = np.full(depth + 1, math.inf)
    for k, state in enumerate(states):
        forward[k] = _relative(state - reference[k], reference[k])
    backward = _backward(exact, reference, layers, gradient) if not breakdown else None
    lost = np.full(depth + 1, math.inf)
    return Simulation(
        precision=precision,
        forward_errors=forward,
        gradient_errors=lost if backward is None else backward[0],
        gradient_norm_errors=lost if backward is None else backward[1],
        log_gradient_norms=np.full(depth + 1, math.nan) if backward is None else backward[2],
        breakdown=breakdown,
        states=states,
    )


def _relative(difference: np.ndarray, of: np.ndarray) -> float:
    size = float(np.linalg.norm(of))
    error = float(np.linalg.norm(difference))
    return error / size if size else (math.inf if error else 0.0)


def _backward(
    exact: Stack, states: list[np.ndarray], layers: list[RoundedLayer], gradient: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return errors of the gradients, errors of their norms, and logs of the norms."""
    depth = len(layers)
    errors, norms, logs = (np.zeros(depth + 1) for _ in range(3))
    operators = exact.jacobians(states[0])
    true, exponent, narrow = gradient, 0, gradient
    logs[depth] = log_norm_of(gradient)
    for k in range(depth - 1, -1, -1):
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = layers[k].jacobian.rmatvec(narrow)
        true, shift = split_exponent(operators[k].rmatvec(true))
        exponent += shift
        with np.errstate(over="ignore", invalid="ignore"):
            same_scale = np.ldexp(narrow, -exponent)
        size = float(np.linalg.norm(true))
        finite = bool(np.isfinite(same_scale).all())
        errors[k] = _relative(same_scale - true, true) if finite else math.inf
        ratio = float(np.linalg.norm(same_scale)) / size if size and finite else math.inf
        norms[k] = ratio - 1 if size else 0.0
        logs[k] = log_norm_of(same_scale) + exponent * LOG_2 if finite else math.inf
    return errors, norms, logs


def precision_rows(
    placement: str,
    depths: Iterable[int],
    precision: Precision,
    *,
    width: int,
    tokens: int = 1,
    seed: int = 0,
    **options: Any,
) -> list[dict[str, Any]]:
    """Return one row per depth: what narrow formats do to states and gradients.

    Parameters
    ----------
    placement : str
        A placement with one stream, a mix, or an equation.
    depths : iterable of int
        Numbers of layers.
    precision : Precision
        The formats.
    width, tokens : int
        Features and tokens of the random input.
    seed : int
        Seed of weights, input and cotangent.
    **options
        Further arguments of `derive.depth.placed_stack`: norm, sublayer, values, sizes.

    Returns
    -------
    list of dict
        Keys ``placement``, ``layers``, ``width``, ``tokens``, ``seed``, ``dtype``, ``statistics``,
        ``residual``, ``unit_roundoff``, ``forward_errors``, ``gradient_errors``,
        ``gradient_norm_errors``, ``log_grad_norms`` (l = 0..L), ``forward_growth``,
        ``gradient_growth`` and ``breakdown``. A growth is the slope of the log of the error over
        the log of the number of layers passed: 1/2 where roundings of equal size add up as a random
        walk, 1 where they all point one way; NaN for fewer than four layers or where there is no
        error.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(tokens, width))
    cotangent = rng.normal(size=(tokens, width))
    cotangent /= np.linalg.norm(cotangent)
    rows = []
    for layers in depths:
        stack = placed_stack(placement, layers, width=width, tokens=tokens, seed=seed, **options)
        found = simulate(stack, x, cotangent, precision)
        rows.append(
            {
                "placement": placement,
                "layers": layers,
                "width": width,
                "tokens": tokens,
                "seed": seed,
                "dtype": precision.dtype,
                "statistics": precision.statistics,
                "residual": precision.residual,
                "unit_roundoff": number_format(precision.dtype).unit,
                "forward_errors": found.forward_errors.tolist(),
                "gradient_errors": found.gradient_errors.tolist(),
                "gradient_norm_errors": found.gradient_norm_errors.tolist(),
                "log_grad_norms": found.log_gradient_norms.tolist(),
                "forward_growth": _growth(found.forward_errors),
                "gradient_growth": _growth(found.gradient_errors[::-1]),
                "breakdown": found.breakdown,
            }
        )
    return rows


def _growth(errors: np.ndarray) -> float:
    """Return the slope of log error over log number of layers, from the first layer on."""
    passed = np.arange(1, len(errors))
    values = errors[1:]
    if len(passed) < 4 or not np.isfinite(values).all() or not (values > 0).all():
        return math.nan
    return float(np.polyfit(np.log(passed), np.log(values), 1)[0])
