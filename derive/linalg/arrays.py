"""Checks of the arrays and counts that enter: finite, real, float64, of the right shape."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from derive.errors import DomainError, ShapeError, WeightError

__all__ = ["Array", "as_array", "as_count", "is_finite", "per_token"]

Array: TypeAlias = npt.NDArray[Any]


def as_count(name: str, value: int, least: int = 1) -> int:
    """Return ``value`` as an integer of at least ``least``.

    Raises
    ------
    DomainError
        If it is not an integer, or smaller.
    """
    try:
        count = operator.index(value)
    except TypeError:
        raise DomainError(
            f"{name}: expected an integer >= {least}, got {type(value).__name__} {value!r}"
        ) from None
    if isinstance(value, bool) or count < least:
        raise DomainError(f"{name}: expected an integer >= {least}, got {value!r}")
    return count


def as_array(name: str, value: npt.ArrayLike, ndim: int | Sequence[int]) -> Array:
    """Return ``value`` as a read-only float64 array; the data is copied only to convert it.

    Raises
    ------
    WeightError
        If it is not real numbers, or not finite.
    ShapeError
        If it has another number of axes, or an axis of length 0.
    """
    value = getattr(value, "recorded_array", value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise WeightError(f"{name}: expected a rectangular array, got ragged rows") from None
    if array.dtype.kind not in "fiub":
        raise WeightError(f"{name}: expected real numbers, got dtype {array.dtype}")
    allowed = (ndim,) if isinstance(ndim, int) else tuple(ndim)
    if array.ndim not in allowed:
        wanted = " or ".join(str(axes) for axes in allowed)
        raise ShapeError(
            f"{name}: expected an array with {wanted} axes, got {array.ndim} (shape {array.shape})"
        )
    if 0 in array.shape:
        raise ShapeError(f"{name}: expected no axis of length 0, got shape {array.shape}")
    array = array.astype(np.float64, copy=False)
    if not is_finite(array):
        raise WeightError(f"{name}: expected finite entries, got nan or inf")
    view = array.view(np.ndarray)[...]
    view.flags.writeable = False
    return view


def is_finite(array: Array) -> bool:
    """Whether every entry is finite: if the sum of squares is, each one is."""
    stored = array[tuple(slice(None) if step else slice(1) for step in array.strides)]
    flat = stored.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(math.isfinite(np.dot(flat, flat)) or np.isfinite(flat).all())


def per_token(name: str, array: Array, tokens: int) -> Array:
    """Return ``array`` if its leading axis is ``tokens`` or 1 (shared by all tokens).

    Raises
    ------
    ShapeError
        If the leading axis has another length.
    """
    if array.shape[0] not in (1, tokens):
        raise ShapeError(
            f"{name}: expected a leading axis of {tokens} tokens, or 1 if they share it, "
            f"got shape {array.shape}"
        )
    return array
