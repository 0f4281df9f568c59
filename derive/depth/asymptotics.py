r"""Stacks of very many layers: Lyapunov exponents, streamed layer by layer.

Weights are drawn, the block is evaluated and its derived Jacobian lowered one layer at a time;
nothing is kept, so that L = 100,000 takes no more memory than L = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import sympy as sp

from derive import linalg
from derive.blocks.build import state as new_state
from derive.calculus.atoms import Ones
from derive.calculus.derivation import Derivation, derivation
from derive.calculus.tensor import product
from derive.depth.null_directions import WeakDirection, null_directions
from derive.depth.placed import placed_layers
from derive.depth.streams import StreamStack
from derive.errors import DomainError
from derive.initialise import initial_weights, layer_seed, random_state
from derive.linalg import DeflatedFactor, LyapunovSpectrum, Operator
from derive.lower import AbstractMap, lower_together
from derive.symbols import eps

__all__ = [
    "ContractionRate",
    "contraction_rate",
    "deflated_jacobians",
    "lyapunov_row",
    "lyapunov_spectrum",
    "placed_lyapunov_spectrum",
]

# A direction that is contracted by less than this is followed apart from the Jacobian: rounding
# errors of the Jacobian's entries would be more than 1e-8 of it.
_WEAK = 1e-8


def deflated_jacobians(
    block: sp.Basic | Iterable[sp.Basic],
    state: Any,
    weights: Iterable[Mapping[str, Any]],
    x: Any,
    maps: Mapping[str, AbstractMap] | None = None,
) -> Iterator[DeflatedFactor]:
    r"""Yield the Jacobians :math:`J_0, J_1, \dots` along the trajectory from `x`, one at a time.

    Each comes with its left null directions, which are those that `null_directions` proves for the
    derived expression, evaluated at the layer's weights. Where a layer's eps is the number 0, the
    proof is that of the block at eps = 0. Where one is not defined (1/gain, for a gain with a
    zero) the Jacobian comes alone.

    Parameters
    ----------
    block : expression or iterable of expressions
        The block, or one a layer.
    state : State
        Its variable.
    weights : iterable of mappings
        The weights of each layer, as for `derive.lower.Environment`; read once.
    x : array (n, d) or (d,)
        Input.
    maps : mapping, optional
        Numbers for abstract sublayers.

    Raises
    ------
    DomainError
        If a state overflows, or the block has no Jacobian there; the message has the layer.
    ShapeError, WeightError, UnknownNodeError
        As for `derive.lower.lower`.
    """
    blocks = repeat(block) if isinstance(block, sp.Basic) else block
    for layer, (one, layer_weights) in enumerate(zip(blocks, weights, strict=False)):
        found = _derived(one, state, layer_weights)
        try:
            factor, x = _linearised(found, layer_weights, x, maps)
        except DomainError as error:
            raise DomainError(f"layer {layer}: {error}") from None
        yield factor


def _derived(block: sp.Basic, state: Any, weights: Mapping[str, Any]) -> Derivation:
    without = np.ndim(weights.get("eps", 1.0)) == 0 and weights.get("eps", 1.0) == 0
    return derivation(block.xreplace({eps: sp.S.Zero}) if without else block, state)


def _linearised(
    found: Derivation,
    weights: Mapping[str, Any],
    x: Any,
    maps: Mapping[str, AbstractMap] | None,
) -> tuple[DeflatedFactor, np.ndarray]:
    """Return the Jacobian at x, with what is known of it, and the block's value."""
    proved = null_directions(found)
    sizes = tuple(product([one.factor, Ones(found.jacobian.shape[0])]) for one in proved.weak)
    jacobian = (found.jacobian,)
    try:
        operators, vectors = lower_together(
            jacobian, (found.output, *proved.left, *sizes), weights, x, maps
        )
        null = vectors[1 : 1 + len(proved.left)]
        small = [v.min() < _WEAK for v in vectors[1 + len(proved.left) :]]
        weak = [one for one, is_small in zip(proved.weak, small, strict=True) if is_small]
        rows, directions = _of_weak(weak, weights, x, maps) if weak else ((), ())
    except DomainError:  # 1/gain does not exist, or the block itself has no Jacobian here
        operators, vectors = lower_together(jacobian, (found.output,), weights, x, maps)
        null, rows, directions = (), (), ()
    factor = DeflatedFactor(
        operators[0],
        np.stack(null, axis=2) if null else None,
        np.stack(directions, axis=2) if directions else None,
        rows,
        proved.nullity,
    )
    return factor, vectors[0]


