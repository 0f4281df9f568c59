r"""The hidden features of a feed-forward sublayer as moments.

Pre-activations are normal with variance :math:`q = g_1v + \sigma_b^2` and covariance
:math:`g_1c + \sigma_b^2`: a bias is what tokens share. A gated sublayer multiplies
the activation by a second, independent pre-activation; a norm before the output projection divides
by the root of the mean square over the hidden features.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from derive.blocks.norms import LayerNorm, RMSNorm
from derive.blocks.sublayers import GatedFFN
from derive.calculus.maps import Map
from derive.errors import UnknownNodeError
from derive.laws.gaussian import DualKernel, dual_kernel
from derive.laws.moments import Moments, TokenMoments
from derive.laws.setting import Setting
from derive.symbols import d, f

__all__ = ["Hidden"]

Number = Any


class Hidden(NamedTuple):
    """Pre-activation variance and correlation of hidden features, numbers or one a token.

    Attributes
    ----------
    mapping : Map
        The sublayer.
    kernel : DualKernel
        Of its activation.
    into, out : number
        Gains of the maps in and out.
    bias : number
        Variance of the bias behind the map out.
    q, rho : number or array
        Variance and correlation of pre-activations; of tokens that differ ``(n,)`` and ``(n, n)``.
    """

    mapping: Map
    kernel: DualKernel
    into: Number
    out: Number
    q: Number
    rho: Number
    bias: Number = 0

    @classmethod
    def of(cls, mapping: Map, z: Any, setting: Setting) -> Hidden:
        """Return the hidden features behind an input."""
        ahead, last = ("up", "down") if isinstance(mapping, GatedFFN) else ("1", "2")
        into, out = setting.gain(d, f, role=ahead), setting.gain(f, d, role=last)
        bias = setting.bias(mapping, d, ahead)
        pre = z if bias == 0 else z.times(into, 1).plus(z.like(bias, bias))
        q = into * z.squares if bias == 0 else pre.squares
        kernel = dual_kernel(mapping.activation)
        rho = pre.ratio()
        if setting.tokens == 1 and not isinstance(rho, np.ndarray):
            rho = 0  # one token has no other
        return cls(mapping, kernel, into, out, q, rho, setting.bias(mapping, f, last))

    def pairs(self, of: Any) -> Any:
        """Return a function of the correlation at equal and at different tokens."""
        if isinstance(self.rho, np.ndarray):
            return TokenMoments(of(self.rho))
        return Moments(of(1), of(self.rho))

    def value(self, rho: Number) -> Number:
        """Return the mean product of a hidden feature at two tokens."""
        return (self._raw(rho) - self._mean()) / self._size()

    def slope(self, rho: Number) -> Number:
        """Return the mean product of its derivative by the pre-activation at two tokens."""
        found = self.kernel.slope(self.q, rho)
        if self._gated():
            found = found * self._covariance(rho) + self.kernel.value(self.q, rho)
        return found / self._size()

    def _gated(self) -> bool:
        return isinstance(self.mapping, GatedFFN)

    def _covariance(self, rho: Number) -> Number:
        """Return the mean product of a pre-activation at two tokens."""
        if isinstance(self.q, np.ndarray):
            root = np.sqrt(self.q)
            return root[:, None] * root * rho
        return self.q * rho

    def _raw(self, rho: Number) -> Number:
        found = self.kernel.value(self.q, rho)
        return found * self._covariance(rho) if self._gated() else found

    def _size(self) -> Number:
        """Return what the hidden features are divided by, squared, besides their own variance."""
        norm = self.mapping.inner_norm
        if norm is None:
            return 1
        if not isinstance(norm, LayerNorm | RMSNorm):
            raise UnknownNodeError(
                f"inner norm: expected LayerNorm or RMSNorm, got {type(norm).__name__}"
            )
        if not isinstance(self.rho, np.ndarray):
            return self._raw(1) - self._mean()
        root = np.sqrt(np.diagonal(self._raw(self.rho) - self._mean()))
        return root[:, None] * root

    def _mean(self) -> Number:
        if not isinstance(self.mapping.inner_norm, LayerNorm):
            return 0
        return self._raw(np.zeros_like(self.rho) if isinstance(self.rho, np.ndarray) else 0)
