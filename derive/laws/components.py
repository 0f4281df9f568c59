r"""What one component does to the moments of random signals, forward and backward.

A signal of n tokens is described by :math:`v = \mathbb E|x_i|^2/d` and
:math:`c = \mathbb E\,x_i\cdot x_j/d` for two different tokens; a gradient likewise. Weights are
independent, of mean zero and wide, so that pre-activations are normal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import sympy as sp

from derive.blocks.attention import Attention, CrossAttention
from derive.blocks.norms import LayerNorm, RMSNorm
from derive.blocks.sublayers import FFN, GatedFFN
from derive.calculus.maps import Map
from derive.errors import UnknownNodeError
from derive.laws.gaussian import DualKernel, dual_kernel
from derive.laws.initial import Scheme
from derive.symbols import d, f

__all__ = ["Moments", "Setting", "backward", "forward"]

Number = Any


class Moments(NamedTuple):
    """Mean square of an entry, and mean product of the same entry at two tokens."""

    v: Number
    c: Number


class Setting(NamedTuple):
    """What the moments depend on besides the signal.

    Attributes
    ----------
    scheme : Scheme
        The initialisation.
    tokens : int or expression
        n.
    memory : Moments
        The memory of a cross-attention.
    at : mapping
        Sizes of the symbols d, f, L; where a size is missing, numbers stay exact.
    """

    scheme: Scheme
    tokens: Number
    memory: Moments
    at: dict[sp.Symbol, Number]

    def gain(self, fan_in: Number, fan_out: Number, **which: bool) -> Number:
        """Return the gain of a linear map at these sizes; exact where a size is not given."""
        found = _gain(self.scheme, fan_in, fan_out, tuple(which.items()), tuple(self.at.items()))
        return float(found) if self.at else found

    def number(self, value: sp.Expr) -> Number:
        """Return a number as a float, or as it is where sizes are symbols."""
        return float(value) if self.at and value.is_number else value


@lru_cache(maxsize=256)
def _gain(
    scheme: Scheme, fan_in: Number, fan_out: Number, which: tuple[Any, ...], at: tuple[Any, ...]
) -> sp.Expr:
    return scheme.gain(fan_in, fan_out, **dict(which)).subs(dict(at))


def forward(mapping: Map, z: Moments, setting: Setting) -> Moments:
    r"""Return the moments of a sublayer's output.

    .. math:: \text{FFN: } v' = g_2 K(g_1v, 1),\quad c' = g_2K(g_1v, c/v); \qquad
        \text{gated: } v' = g_dK(g v, 1)\,g v; \qquad
        \text{attention, uniform: } v' = c' = g_Vg_O\,\frac{v + (n-1)c}{n}

    A norm before the output projection divides K by its value at correlation 1, LayerNorm after
    :math:`K(q, 0)`, the square of the mean, is subtracted.

    Raises
    ------
    UnknownNodeError
        If the sublayer has no moments here.
    """
    if isinstance(mapping, FFN | GatedFFN):
        inside = _Hidden.of(mapping, z, setting)
        return Moments(inside.out * inside.value(1), inside.out * inside.value(inside.rho))
    if isinstance(mapping, CrossAttention):
        return _averaged(mapping, setting.memory, setting, setting.memory.v)
    if isinstance(mapping, Attention):
        return _averaged(mapping, z, setting, z.v)
    raise _no_moments(mapping)


def backward(mapping: Map, g: Moments, z: Moments, setting: Setting) -> Moments:
    r"""Return the moments of the gradient behind a sublayer.

    .. math:: \text{FFN: } v' = g_1g_2\,\dot K(g_1v,1)\,v_g; \qquad
        \text{gated: } v' = g\,g_d\bigl(\dot K\,gv + K\bigr)v_g; \qquad
        \text{attention, uniform: } v' = c' = g_Vg_O\,\frac{v_g+(n-1)c_g}{n}

    Parameters
    ----------
    mapping : Map
        The sublayer.
    g : Moments
        The gradient at its output.
    z : Moments
        The signal at its input.
    setting : Setting
        Weights and sizes.

    Raises
    ------
    UnknownNodeError
        If the sublayer has no moments here.
    """
    if isinstance(mapping, FFN | GatedFFN):
        inside = _Hidden.of(mapping, z, setting)
        factor = inside.into * inside.out
        return Moments(factor * inside.slope(1) * g.v, factor * inside.slope(inside.rho) * g.c)
    if isinstance(mapping, CrossAttention):
        return Moments(0, 0)  # only through the query, whose path vanishes at uniform weights
    if isinstance(mapping, Attention):
        return _averaged(mapping, g, setting, z.v)
    raise _no_moments(mapping)


class _Hidden(NamedTuple):
    """The hidden features of a feed-forward sublayer: pre-activation variance and correlation."""

    mapping: Map
    kernel: DualKernel
    into: Number
    out: Number
    q: Number
    rho: Number

    @classmethod
    def of(cls, mapping: Map, z: Moments, setting: Setting) -> _Hidden:
        into, out = setting.gain(d, f, writes=False), setting.gain(f, d, writes=True)
        return cls(mapping, dual_kernel(mapping.activation), into, out, into * z.v, _ratio(z))

    def _gated(self) -> bool:
        return isinstance(self.mapping, GatedFFN)

    def _raw(self, rho: Number) -> Number:
        found = self.kernel.value(self.q, rho)
        return found * self.q * rho if self._gated() else found

    def _size(self) -> Number:
        """Return what the hidden features are divided by, squared, besides their own variance."""
        norm = self.mapping.inner_norm
        if norm is None:
            return 1
        if not isinstance(norm, LayerNorm | RMSNorm):
            raise UnknownNodeError(
                f"inner norm: expected LayerNorm or RMSNorm, got {type(norm).__name__}"
            )
        return self._raw(1) - self._mean()

    def _mean(self) -> Number:
        return self._raw(0) if isinstance(self.mapping.inner_norm, LayerNorm) else 0

    def value(self, rho: Number) -> Number:
        """Return the mean product of a hidden feature at two tokens."""
        return (self._raw(rho) - self._mean()) / self._size()

    def slope(self, rho: Number) -> Number:
        """Return the mean product of its derivative by the pre-activation at two tokens."""
        found = self.kernel.slope(self.q, rho)
        if self._gated():
            found = found * self.q * rho + self.kernel.value(self.q, rho)
        return found / self._size()


def _averaged(mapping: Any, z: Moments, setting: Setting, value: Number) -> Moments:
    """Return the moments of the mean over tokens; `value` is the mean square that is projected."""
    if mapping.masked or mapping._option("out_norm") is not None:
        raise UnknownNodeError(
            "attention: expected one without mask and output norm, whose moments are known at "
            f"uniform weights, got {mapping.name} with one of them"
        )
    into, out = setting.gain(d, d, writes=False), setting.gain(d, d, writes=True)
    if mapping._option("value_norm") is not None:
        into = 1 / value
    mean = into * out * (z.v + (setting.tokens - 1) * z.c) / setting.tokens
    return Moments(mean, mean)


def _ratio(z: Moments) -> Number:
    if z.v == 0:
        return 0
    rho = z.c / z.v
    return min(1.0, max(-1.0, rho)) if isinstance(rho, float) else rho


def _no_moments(mapping: Map) -> UnknownNodeError:
    return UnknownNodeError(
        f"sublayer: expected ffn, gated, attention or cross-attention, whose moments are known, "
        f"got {type(mapping).__name__} {mapping.name}"
    )
