r"""Attention as a random average over tokens, forward and backward.

At uniform weights token i becomes the mean of the tokens that it sees,

.. math:: \text{no mask: } v' = c' = g_Vg_O\,\frac{v + (n-1)c}{n}, \qquad
    \text{any: } C' = g_Vg_O\,MCM^\top, \quad C_g' = g_Vg_O\,M^\top C_gM,

with :math:`M = 11^\top/n`, or :math:`M_{ij} = 1/i` for :math:`j \le i` behind a causal mask: the
gradient goes back through the transposed average, so that the first tokens get most of it.

Source: own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from derive.blocks.attention import CrossAttention
from derive.errors import UnknownNodeError
from derive.laws.moments import Moments, TokenMoments
from derive.laws.setting import Setting
from derive.symbols import d

__all__ = ["averaged", "averaged_back"]

Number = Any


def averaged(mapping: Any, z: Moments | TokenMoments, setting: Setting) -> Moments | TokenMoments:
    """Return the moments of the output of an attention.

    Raises
    ------
    UnknownNodeError
        If it has an option whose moments are not known.
    """
    _check(mapping)
    if isinstance(mapping, CrossAttention):
        memory = setting.memory
        gain = _gain(mapping, memory, setting)
        mean = gain * (memory.v + (setting.tokens - 1) * memory.c) / setting.tokens
        return z.like(mean, mean)
    return _mean(mapping, z, z, setting, back=False)


def averaged_back(
    mapping: Any, g: Moments | TokenMoments, z: Moments | TokenMoments, setting: Setting
) -> Moments | TokenMoments:
    """Return the moments of the gradient behind an attention, through its values.

    Raises
    ------
    UnknownNodeError
        If it has an option whose moments are not known.
    """
    _check(mapping)
    if isinstance(mapping, CrossAttention):
        return g.times(0, 0)  # only through the query, whose path vanishes at uniform weights
    return _mean(mapping, g, z, setting, back=True)


def _mean(
    mapping: Any,
    signal: Moments | TokenMoments,
    z: Moments | TokenMoments,
    setting: Setting,
    *,
    back: bool,
) -> Moments | TokenMoments:
    gain = _gain(mapping, z, setting)
    if isinstance(signal, Moments):
        if mapping.causal:
            raise UnknownNodeError(
                "attention: expected one without mask, whose tokens do not differ, for a law in "
                f"symbols, got {mapping.name} with a causal mask"
            )
        mean = gain * (signal.v + (setting.tokens - 1) * signal.c) / setting.tokens
        return Moments(mean, mean)
    matrix = signal.matrix
    if back:
        found = _behind(_behind(matrix, mapping.causal).T, mapping.causal).T
        return TokenMoments(found).times(np.sqrt(gain), np.sqrt(gain))
    matrix = signal.times(np.sqrt(gain), np.sqrt(gain)).matrix
    return TokenMoments(_ahead(_ahead(matrix, mapping.causal).T, mapping.causal).T)


def _ahead(matrix: np.ndarray, causal: bool) -> np.ndarray:
    """Return M times a matrix."""
    count = np.arange(1, len(matrix) + 1)[:, None]
    if causal:
        return np.cumsum(matrix, axis=0) / count
    return np.broadcast_to(matrix.mean(axis=0), matrix.shape)


def _behind(matrix: np.ndarray, causal: bool) -> np.ndarray:
    """Return the transpose of M times a matrix."""
    count = np.arange(1, len(matrix) + 1)[:, None]
    if causal:
        return np.cumsum((matrix / count)[::-1], axis=0)[::-1]
    return np.broadcast_to(matrix.mean(axis=0), matrix.shape)


def _gain(mapping: Any, read: Moments | TokenMoments, setting: Setting) -> Number:
    """Return the gain of value and output projection; a norm of the value divides by its size."""
    into, out = setting.gain(d, d, writes=False), setting.gain(d, d, writes=True)
    if mapping._option("value_norm") is not None:
        into = 1 / read.squares
    return into * out


def _check(mapping: Any) -> None:
    absent = [o for o in ("out_norm", "gate") if mapping._option(o) is not None]
    absent += ["sinks"] if mapping._option("sinks") else []
    absent += ["score_bias"] if mapping._option("score_bias") else []
    absent += ["mask"] if mapping.masked and not mapping.causal else []
    if absent:
        raise UnknownNodeError(
            "attention: expected one without output norm, gate, sinks, score bias and mask (but a "
            f"causal one), whose moments are known, got {mapping.name} with {', '.join(absent)}"
        )
