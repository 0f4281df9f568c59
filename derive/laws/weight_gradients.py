r"""What random weights give as gradients of the weights themselves, composed from the block.

A matrix W that takes :math:`h_i` at token i, where the gradient at its output is :math:`\delta_i`,
has the gradient :math:`\sum_i\delta_ih_i^\top`, so that over n tokens, p rows and m columns

.. math:: \mathbb E\Bigl\lVert\frac{\partial\mathcal L}{\partial W}\Bigr\rVert_F^2
    = \sum_{i,j}\mathbb E(\delta_i\cdot\delta_j)(h_i\cdot h_j)
    = p\,m\,\bigl(n\,v_\delta v_h + n(n-1)\,c_\delta c_h\bigr)

with the moments of `derive.laws.components` at its two sides. All are in units of the gradient at
the output of the stack, :math:`\mathbb E|g_L|^2 = n\,d`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from derive.blocks.attention import INVERSE_ROOT, Attention, CrossAttention
from derive.blocks.sublayers import FFN, GatedFFN
from derive.calculus.maps import Apply, Map
from derive.errors import UnknownNodeError
from derive.laws.hidden import Hidden
from derive.laws.meanfield import BlockMoments
from derive.laws.mixing import mixed, scores_back, values_back
from derive.laws.moments import Moments, TokenMoments
from derive.laws.setting import Setting
from derive.symbols import d, f

__all__ = ["weight_gradients"]

Number = Any
AnyMoments = Any
"""Moments, or TokenMoments where tokens differ."""


def weight_gradients(block: BlockMoments, arriving: Mapping[Apply, Moments]) -> dict[str, Number]:
    r"""Return the mean square of the gradient of every matrix of a block.

    .. math:: \frac{\mathbb E\lVert\partial\mathcal L/\partial W\rVert_F^2}{\mathbb E|g_L|^2}

    With :math:`\langle\delta, h\rangle = v_\delta v_h + (n-1)c_\delta c_h`, z the input of the
    sublayer, g the gradient at its output, and gains and kernels as for `forward` and `backward`:

    .. math:: W_2: f\,\langle g, K\rangle,\quad
        W_1: d\,g_2\,\langle\dot Kg, z\rangle,\quad
        W_O: d\,\langle g, o\rangle,\quad W_V: d\,\langle\bar g, z\rangle,\quad W_K: 0,

    .. math:: W_Q: d\,\frac{n-1}{n^2}\,g_Vg_Kg_O\,(v_z-c_z)^2\,\langle g, z\rangle

    with o the mean over tokens of the values and :math:`\bar g` that of the gradients. Uniform
    attention has :math:`W_Q = 0`: then keys get no gradient, and queries one that vanishes where
    all tokens are the same (n = 1, or collapsed ranks). Gaussian scores have the gradients at
    queries and keys of `derive.laws.mixing`.

    Parameters
    ----------
    block : BlockMoments
        The block.
    arriving : mapping from Apply to Moments
        The gradient at the output of every sublayer, as from `BlockMoments.reverse`.

    Returns
    -------
    dict from str to number
        By the names of the weights. The query weights are left out under a norm, whose derivative
        at a query of zeros does not exist, and with rotary positions.

    Raises
    ------
    UnknownNodeError
        If a sublayer has no moments, or two share their weights.

    Notes
    -----
    Source: own. Of the special cases, one token of post-norm is Xiong et al., 2020, arXiv:
    2002.04745, theorem 1, whose bound is here a value; that queries and keys get no gradient at
    equal tokens is what Noci et al., 2022, arXiv:2206.03126, say of rank collapse (from memory).
    """
    found: dict[str, Number] = {}
    for branch, (argument, _) in block.branches.items():
        z = block.between(argument, argument)
        for name, value in _matrices(branch.mapping, arriving[branch], z, block.setting):
            if name in found:
                raise UnknownNodeError(
                    f"weights: expected sublayers with weights of their own, got {name} in two"
                )
            found[name] = value
    return found


def _matrices(
    mapping: Map, g: AnyMoments, z: AnyMoments, setting: Setting
) -> Iterator[tuple[str, Number]]:
    g = g.dropped(setting.keep)
    if isinstance(mapping, FFN | GatedFFN):
        yield from _feed_forward(mapping, g, z, setting)
    elif isinstance(mapping, Attention | CrossAttention):
        yield from _attention(mapping, g, z, setting)
    else:
        raise UnknownNodeError(
            f"weights: expected ffn, gated, attention or cross-attention, got "
            f"{type(mapping).__name__} {mapping.name}"
        )


def _feed_forward(
    mapping: Any, g: AnyMoments, z: AnyMoments, setting: Setting
) -> Iterator[tuple[str, Number]]:
    inside = Hidden.of(mapping, z, setting)
    label = f"_{mapping.label}" if mapping.label else ""
    width, hidden = setting.at.get(d, d), setting.at.get(f, f)

    def first(derivative: Any) -> Number:
        """Return the law of a first matrix from the derivative behind it at two tokens."""
        found = _pair(_product(inside.pairs(derivative).dropped(setting.keep), g), z, setting)
        return inside.out * width * found  # the gradient of f features, each from d

    if isinstance(mapping, FFN):
        last = "W_2"
        yield f"W_1{label}", first(inside.slope)
    else:
        last, kernel, size = "W_down", inside.kernel, inside._size()
        yield (
            f"W_gate{label}",
            first(lambda rho: kernel.slope(inside.q, rho) * inside._covariance(rho) / size),
        )
        yield f"W_up{label}", first(lambda rho: kernel.value(inside.q, rho) / size)
    features = inside.pairs(inside.value).dropped(setting.keep)
    yield f"{last}{label}", hidden * _pair(g, features, setting)


def _attention(
    mapping: Any, g: AnyMoments, z: AnyMoments, setting: Setting
) -> Iterator[tuple[str, Number]]:
    width = setting.at.get(d, d)
    read: AnyMoments = setting.memory if isinstance(mapping, CrossAttention) else z
    values = values_back(mapping, g, z, setting)
    yield mapping.weight("W_O"), width * _pair(g, mixed(mapping, z, setting), setting)
    yield mapping.weight("W_V"), width * _pair(values, read, setting)
    if setting.scores != "uniform":
        queries, keys = scores_back(mapping, g, z, setting)
        yield mapping.weight("W_K"), width * _pair(keys, read, setting)
        yield mapping.weight("W_Q"), width * _pair(queries, z, setting)
        return
    yield mapping.weight("W_K"), 0 * g.v
    norms = (mapping._option(f"{side}_norm") for side in ("query", "key", "value"))
    if mapping.rotary or mapping.scale != INVERSE_ROOT or any(one is not None for one in norms):
        return
    gain = width
    for role in "VKO":
        gain = gain * setting.gain(d, d, role=role)
    spread = _spread(read, mapping.causal, setting)
    yield mapping.weight("W_Q"), gain * _pair(_product(spread, g), z, setting)


def _spread(read: AnyMoments, causal: bool, setting: Setting) -> AnyMoments:
    r"""Return what the scores of two tokens see: the spread of values, times that of keys.

    .. math:: S_{ij} = \sum_{k,m}P_{ik}P_{jm}C_{km}
        \bigl(C_{km} - (CP^\top)_{kj} - (PC)_{im} + (PCP^\top)_{ij}\bigr),

    at uniform weights :math:`\frac{n-1}{n^2}(v-c)^2` for all i, j.
    """
    if isinstance(read, Moments):
        n = setting.tokens
        same = (n - 1) * (read.v - read.c) ** 2 / n**2
        return Moments(same, same)
    matrix = read.matrix
    mean = np.tri(len(matrix)) if causal else np.ones_like(matrix)
    mean = mean / mean.sum(axis=1, keepdims=True)
    ahead = matrix @ mean.T
    crossed = mean @ ahead**2
    return TokenMoments(mean @ matrix**2 @ mean.T - crossed - crossed.T + (mean @ ahead) ** 2)


def _product(left: AnyMoments, right: AnyMoments) -> AnyMoments:
    """Return the moments of a product, feature by feature, of independent signals."""
    if isinstance(left, Moments) and isinstance(right, Moments):
        return Moments(left.v * right.v, left.c * right.c)
    return TokenMoments(_matrix(left, right) * _matrix(right, left))


def _pair(left: AnyMoments, right: AnyMoments, setting: Setting) -> Number:
    """Return the mean over tokens i of the sum over tokens j of the products at i, j."""
    if isinstance(left, Moments) and isinstance(right, Moments):
        return left.v * right.v + (setting.tokens - 1) * left.c * right.c
    return float(np.sum(_matrix(left, right) * _matrix(right, left))) / setting.tokens


def _matrix(moments: AnyMoments, beside: AnyMoments) -> np.ndarray:
    if isinstance(moments, TokenMoments):
        return moments.matrix
    return beside.like(moments.v, moments.c).matrix
