"""Weights and masks of a framework's layers as plain arrays, in column-vector convention."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from derive.backends.extras import load_torch
from derive.errors import ShapeError

__all__ = [
    "additive_mask",
    "array",
    "causal_mask",
    "heads_of",
    "is_causal",
    "linear",
    "norm_affine",
]

BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]


def array(tensor: Any) -> FloatArray:
    """Return a tensor's values as a new float64 array."""
    values: FloatArray = np.array(tensor.detach().cpu().double().numpy(), dtype=np.float64)
    return values


def linear(layer: Any, *, transposed: bool = False) -> tuple[FloatArray, FloatArray]:
    """Return W (out, in) and b (out,) of ``y = W x + b``; b is 0 where the layer has none.

    ``transposed`` is for layers that store W as (in, out), such as the ``Conv1D`` of GPT-2.
    """
    weight = array(layer.weight)
    weight = np.ascontiguousarray(weight.T) if transposed else weight
    bias = np.zeros(weight.shape[0]) if layer.bias is None else array(layer.bias)
    return weight, bias


def norm_affine(norm: Any, index: int, *, bias: bool = True) -> dict[str, FloatArray]:
    """Return gain (and bias) of a norm as ``gain_<index>``, ``bias_<index>``.

    A norm without gain multiplies by 1 and one without bias adds 0.
    """
    gain = getattr(norm, "weight", None)
    shift = getattr(norm, "bias", None)
    width = norm.normalized_shape[-1] if gain is None else gain.shape[0]
    weights = {f"gain_{index}": np.ones(width) if gain is None else array(gain)}
    if bias:
        weights[f"bias_{index}"] = np.zeros(width) if shift is None else array(shift)
    return weights


def heads_of(
    *,
    query: tuple[FloatArray, FloatArray],
    key: tuple[FloatArray, FloatArray],
    value: tuple[FloatArray, FloatArray],
    out: tuple[FloatArray, FloatArray],
    heads: int,
    groups: int = 1,
) -> dict[str, FloatArray]:
    """Split projections into heads: rows of W_Q, W_K, W_V, columns of W_O, in contiguous runs.

    Parameters
    ----------
    query, key, value, out : tuple of ndarray
        (W, b) of each projection; W is (H dh, d) for the query, (H dh / groups, d) for key and
        value, (d, H dh) for the output.
    heads : int
        Number H of query heads.
    groups : int
        How many query heads share a key and value head; head h uses number ``h // groups``.

    Raises
    ------
    ShapeError
        When the rows do not divide into the heads.
    """
    rows, width = query[0].shape
    weights: dict[str, FloatArray] = {}
    for letter, (matrix, bias), count in (
        ("Q", query, heads),
        ("K", key, heads // groups),
        ("V", value, heads // groups),
    ):
        if matrix.shape != (rows * count // heads, width) or rows % heads or heads % groups:
            raise ShapeError(
                f"W_{letter}: expected shape ({rows * count // heads}, {width}) for {count} heads, "
                f"got {matrix.shape}"
            )
        repeats = heads // count
        weights[f"W_{letter}"] = np.repeat(matrix.reshape(count, -1, width), repeats, axis=0)
        weights[f"b_{letter}"] = np.repeat(bias.reshape(count, -1), repeats, axis=0)
    matrix, bias = out
    weights["W_O"] = np.ascontiguousarray(
        matrix.reshape(matrix.shape[0], heads, rows // heads).transpose(1, 0, 2)
    )
    weights["b_O"] = bias
    return weights


def causal_mask(tokens: int) -> BoolArray:
    """Return the (n, n) mask in which query i may attend to the keys j <= i."""
    return np.tri(tokens, dtype=np.bool_)


def is_causal(mask: BoolArray | None, own: bool) -> bool:
    """Say whether no query attends to a later key; `own` is the answer without a mask."""
    return own if mask is None else not np.triu(mask, 1).any()


def additive_mask(mask: BoolArray) -> Any:
    """Return a mask as a float64 tensor (n, n): 0 where allowed, else the lowest float."""
    torch = load_torch()
    lowest = float(np.finfo(np.float64).min)
    return torch.tensor(np.where(mask, 0.0, lowest), dtype=torch.float64)
