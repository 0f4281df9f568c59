r"""Depth laws held against stacks with random weights: Monte Carlo with confidence intervals.

A stack is drawn once a seed, with weights of the law's initialisation, tokens and cotangents of the
given correlation; its Jacobians are those derived from the block. Attention is uniform (its query
weights are zero), as the law assumes. The input is scaled to mean square :math:`v_0` exactly, and
the gradient is compared with the one it began as, so that neither adds a spread of its own.

Growth and gradient ratio are products over depth, nearly log-normal. With m and :math:`s^2` mean
and variance of the logarithms over K seeds, the interval for the expectation is Cox's,

.. math:: \exp\Bigl(m + \tfrac{s^2}{2} \pm t_{K-1}
    \sqrt{\tfrac{s^2}{K} + \tfrac{s^4}{2(K-1)}}\Bigr)

(the modified Cox method of Olsson, Confidence Intervals for the Mean of a Log-Normal Distribution,
Journal of Statistics Education 13(1), 2005, with Student's t). Where all seeds agree to rounding
it is that one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from derive.blocks.build import state, streams
from derive.blocks.placements import STREAMS
from derive.depth import Stack, StreamStack
from derive.errors import DomainError, UnknownNodeError
from derive.initialise import initial_weights, layer_seed
from derive.laws.initial import scheme, sizes
from derive.laws.law import DepthLaw, Prediction

__all__ = ["Estimate", "Measurement", "interval", "measure"]

EPS = 1e-12
"""eps of the norms: the laws are for 0, which a query of zeros under a norm does not allow."""
ROUNDING = 1e-9
"""Relative distance at which a number that has no spread counts as the law's."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its confidence interval."""

    mean: float
    low: float
    high: float

    def covers(self, value: float) -> bool:
        """Return whether a value is in the interval, up to rounding."""
        slack = ROUNDING * abs(value)
        return self.low - slack <= value <= self.high + slack


@dataclass(frozen=True)
class Measurement:
    """What stacks of random weights do, beside the law.

    Attributes
    ----------
    growth, gradient_ratio : Estimate
        Of :math:`|x_L|^2/|x_0|^2` and :math:`|g_0|^2/|g_L|^2`.
    predicted : Prediction
        The law at this depth and width.
    seeds : int
        Number of stacks.
    """

    growth: Estimate
    gradient_ratio: Estimate
    predicted: Prediction
    seeds: int

    @property
    def ok(self) -> bool:
        """Whether both intervals hold the law."""
        return self.growth.covers(self.predicted.growth) and self.gradient_ratio.covers(
            self.predicted.gradient_ratio
        )


