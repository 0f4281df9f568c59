r"""Depth laws held against stacks with random weights: Monte Carlo with confidence intervals.

A stack is drawn once a seed, with weights of the law's initialisation, tokens and cotangents of the
given correlation; its Jacobians are those derived from the block, or PyTorch's own modules run it
with the same numbers. Attention is uniform (its query weights are zero) where the law is so. The
input is scaled to mean square :math:`v_0` exactly, as is the memory, whose share would add up over
all blocks, and the gradient is compared with the one it began as: none adds a spread of its own.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from derive.backends.random_stack import RandomStack
from derive.blocks.build import state
from derive.calculus.derivation import Derivation, derivation
from derive.depth import Stack, StreamStack, weight_gradient_log_norms
from derive.errors import DomainError, UnknownNameError
from derive.initialise import initial_weights, layer_seed
from derive.laws.initial import scheme, sizes
from derive.laws.law import DepthLaw, Prediction
from derive.laws.setting import Setting
from derive.symbols import d, f

__all__ = ["Estimate", "Measurement", "interval", "measure"]

EPS = 1e-12
"""eps of the norms: the laws are for 0, which a query of zeros under a norm does not allow."""
ROUNDING = 1e-9
"""Relative distance at which a number that has no spread counts as the law's."""
BACKENDS = ("derived", "torch")
ZERO = {"float64": -50.0, "float32": -23.0}
"""Logarithm of the share of a block's largest weight gradient, squared, that is rounding."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its confidence interval.

    Attributes
    ----------
    mean, low, high : float
        The mean and the ends of its interval.
    spread : float
        Variance of the natural logarithm over seeds.
    """

    mean: float
    low: float
    high: float
    spread: float = 0.0

    def covers(self, value: float) -> bool:
        """Return whether a value is in the interval, up to rounding."""
        slack = ROUNDING * abs(value)
        return self.low - slack <= value <= self.high + slack


