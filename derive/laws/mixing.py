r"""Attention as a random average over tokens, forward and backward.

Weights P, whose rows sum to 1, and values of moments v and c give

.. math:: v' = g_Vg_O\bigl(c + (v - c)\pi\bigr), \qquad
    c' = g_Vg_O\bigl(c + (v - c)\pi'\bigr), \qquad
    \pi = \mathbb E\sum_jP_{ij}^2,\ \pi' = \mathbb E\sum_jP_{ij}P_{kj},

and the gradient comes back through the transposed average. *Uniform* weights have
:math:`\pi = \pi' = 1/n`; behind a causal mask :math:`M_{ij} = 1/i` for :math:`j \le i`, so that

.. math:: C' = g_Vg_O\,MCM^\top, \qquad C_g' = g_Vg_O\,M^\top C_gM

and the first tokens get most of the gradient.

*Gaussian* scores :math:`S_{ij} = q_i\cdot k_j/\sqrt{d_h}` have over random weights the covariance
:math:`(g_QC_{ik})(g_KC_{jl})`. What the scores of a row share cancels; left is the variance
:math:`s^2 = g_Qv\,g_K(v - c)`, with correlation c/v between rows, and the moments of P are those of
`derive.laws.softmax`. The gradient also comes back through the scores. With
:math:`T = \mathbb E\sum_jP_{ij}^2(1 - 2P_{ij} + \pi)`, :math:`T'` its twin for two rows, and
:math:`G = g_Qg_Kg_Vg_O`, queries and keys add

.. math:: \text{query: } v' = G(v - c)^2\,T\,v_g,\quad c' = G(v - c)^2\,T'c_g; \qquad
    \text{key: } v' = G(v - c)\bigl(v\,T\,v_g + (n - 1)c\,T'c_g\bigr),\quad
    c' = -\frac{v'}{n - 1}

(keys push tokens apart: the gradients of a row of scores sum to 0). The approximation: d and the
width of a head are large, so that scores are normal and mean products have no spread; corrections
are of the order of one over the width of a head.

Dropout of weights divides :math:`P_{ij}^2` of the values by 1 - p, masks being independent.

Source: own; the forward variance at large n as in Kedia et al., 2024, arXiv:2403.09635.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from derive.blocks.attention import INVERSE_ROOT, CrossAttention
from derive.errors import UnknownNodeError
from derive.laws.moments import Moments, TokenMoments
from derive.laws.setting import Setting
from derive.laws.softmax import SoftmaxMoments, softmax_moments
from derive.symbols import d

__all__ = [
    "averaged",
    "averaged_back",
    "averaged_tangent",
    "mixed",
    "scores_back",
    "values_back",
]

Number = Any
AnyMoments = Any
"""Moments, or TokenMoments where tokens differ."""


def averaged(mapping: Any, z: AnyMoments, setting: Setting) -> AnyMoments:
    """Return the moments of the output of an attention.

    Raises
    ------
    UnknownNodeError
        If it has an option whose moments are not known.
    """
    bias = setting.bias(mapping, d, "O")
    mean = mixed(mapping, z, setting)
    return mean.times(setting.gain(d, d, role="O"), 1).plus(z.like(bias, bias))


def mixed(mapping: Any, z: AnyMoments, setting: Setting) -> AnyMoments:
    """Return the moments of the weighted mean of the values, before the output projection."""
    _check(mapping, setting)
    values, _ = _projected(mapping, "V", _read(mapping, z, setting), setting)
    if isinstance(values, TokenMoments):
        return _averaged_tokens(values, mapping.causal, setting, back=False)
    return z.like(*_mixed(values, _weights(mapping, z, setting), setting))


def averaged_back(mapping: Any, g: AnyMoments, z: AnyMoments, setting: Setting) -> AnyMoments:
    """Return the moments of the gradient behind an attention.

    Raises
    ------
    UnknownNodeError
        If it has an option whose moments are not known.
    """
    _check(mapping, setting)
    cross = isinstance(mapping, CrossAttention)
    behind = g.times(0, 0)
    if not cross:
        behind = values_back(mapping, g, z, setting).times(setting.gain(d, d, role="V"), 1)
    if setting.scores != "uniform":
        queries, keys = scores_back(mapping, g, z, setting)
        behind = behind.plus(queries.times(setting.gain(d, d, role="Q"), 1))
        if not cross:
            behind = behind.plus(keys.times(setting.gain(d, d, role="K"), 1))
    return behind


def averaged_tangent(mapping: Any, u: AnyMoments, z: AnyMoments, setting: Setting) -> AnyMoments:
    """Return the moments of a tangent at the output of an attention of uniform weights.

    Raises
    ------
    UnknownNodeError
        If the weights are not uniform, or an option has no known moments.
    """
    _check(mapping, setting)
    if setting.scores != "uniform":
        raise UnknownNodeError(
            f"scores: expected uniform ones, whose tangents are known, got {setting.scores}"
        )
    if isinstance(mapping, CrossAttention):
        return u.times(0, 0)
    _, unit = _projected(mapping, "V", z, setting)
    root = np.sqrt(setting.gain(d, d, role="V") * setting.gain(d, d, role="O") * unit)
    if isinstance(u, TokenMoments):
        return _averaged_tokens(u, mapping.causal, setting, back=False).times(root, root)
    return z.like(*_mixed(u.times(root, root), _weights(mapping, z, setting), setting))


def values_back(mapping: Any, g: AnyMoments, z: AnyMoments, setting: Setting) -> AnyMoments:
    """Return the moments of the gradient at the values, as they are projected."""
    out = setting.gain(d, d, role="O")
    _, unit = _projected(mapping, "V", _read(mapping, z, setting), setting)
    if isinstance(g, TokenMoments) and not isinstance(mapping, CrossAttention):
        root = np.sqrt(out * unit)
        return _averaged_tokens(g, mapping.causal, setting, back=True).times(root, root)
    found = _mixed_back(g.mean(), _weights(mapping, z, setting), setting)
    return found.times(out * unit, 1)


def scores_back(mapping: Any, g: Moments, z: Moments, setting: Setting) -> tuple[Moments, Moments]:
    """Return the moments of the gradients at queries and at keys, as they are projected.

    For tokens that do not differ.
    """
    read, weights = _read(mapping, z, setting), _weights(mapping, z, setting)
    queries, unit = _projected(mapping, "Q", z, setting)
    keys, unit_keys = _projected(mapping, "K", read, setting)
    values, _ = _projected(mapping, "V", read, setting)
    out = setting.gain(d, d, role="O")
    same = out * (values.v / setting.keep - values.c) * weights.same_score * g.v
    other = out * (values.v - values.c) * weights.other_score * g.c
    others = setting.tokens - 1
    query = Moments(same, other).times(unit * (keys.v - keys.c), 1)
    key = unit_keys * (queries.v * same + others * queries.c * other)
    return query, Moments(key, -key / others if others != 0 else key)


# -- tokens that do not differ


def _mixed(values: Moments, weights: SoftmaxMoments, setting: Setting) -> Moments:
    if setting.keep == 1 and weights.same == weights.other:
        mean = _mean(values, setting)
        return Moments(mean, mean)
    apart = values.v - values.c
    return Moments(
        values.v * weights.same / setting.keep + values.c * (1 - weights.same),
        values.c + apart * weights.other,
    )


def _mixed_back(g: Moments, weights: SoftmaxMoments, setting: Setting) -> Moments:
    if setting.keep == 1 and weights.same == weights.other:
        mean = _mean(g, setting)
        return Moments(mean, mean)
    others = setting.tokens - 1
    apart = (1 - weights.same) / others if others != 0 else 0
    return Moments(
        g.v * weights.same / setting.keep + others * weights.other * g.c,
        apart * g.v + (1 - weights.other) * g.c,
    )


def _mean(moments: Moments, setting: Setting) -> Number:
    return (moments.v + (setting.tokens - 1) * moments.c) / setting.tokens


def _read(mapping: Any, z: AnyMoments, setting: Setting) -> AnyMoments:
    return setting.memory if isinstance(mapping, CrossAttention) else z


def _weights(mapping: Any, z: AnyMoments, setting: Setting) -> SoftmaxMoments:
    if setting.scores == "uniform":
        flat = 1 / setting.tokens
        return SoftmaxMoments(flat, flat, flat - flat**2, flat - flat**2)
    queries, _ = _projected(mapping, "Q", z, setting)
    keys, _ = _projected(mapping, "K", _read(mapping, z, setting), setting)
    variance = max(float(queries.v * (keys.v - keys.c)), 0.0)
    return softmax_moments(int(setting.tokens), variance, float(queries.ratio()))


# -- tokens that differ


def _averaged_tokens(
    signal: TokenMoments, causal: bool, setting: Setting, *, back: bool
) -> TokenMoments:
    step = _behind if back else _ahead
    found = step(step(signal.matrix, causal).T, causal).T
    if setting.keep != 1:  # the squares of the weights, 1/i^2, once more
        tokens = len(found)
        share = 1 / (np.arange(1.0, tokens + 1) if causal else np.full(tokens, float(tokens)))
        squares = signal.squares
        if back:
            extra = step((squares * share)[:, None], causal)[:, 0]
        else:
            extra = step(squares[:, None], causal)[:, 0] * share
        found = found + np.diag(extra * (1 / setting.keep - 1))
    return TokenMoments(found)


def _ahead(matrix: np.ndarray, causal: bool) -> np.ndarray:
    """Return M times a matrix."""
    if causal:
        return np.cumsum(matrix, axis=0) / np.arange(1, len(matrix) + 1)[:, None]
    return np.broadcast_to(matrix.mean(axis=0), matrix.shape)


def _behind(matrix: np.ndarray, causal: bool) -> np.ndarray:
    """Return the transpose of M times a matrix."""
    if causal:
        count = np.arange(1, len(matrix) + 1)[:, None]
        return np.cumsum((matrix / count)[::-1], axis=0)[::-1]
    return np.broadcast_to(matrix.mean(axis=0), matrix.shape)


# -- projections


def _projected(
    mapping: Any, role: str, z: AnyMoments, setting: Setting
) -> tuple[AnyMoments, Number]:
    """Return the moments of queries, keys or values, and what a norm divides their gradient by."""
    found = z.times(setting.gain(d, d, role=role), 1)
    if role == "Q" and setting.scores == "uniform":
        return z.times(0, 0), 1
    bias = setting.bias(mapping, d, role)
    if bias != 0:
        found = found.plus(z.like(bias, bias))
    norm = {"Q": "query_norm", "K": "key_norm", "V": "value_norm"}[role]
    if mapping._option(norm) is None:
        return found, 1
    unit = 1 / found.squares
    if isinstance(found, TokenMoments):
        return found.times(np.sqrt(unit), np.sqrt(unit)), unit
    return found.times(unit, 1), unit


def _check(mapping: Any, setting: Setting) -> None:
    absent = [o for o in ("out_norm", "gate") if mapping._option(o) is not None]
    absent += [o for o in ("sinks", "score_bias") if mapping._option(o)]
    absent += ["mask"] if mapping.masked and not mapping.causal else []
    if absent:
        raise UnknownNodeError(
            "attention: expected one without output norm, gate, sinks, score bias and mask (but a "
            f"causal one), whose moments are known, got {mapping.name} with {', '.join(absent)}"
        )
    if setting.scores == "uniform":
        return
    if not setting.at:
        raise UnknownNodeError(
            "scores: the moments of a softmax of gaussian scores are integrals; expected numbers"
        )
    absent = [o for o in ("softcap",) if mapping._option(o) is not None]
    absent += ["rotary positions"] if mapping.rotary else []
    absent += ["a causal mask"] if mapping.causal else []
    absent += ["a scale of its own"] if mapping.scale != INVERSE_ROOT else []
    if absent:
        raise UnknownNodeError(
            "scores: gaussian ones are known of attention without mask, rotary positions, softcap "
            f"and scale of its own, got {mapping.name} with {', '.join(absent)}"
        )