def interval(log_values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Return the expectation of a log-normal quantity from logarithms of independent draws.

    Parameters
    ----------
    log_values : sequence of float
        Natural logarithms, at least two; ``-inf`` only if all are (a quantity that is zero).
    confidence : float
        Between 0 and 1.

    Raises
    ------
    DomainError
        If there are fewer than two, a value is not finite, or the confidence is out of range.
    """
    logs = np.asarray(log_values, dtype=float)
    if logs.ndim != 1 or logs.size < 2:
        raise DomainError(f"log_values: expected at least 2, got shape {logs.shape}")
    if not 0 < confidence < 1:
        raise DomainError(f"confidence: expected between 0 and 1, got {confidence}")
    if np.all(logs == -np.inf):
        return Estimate(0.0, 0.0, 0.0)
    if not np.all(np.isfinite(logs)):
        raise DomainError("log_values: expected finite values, got some that are not")
    spread, count = logs.var(ddof=1), logs.size
    centre = logs.mean() + spread / 2
    error = math.sqrt(spread / count + spread**2 / (2 * (count - 1)))
    half = stats.t.ppf((1 + confidence) / 2, count - 1) * error
    return Estimate(*(float(np.exp(centre + sign * half)) for sign in (0, -1, 1)))


def measure(
    law: DepthLaw,
    layers: int,
    *,
    width: int = 128,
    hidden: int | None = None,
    heads: int = 1,
    correlation: float = 0.0,
    gradient_correlation: float = 0.0,
    start: float = 1.0,
    seeds: int = 30,
    seed: int = 0,
    confidence: float = 0.95,
) -> Measurement:
    r"""Draw stacks and compare them with the law.

    Parameters
    ----------
    law : DepthLaw
        The law; its initialisation is that of the weights.
    layers, width, hidden, correlation, gradient_correlation, start
        As for `DepthLaw.predict`, which is evaluated at this width. With several streams, all start
        as the same signal and each gets a gradient of its own.
    heads : int
        Attention heads.
    seeds, seed : int
        Number of stacks, at least 2, and the first of their seeds.
    confidence : float
        Of the intervals.

    Raises
    ------
    DomainError
        If a size is out of range.
    UnknownNodeError
        If the stack has several streams and its sublayers differ from block to block, or the law
        lacks the moments of a component.
    """
    if seeds < 2:
        raise DomainError(f"seeds: expected at least 2, got {seeds}")
    at = sizes(width, hidden, layers)
    predicted = law.predict(
        layers,
        width=width,
        hidden=hidden,
        correlation=correlation,
        gradient_correlation=gradient_correlation,
        start=start,
    )
    growth, ratio = [], []
    for one in range(seed, seed + seeds):
        rng = np.random.default_rng((one, 1))
        memory = _tokens(rng, law.tokens, width, float(law.memory.c / law.memory.v))
        memory *= math.sqrt(law.memory.v)
        stack = _stack(law, layers, one, memory, width=width, hidden=hidden, heads=heads, at=at)
        x = _tokens(rng, law.tokens, width, correlation)
        x *= math.sqrt(start / np.mean(x**2))
        states = stack.states(x)
        copies = len(states[0]) if states[0].ndim == 3 else 1
        cotangent = [_tokens(rng, law.tokens, width, gradient_correlation) for _ in range(copies)]
        logs = stack.gradient_log_norms(x, np.ravel(cotangent))
        last = states[-1][0] if copies > 1 else states[-1]
        growth.append(math.log(np.mean(last**2) / start) if np.any(last) else -math.inf)
        ratio.append(2 * float(logs[0] - logs[-1]))
    return Measurement(interval(growth, confidence), interval(ratio, confidence), predicted, seeds)


def _tokens(rng: np.random.Generator, tokens: int, width: int, correlation: float) -> np.ndarray:
    """Return normal tokens, each two of which are correlated."""
    drawn = rng.standard_normal((tokens, width))
    mean = drawn.mean(axis=0)
    together = math.sqrt(max(0.0, 1 + (tokens - 1) * correlation))
    return math.sqrt(1 - correlation if tokens > 1 else 1) * (drawn - mean) + together * mean


def _stack(
    law: DepthLaw,
    layers: int,
    seed: int,
    memory: np.ndarray,
    *,
    width: int,
    hidden: int | None,
    heads: int,
    at: Any,
) -> Stack:
    key = law.placement.lower()
    numbers = range(1, layers + 1)
    if key in STREAMS:
        if len(law.sublayers) > 1:
            raise UnknownNodeError(
                f"sublayers: expected one for a stack with streams, got {', '.join(law.sublayers)}"
            )
        derived = streams(key, law.norm, law.sublayers[0])
        blocks = [{a: found.block for (a, b), found in derived.items() if a == b}] * layers
    else:
        blocks = [law.blocks_of(number, layers) for number in numbers]
    drawn = []
    for number, outputs in zip(numbers, blocks, strict=True):
        scalars = {k: float(v) for k, v in law.scalars_of(number, layers).items()}
        values: dict[str, Any] = {**scalars, "eps": EPS, "mem_c": memory}
        weights: dict[str, Any] = {}
        for expr in outputs.values():
            fresh = initial_weights(
                expr,
                width=width,
                hidden=hidden,
                heads=heads,
                tokens=law.tokens,
                seed=layer_seed(seed, number - 1),
                values=values,
            )
            weights = {**fresh, **weights}  # what two streams share is drawn once
        drawn.append({k: _scaled(k, w, law, at) for k, w in weights.items()})
    if key in STREAMS:
        return StreamStack(derived, drawn)
    return Stack([outputs["x"] for outputs in blocks], state("x"), drawn)


def _scaled(name: str, weight: Any, law: DepthLaw, at: Any) -> Any:
    """Return a weight of variance 1/fan-in with the variance of the law's scheme."""
    if not name.startswith("W_"):
        return weight
    role = name.split("_")[1]
    if role == "Q":
        return np.zeros_like(weight)  # uniform attention
    reads, writes = weight.shape[-1], weight.shape[-2]
    if weight.ndim == 3:  # one matrix a head
        reads, writes = (
            (len(weight) * reads, writes) if role == "O" else (reads, len(weight) * writes)
        )
    gain = scheme(law.init).gain(
        reads, writes, writes=role in ("2", "down", "O"), scaled=role != "K"
    )
    return weight * math.sqrt(float(gain.subs(at)))