@dataclass(frozen=True)
class Measurement:
    r"""What stacks of random weights do, beside the law.

    Attributes
    ----------
    growth, gradient_ratio : Estimate
        Of :math:`|x_L|^2/|x_0|^2` and :math:`|g_0|^2/|g_L|^2`.
    predicted : Prediction
        The law at this depth and width.
    seeds : int
        Number of stacks.
    weights : tuple of dict from str to Estimate
        Of :math:`\lVert\partial\mathcal L/\partial W\rVert_F^2/|g_L|^2` for the matrices of block
        l = 1..L; empty where they were not measured.
    """

    growth: Estimate
    gradient_ratio: Estimate
    predicted: Prediction
    seeds: int
    weights: tuple[dict[str, Estimate], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether both intervals hold the law."""
        return self.growth.covers(self.predicted.growth) and self.gradient_ratio.covers(
            self.predicted.gradient_ratio
        )

    def weights_covered(self) -> tuple[dict[str, bool], ...]:
        """Return whether the interval of each matrix of each block holds the law."""
        return tuple(
            {name: found.covers(_cut(law[name], law)) for name, found in one.items()}
            for one, law in zip(
                self.weights, self.predicted.weights if self.weights else (), strict=True
            )
        )


def _cut(value: float, others: Mapping[str, float]) -> float:
    """Return 0 for what is rounding beside the other gradients of a block."""
    return value if value > 1e-12 * max(others.values()) else 0.0


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
    with np.errstate(over="ignore"):  # an end beyond the largest float is infinite
        mean, low, high = (float(np.exp(centre + sign * half)) for sign in (0, -1, 1))
    return Estimate(mean, low, high, float(spread))


def measure(
    law: DepthLaw,
    layers: int,
    *,
    width: int = 128,
    hidden: int | None = None,
    heads: int = 1,
    correlation: float = 0.0,
    gradient_correlation: float = 0.0,
    start: float | None = None,
    seeds: int = 30,
    seed: int = 0,
    confidence: float = 0.95,
    weights: bool = False,
    backend: str = "derived",
    dtype: str = "float64",
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
    weights : bool
        Whether the gradients of the matrices are measured.
    backend : str
        ``"derived"``: the Jacobians derived from the block; ``"torch"``: modules of PyTorch and its
        autograd, with the same weights and inputs.
    dtype : str
        ``"float64"``, for torch also ``"float32"``.

    Raises
    ------
    DomainError
        If a size is out of range.
    UnknownNameError
        If the backend or the dtype is not known.
    UnknownNodeError
        If the law lacks the moments of a component, or torch a module.
    MissingExtraError
        If torch is asked for and not installed.
    """
    if seeds < 2:
        raise DomainError(f"seeds: expected at least 2, got {seeds}")
    if law.dropout:
        raise DomainError(f"dropout: expected 0, as in the stacks drawn, got {law.dropout:g}")
    if backend not in BACKENDS:
        raise UnknownNameError(f"backend: expected one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend == "derived" and dtype != "float64":
        raise UnknownNameError(f"dtype: expected float64 for derived Jacobians, got {dtype!r}")
    start = law.start if start is None else start
    predicted = law.predict(
        layers,
        width=width,
        hidden=hidden,
        correlation=correlation,
        gradient_correlation=gradient_correlation,
        start=start,
    )
    expected = predicted.weights if weights else ()
    scalars = [{k: float(v) for k, v in one.scalars.items()} for one, _ in predicted.blocks]
    draws = _Draws(law, scalars, width=width, hidden=hidden, heads=heads)
    copies = len(draws.blocks[0])
    runs = []
    for one in range(seed, seed + seeds):
        rng = np.random.default_rng((one, 1))
        memory = _tokens(rng, law.tokens, width, float(law.memory.c / law.memory.v))
        memory *= math.sqrt(law.memory.v / np.mean(memory**2))
        drawn = partial(draws.weights, seed=one, memory=memory)
        x = _tokens(rng, law.tokens, width, correlation)
        x *= math.sqrt(start / np.mean(x**2))
        cotangent = np.stack(
            [_tokens(rng, law.tokens, width, gradient_correlation) for _ in range(copies)]
        )
        if backend == "torch":
            stack = RandomStack(draws.blocks, drawn, dtype=dtype)
            runs.append(_by_torch(stack, x, cotangent))
        else:
            runs.append(_by_derivation(draws.stack(drawn), x, cotangent, weights))
    return Measurement(
        interval([run.growth for run in runs], confidence),
        interval([run.ratio for run in runs], confidence),
        predicted,
        seeds,
        tuple(
            _weight_estimates([run.weights[k] for run in runs], held, confidence, ZERO[dtype])
            for k, held in enumerate(expected)
        ),
    )


class _Run(NamedTuple):
    """Natural logarithms of one stack's growth, gradient ratio and weight gradients, squared."""

    growth: float
    ratio: float
    weights: list[dict[str, float]]


def _by_derivation(stack: Stack, x: np.ndarray, cotangent: np.ndarray, weights: bool) -> _Run:
    given = cotangent if isinstance(stack, StreamStack) else cotangent[0]
    last = np.reshape(stack.states(x)[-1], (-1, *x.shape))[0]
    logs = stack.gradient_log_norms(x, np.ravel(given))
    found = weight_gradient_log_norms(stack, x, given) if weights else []
    return _run(last, x, logs, found)


def _by_torch(stack: RandomStack, x: np.ndarray, cotangent: np.ndarray) -> _Run:
    found = stack.gradients(x, cotangent)
    return _run(found.states[-1][0], x, found.gradient_log_norms, found.weight_log_norms)


def _run(last: np.ndarray, x: np.ndarray, logs: Any, weights: list[dict[str, float]]) -> _Run:
    grown = math.log(np.mean(last**2) / np.mean(x**2)) if np.any(last) else -math.inf
    return _Run(
        grown,
        2 * float(logs[0] - logs[-1]),
        [{k: 2 * float(log - logs[-1]) for k, log in one.items()} for one in weights],
    )


def _weight_estimates(
    runs: Sequence[Mapping[str, float]],
    expected: Mapping[str, float],
    confidence: float,
    zero: float,
) -> dict[str, Estimate]:
    """Return the estimates of one block; what is rounding beside its other gradients is 0."""
    found = {}
    largest = [max(run.values()) for run in runs]
    for name in expected:
        logs = [run[name] for run in runs]
        if all(log <= top + zero for log, top in zip(logs, largest, strict=True)):
            logs = [-math.inf] * len(runs)
        found[name] = interval(logs, confidence)
    return found


def _tokens(rng: np.random.Generator, tokens: int, width: int, correlation: float) -> np.ndarray:
    """Return normal tokens, each two of which are correlated."""
    drawn = rng.standard_normal((tokens, width))
    mean = drawn.mean(axis=0)
    together = math.sqrt(max(0.0, 1 + (tokens - 1) * correlation))
    return math.sqrt(1 - correlation if tokens > 1 else 1) * (drawn - mean) + together * mean


class _Draws:
    """The blocks of random stacks, and the weights of each layer, drawn when they are asked for."""

    def __init__(
        self,
        law: DepthLaw,
        scalars: list[dict[str, float]],
        *,
        width: int,
        hidden: int | None,
        heads: int,
    ) -> None:
        layers = len(scalars)
        self.tokens = law.tokens
        self.options: dict[str, Any] = {"width": width, "hidden": hidden, "heads": heads}
        self.setting = Setting(
            scheme(law.init), law.tokens, law.memory, sizes(width, hidden, layers), law.scores
        )
        self.blocks = [law.blocks_of(number, layers) for number in range(1, layers + 1)]
        self.scalars = scalars

    def weights(self, layer: int, *, seed: int, memory: np.ndarray) -> dict[str, Any]:
        """Return the weights of a layer, from 0, with the variances of the law's scheme."""
        values: dict[str, Any] = {**self.scalars[layer], "eps": EPS, "mem_c": memory}
        weights: dict[str, Any] = {}
        for expr in self.blocks[layer].values():
            fresh = initial_weights(
                expr,
                tokens=self.tokens,
                seed=layer_seed(seed, layer),
                values=values,
                **self.options,
            )
            weights = {**fresh, **weights}  # what two streams share is drawn once
        rng = np.random.default_rng((layer_seed(seed, layer), 2))
        return {k: _scaled(k, weights[k], self.setting, rng) for k in sorted(weights)}

    def stack(self, weights: Callable[[int], dict[str, Any]]) -> Stack:
        """Return a stack with its derived Jacobians, from the weights of each layer."""
        drawn = [weights(layer) for layer in range(len(self.blocks))]
        if len(self.blocks[0]) == 1:
            return Stack([outputs["x"] for outputs in self.blocks], state("x"), drawn)
        return StreamStack([_derived(tuple(outputs.items())) for outputs in self.blocks], drawn)


@lru_cache(maxsize=64)
def _derived(outputs: tuple[tuple[str, Any], ...]) -> dict[tuple[str, str], Derivation]:
    """Return the block matrix of a block with several streams."""
    return {
        (out, into): derivation(expr, state(into)) for out, expr in outputs for into, _ in outputs
    }


def _scaled(name: str, weight: Any, setting: Setting, rng: np.random.Generator) -> Any:
    """Return a weight of variance 1/fan-in with the variance of the law's scheme; draw a bias."""
    kind, _, role = name.partition("_")
    if kind not in ("W", "b"):
        return weight
    role = role.split("_")[0]
    if kind == "b":
        fan_in = setting.at[f if role in ("2", "down") else d]
        variance = float(setting.scheme.bias_variance(fan_in, role))
        return math.sqrt(variance) * rng.standard_normal(weight.shape) if variance else weight
    if role == "Q" and setting.scores == "uniform":
        return np.zeros_like(weight)
    reads, writes = weight.shape[-1], weight.shape[-2]
    if weight.ndim == 3:  # one matrix a head
        reads, writes = (
            (len(weight) * reads, writes) if role == "O" else (reads, len(weight) * writes)
        )
    return weight * math.sqrt(setting.gain(reads, writes, role=role))