def _of_weak(
    weak: list[WeakDirection], *where: Any
) -> tuple[tuple[Operator, ...], tuple[Any, ...]]:
    return lower_together(
        tuple(one.row for one in weak), tuple(one.direction for one in weak), *where
    )


def lyapunov_spectrum(
    block: sp.Basic,
    state: Any,
    layers: int,
    *,
    width: int,
    tokens: int = 1,
    seed: int = 0,
    transient: int | None = None,
    batches: int = 32,
    count: int | None = None,
    progress: Callable[[range], Iterable[int]] = iter,
    **sizes: Any,
) -> LyapunovSpectrum:
    r"""Return the Lyapunov exponents of a stack of random layers, per layer.

    .. math:: \lambda_i = \lim_{L\to\infty}\frac1L\log\sigma_i\Bigl(\frac{dx_L}{dx_0}\Bigr)

    Parameters
    ----------
    block, state
        The block and its variable.
    layers : int
        L, at least 1, the transient included.
    width, tokens : int
        Features and tokens; the state is the whole sequence, with n d exponents.
    seed : int
        Seed of weights and input. A layer's weights are those of `Stack.initialised`.
    transient : int, optional
        Layers that are not averaged over, a tenth of all by default.
    batches : int
        At least so many batches of equal length, as far as there are layers, for the standard
        errors; see `LyapunovSpectrum.stderr`.
    count : int, optional
        Only so many leading exponents, which is quicker.
    progress : callable, optional
        Given the range of layers, iterates over it: for a progress bar.
    **sizes
        As for `derive.initialise.initial_weights`.

    Returns
    -------
    LyapunovSpectrum
        Exactly null directions have the exponent -inf; that they are null is proved for the
        derived expression (see `deflated_jacobians`).

    Raises
    ------
    DomainError
        If `layers`, `transient`, `batches` or a size is out of range, or a state overflows.
    WeightError
        If the block has a scalar without a value.
    """
    weights = (
        initial_weights(block, width=width, tokens=tokens, seed=layer_seed(seed, layer), **sizes)
        for layer in progress(range(layers))
    )
    factors = deflated_jacobians(block, state, weights, random_state(width, tokens, seed))
    return _averaged(factors, layers, transient, batches, count)


def placed_lyapunov_spectrum(
    placement: str,
    layers: int,
    *,
    width: int,
    tokens: int = 1,
    seed: int = 0,
    transient: int | None = None,
    batches: int = 32,
    count: int | None = None,
    progress: Callable[[range], Iterable[int]] = iter,
    **options: Any,
) -> LyapunovSpectrum:
    """Return the Lyapunov exponents of a stack of a placement of any kind, per layer.

    Parameters
    ----------
    placement : str
        As for `derive.depth.placed_stack`: with several streams the state is all of them, and null
        directions are those found in the numbers.
    layers, width, tokens, seed, transient, batches, count, progress
        As for `lyapunov_spectrum`.
    **options
        Further arguments of `derive.depth.placed_stack`: norm, sublayer, values, sizes.

    Raises
    ------
    DomainError, WeightError
        As for `lyapunov_spectrum`.
    UnknownNameError, ParseError
        If the placement is neither known nor an equation.
    """
    found = placed_layers(
        placement, max(layers, 0), width=width, tokens=tokens, seed=seed, **options
    )
    weights = (next(found.weights) for _ in progress(range(layers)))
    start = random_state(width, tokens, seed)
    if found.streams:
        factors = _stream_jacobians(found.streams, weights, start)
    else:
        factors = deflated_jacobians(found.blocks, new_state("x"), weights, start)
    return _averaged(factors, layers, transient, batches, count)


def _stream_jacobians(
    streams: Mapping[tuple[str, str], Derivation],
    weights: Iterable[Mapping[str, Any]],
    x: np.ndarray,
) -> Iterator[DeflatedFactor]:
    for layer, layer_weights in enumerate(weights):
        one = StreamStack(streams, [layer_weights])
        try:
            (factor,) = one.jacobians(x)
            x = one.states(x)[-1]
        except DomainError as error:
            raise DomainError(f"layer {layer}: {error}") from None
        yield DeflatedFactor(factor)


