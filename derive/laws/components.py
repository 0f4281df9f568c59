r"""What one sublayer does to the moments of random signals, forward and backward.

A signal of n tokens is described by :math:`v = \mathbb E|x_i|^2/d` and
:math:`c = \mathbb E\,x_i\cdot x_j/d` for two different tokens, or by the matrix of all pairs; a
gradient likewise. Weights are independent, of mean zero and wide, so that pre-activations are
normal.
"""

from __future__ import annotations

from typing import Any

from derive.blocks.attention import Attention, CrossAttention
from derive.blocks.sublayers import FFN, GatedFFN
from derive.calculus.maps import Map
from derive.errors import UnknownNodeError
from derive.laws.hidden import Hidden
from derive.laws.mixing import averaged, averaged_back
from derive.laws.moments import Moments, TokenMoments
from derive.laws.setting import Setting

__all__ = ["Moments", "Setting", "TokenMoments", "backward", "forward"]

Number = Any


def forward(mapping: Map, z: Any, setting: Setting) -> Any:
    r"""Return the moments of a sublayer's output.

    .. math:: \text{FFN: } v' = g_2 K(g_1v, 1),\quad c' = g_2K(g_1v, c/v); \qquad
        \text{gated: } v' = g_dK(g v, 1)\,g v; \qquad
        \text{attention, uniform: } v' = c' = g_Vg_O\,\frac{v + (n-1)c}{n}

    A norm before the output projection divides K by its value at correlation 1, LayerNorm after
    :math:`K(q, 0)`, the square of the mean, is subtracted. A bias adds its variance to v and to c.
    Dropout of rate p divides v by 1 - p, at the hidden features and once more at the output, and
    leaves c; attention as in `derive.laws.mixing`.

    Returns
    -------
    Moments or TokenMoments
        Of the kind that the input has.

    Raises
    ------
    UnknownNodeError
        If the sublayer has no moments here.
    """
    if isinstance(mapping, FFN | GatedFFN):
        inside = Hidden.of(mapping, z, setting)
        hidden = inside.pairs(inside.value).dropped(setting.keep)
        out = hidden.times(inside.out, 1).plus(z.like(inside.bias, inside.bias))
    elif isinstance(mapping, Attention | CrossAttention):
        out = averaged(mapping, z, setting)
    else:
        raise _no_moments(mapping)
    return out.dropped(setting.keep)


def backward(mapping: Map, g: Any, z: Any, setting: Setting) -> Any:
    r"""Return the moments of the gradient behind a sublayer.

    .. math:: \text{FFN: } v' = g_1g_2\,\dot K(g_1v,1)\,v_g; \qquad
        \text{gated: } v' = g\,g_d\bigl(\dot K\,gv + K\bigr)v_g; \qquad
        \text{attention, uniform: } v' = c' = g_Vg_O\,\frac{v_g+(n-1)c_g}{n}

    Dropout has the masks of the forward pass and divides :math:`v_g` like v.

    Parameters
    ----------
    mapping : Map
        The sublayer.
    g : Moments or TokenMoments
        The gradient at its output.
    z : Moments or TokenMoments
        The signal at its input.
    setting : Setting
        Weights and sizes.

    Raises
    ------
    UnknownNodeError
        If the sublayer has no moments here.
    """
    g = g.dropped(setting.keep)
    if isinstance(mapping, FFN | GatedFFN):
        inside = Hidden.of(mapping, z, setting)
        factor = inside.into * inside.out
        slopes = inside.pairs(lambda rho: factor * inside.slope(rho)).dropped(setting.keep)
        if isinstance(slopes, Moments):
            return Moments(slopes.v * g.v, slopes.c * g.c)
        return TokenMoments(slopes.matrix * g.matrix)
    if isinstance(mapping, Attention | CrossAttention):
        return averaged_back(mapping, g, z, setting)
    raise _no_moments(mapping)


def _no_moments(mapping: Map) -> UnknownNodeError:
    return UnknownNodeError(
        f"sublayer: expected ffn, gated, attention or cross-attention, whose moments are known, "
        f"got {type(mapping).__name__} {mapping.name}"
    )
