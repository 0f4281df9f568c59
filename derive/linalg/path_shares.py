r"""What the paths of a residual product contribute: by length, by branch, and effective lengths.

With matrices there is no one meaning of "the share of the paths of length k". Three are here, under
three names, with :math:`M = \sum_k S_k` the whole product:

* the *overlap* :math:`\langle S_k, M\rangle_F / \lVert M\rVert_F^2`: adds up to exactly 1, may be
  negative where paths cancel;
* the *norm share* :math:`\lVert S_k\rVert_F / \sum_j\lVert S_j\rVert_F`: never negative, and blind
  to cancellation between lengths;
* the *energy* :math:`E_k = \sum_{\text{paths of length }k}\lVert\text{path}\rVert_F^2`: every path
  on its own, blind to all interference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from derive.errors import DomainError, ShapeError
from derive.linalg.arrays import Array, as_count
from derive.linalg.by_length import Apply, ByLength, apply_to_stack
from derive.linalg.factors import Factor
from derive.linalg.norms import spectral_norm
from derive.linalg.paths import Label, Layer, as_layers, layer_width
from derive.linalg.scaled import LOG_2, ScaledMatrix, split_exponent

__all__ = [
    "EffectiveLengths",
    "effective_lengths",
    "log_graded_remainder_bound",
    "norm_shares",
    "overlap",
    "path_energies",
]


def overlap(part: ScaledMatrix, whole: ScaledMatrix) -> float:
    r"""Return the share of a summand in a sum, by its projection.

    .. math:: \langle S, M\rangle_F / \lVert M\rVert_F^2

    Parameters
    ----------
    part, whole : ScaledMatrix
        S and M, of one shape.

    Returns
    -------
    float
        The overlaps of all summands add up to 1. NaN where M is zero, infinite where a float
        cannot hold it.

    Raises
    ------
    ShapeError
        If the shapes differ.
    """
    if part.shape != whole.shape:
        raise ShapeError(f"part: expected shape {whole.shape}, got {part.shape}")
    matrix, shift = split_exponent(whole.matrix)
    square = float(np.vdot(matrix, matrix))
    if not square:
        return math.nan
    ratio = float(np.vdot(part.matrix, matrix)) / square
    log_scale = part.log_scale - whole.log_scale - shift * LOG_2
    with np.errstate(over="ignore"):
        return float(ratio * np.exp(log_scale)) if ratio else 0.0


def norm_shares(sums: Iterable[ScaledMatrix]) -> Array:
    r"""Return :math:`\lVert S_k\rVert_F/\sum_j\lVert S_j\rVert_F` for every k.

    Parameters
    ----------
    sums : iterable of ScaledMatrix
        The path sums, at least one.

    Returns
    -------
    ndarray
        Adds up to 1; NaN where all are zero.
    """
    return _normalised(np.array([s.log_norm("fro") for s in sums]))


def _normalised(logs: Array) -> Array:
    """Return ``exp(logs)`` divided by its sum."""
    if not np.isfinite(logs.max()):
        return np.full(len(logs), np.nan)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def path_energies(
    layers: Iterable[Layer], max_length: int | None = None, *, size: int | None = None
) -> Array:
    r"""Return the log of the sum of squared norms of all single paths, by length.

    .. math:: E_k = \sum_{\text{paths } p,\ |p| = k}\lVert p\rVert_F^2 = \operatorname{tr} G_k,
        \qquad G_k \leftarrow \sum_b b\, G_{k-|b|}\, b^\top

    over the terms b of a layer: 2 K L products, though there are :math:`2^L` paths.

    Parameters
    ----------
    layers : iterable of mappings from Label to Operator or ndarray
        As for `graded_path_sums`.
    max_length : int, optional
        K; the longest path there is unless given.
    size : int, optional
        The width that an empty list stands for.

    Returns
    -------
    ndarray, shape (K + 1,)
        Natural logarithms; -inf where no path of that length is nonzero.

    Raises
    ------
    ShapeError, DomainError, WeightError, UnknownNodeError
        As for `graded_path_sums`.

    Notes
    -----
    Source: Veit, Wilber and Belongie, Residual networks behave like ensembles of relatively shallow
    networks, NeurIPS 2016, section 5, who sample paths of each length, multiply the mean
    norm of their gradient by the number of paths, and call the lengths that carry it effective.
    This is the exact sum over the paths, of squares.
    """
    checked = as_layers(layers)
    width = layer_width(checked, size)
    there_is = sum(max(map(len, layer)) for layer in checked)
    longest = there_is if max_length is None else as_count("max_length", max_length, least=0)
    if longest > there_is:
        raise DomainError(f"max_length: expected 0 to {there_is} branches, got {max_length}")
    gram = ByLength(np.eye(width)[None], np.zeros(1, dtype=np.int64))
    for layer in checked:
        gram = gram.after([(len(k), f) for k, f in layer.items()], longest, _on_both_sides)
    traces = np.trace(gram.stack, axis1=1, axis2=2)
    logs = np.full(longest + 1, -np.inf)
    np.log(traces, out=logs[: len(traces)], where=traces > 0)
    logs[: len(traces)] += np.where(traces > 0, gram.exponents, 0) * LOG_2
    return logs


def _on_both_sides(factor: Factor, stack: Array) -> Array:
    """Return ``factor @ stack[k] @ factor.T`` of symmetric matrices."""
    half = apply_to_stack(factor, stack).transpose(0, 2, 1)
    return apply_to_stack(factor, half)


@dataclass(frozen=True)
class EffectiveLengths:
    r"""The expected number of branches on a path, under two weights.

    Attributes
    ----------
    overlap : float
        :math:`\sum_k k\,\langle S_k, M\rangle_F/\lVert M\rVert_F^2`; not bounded by 0 and the
        longest path where paths cancel.
    energy : float
        :math:`\sum_k k\,E_k / \sum_k E_k`.
    log_energy : float
        :math:`\log\sum_k E_k`.
    """

    overlap: float
    energy: float
    log_energy: float


def effective_lengths(layers: Iterable[Layer], *, size: int | None = None) -> EffectiveLengths:
    r"""Return the effective path lengths over all lengths, by O(L) products.

    The weight of a path is multiplied by z for each branch and the derivative taken at z = 1, one
    layer after the other, so that no length is looked at alone.

    .. math:: \sum_k k S_k = \frac{d}{dz}\prod_l\sum_j z^jB_{l,j}\Big|_{z=1}

    Parameters
    ----------
    layers : iterable of mappings from Label to Operator or ndarray
        As for `graded_path_sums`.
    size : int, optional
        The width that an empty list stands for.

    Returns
    -------
    EffectiveLengths
        NaN where the product (or every path) is zero; 0 for no layers.

    Raises
    ------
    ShapeError, DomainError, WeightError, UnknownNodeError
        As for `graded_path_sums`.
    """
    checked = as_layers(layers)
    width = layer_width(checked, size)
    plain = _Dual(width, apply_to_stack)
    squares = _Dual(width, _on_both_sides)
    for layer in checked:
        plain.step(layer)
        squares.step(layer)
    value, slope = plain.pair
    square = float(np.vdot(value, value))
    energy, weighted = (float(np.trace(m)) for m in squares.pair)
    return EffectiveLengths(
        overlap=float(np.vdot(slope, value)) / square if square else math.nan,
        energy=weighted / energy if energy else math.nan,
        log_energy=math.log(energy) + squares.exponent * LOG_2 if energy else -math.inf,
    )


class _Dual:
    """A product over layers and its derivative in z, with one exponent for both."""

    def __init__(self, width: int, apply: Apply) -> None:
        self.pair = np.stack([np.eye(width), np.zeros((width, width))])
        self.exponent = 0
        self._apply = apply

    def step(self, layer: dict[Label, Factor]) -> None:
        total = np.zeros_like(self.pair)
        for label, factor in layer.items():
            image = self._apply(factor, self.pair)
            total += image
            total[1] += len(label) * image[0]
        self.pair, shift = split_exponent(total)
        self.exponent += shift


def log_graded_remainder_bound(
    layers: Iterable[Mapping[Label, Factor | float]], order: int
) -> float:
    r"""Return the log of a rigorous bound on what the paths of more than K branches add up to.

    .. math:: \Bigl\lVert M-\sum_{k\le K}S_k\Bigr\rVert_2\le\sum_{k>K}[z^k]\prod_l\sum_j z^j
        \sum_{|b|=j}\lVert b\rVert_2

    Parameters
    ----------
    layers : iterable of mappings from Label to Operator or ndarray, or to float
        As for `graded_path_sums`, or with the norms in place of the terms.
    order : int
        K, at least 0.

    Returns
    -------
    float
        -inf if there is no longer path.

    Raises
    ------
    DomainError
        If `order` is negative.
    ShapeError, WeightError, UnknownNodeError
        As for `graded_path_sums`.

    Notes
    -----
    Source: the triangle inequality and submultiplicativity, path by path; for the layers I + A_l it
    is `log_product_remainder_bound`. All terms are positive, so that nothing cancels; what rounding
    does to the norms and the sum is not enclosed.
    """
    kept = as_count("order", order, least=0)
    logs = np.full(kept + 2, -np.inf)  # the coefficients to K, then the sum of the rest
    logs[0] = 0.0
    for layer in layers:
        powers: dict[int, float] = {}
        for label, term in layer.items():
            norm = float(term) if isinstance(term, int | float) else spectral_norm(term)
            powers[len(label)] = powers.get(len(label), 0.0) + norm
        after = np.full(kept + 2, -np.inf)
        for degree, norm in powers.items():
            if not norm:
                continue
            shifted = logs + math.log(norm)
            step = min(degree, kept + 1)
            after[step:-1] = np.logaddexp(after[step:-1], shifted[: kept + 1 - step])
            for lost in (*shifted[kept + 1 - step : -1], shifted[-1]):
                after[-1] = np.logaddexp(after[-1], lost)
        logs = after
    return float(logs[-1])