def _averaged(
    factors: Iterator[DeflatedFactor],
    layers: int,
    transient: int | None,
    batches: int,
    count: int | None,
) -> LyapunovSpectrum:
    if layers < 1:
        raise DomainError(
            f"layers: expected at least 1, got {layers}; exponents are rates per layer"
        )
    if transient is None:
        transient = layers // 10
    if not 0 <= transient < layers:
        raise DomainError(
            f"transient: expected 0 to {layers - 1}, fewer than the {layers} layers, got "
            f"{transient}"
        )
    if batches < 1:
        raise DomainError(f"batches: expected at least 1, got {batches}")
    batch = max(1, (layers - transient) // batches)
    return linalg.lyapunov_spectrum(factors, transient=transient, batch=batch, count=count)


@dataclass(frozen=True)
class ContractionRate:
    r"""The rate at which a small difference of two inputs grows or shrinks, per layer.

    Attributes
    ----------
    exponent : float
        The top Lyapunov exponent: a difference is multiplied by :math:`e^{\lambda_1}` a layer.
    low, high : float
        Its confidence interval.
    confidence : float
        Of the interval.
    drift : float
        As `LyapunovSpectrum.drift`: where it is large in size, the rate changes with depth and the
        interval does not cover that.
    """

    exponent: float
    low: float
    high: float
    confidence: float
    drift: float

    @classmethod
    def of(cls, spectrum: LyapunovSpectrum, confidence: float = 0.95) -> ContractionRate:
        """Return the rate of a spectrum.

        Raises
        ------
        DomainError
            If `confidence` is not between 0 and 1.
        """
        low, high = spectrum.interval(confidence)
        numbers = (spectrum.exponents[0], low[0], high[0], confidence, spectrum.drift[0])
        return cls(*map(float, numbers))

    @property
    def kind(self) -> str:
        """``contracts``, ``expands``, or ``neither`` where the interval holds 0."""
        if self.high < 0:
            return "contracts"
        return "expands" if self.low > 0 else "neither"


def contraction_rate(
    block: sp.Basic, state: Any, layers: int, *, confidence: float = 0.95, **options: Any
) -> ContractionRate:
    """Return the top Lyapunov exponent of a stack with its confidence interval.

    Only one vector is carried through the layers, and no Jacobian is formed.

    Parameters
    ----------
    block, state, layers, **options
        As for `lyapunov_spectrum`.
    confidence : float
        Of the interval, by Student's t over the batches.

    Raises
    ------
    DomainError, WeightError
        As for `lyapunov_spectrum`; also if `confidence` is not between 0 and 1.
    """
    return ContractionRate.of(
        lyapunov_spectrum(block, state, layers, count=1, **options), confidence
    )


def lyapunov_row(found: LyapunovSpectrum, **names: Any) -> dict[str, Any]:
    """Return a spectrum as a row of JSON-like values.

    Parameters
    ----------
    found : LyapunovSpectrum
        The spectrum.
    **names
        Put first: placement, width, and what else tells the row from others.

    Returns
    -------
    dict
        `names`, then ``layers`` (averaged over), ``transient``, ``batches``, ``batch``,
        ``exponents``, ``stderr``, ``null_directions``, ``kaplan_yorke``, ``sum``, ``finite_sum``,
        ``finite_sum_stderr``, ``rate`` (``exponent``, ``low``, ``high``, ``confidence``, ``drift``,
        ``kind``), ``running`` (``layers``, ``top``, ``finite_sum``) and ``factorisations``.
    """
    rate = ContractionRate.of(found)
    layers, estimates = found.running()
    return {
        **names,
        "layers": found.layers,
        "transient": found.transient,
        "batches": len(found.batch_means),
        "batch": found.batch,
        "exponents": found.exponents.tolist(),
        "stderr": found.stderr.tolist(),
        "null_directions": found.null_directions,
        "kaplan_yorke": found.kaplan_yorke,
        "sum": found.sum,
        "finite_sum": found.finite_sum,
        "finite_sum_stderr": found.finite_sum_stderr,
        "rate": {**vars(rate), "kind": rate.kind},
        "running": {
            "layers": layers.tolist(),
            "top": estimates[:, 0].tolist(),
            "finite_sum": estimates[:, np.isfinite(found.exponents)].sum(axis=1).tolist(),
        },
        "factorisations": found.factorisations,
    }
