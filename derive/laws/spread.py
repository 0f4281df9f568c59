r"""How far single stacks of a finite width lie from the law: the variance of the logarithms.

At width d the branch of a block is not exactly as large as its mean, nor exactly orthogonal to the
state. To first order in :math:`1/\sqrt d` a block has four fluctuations, here for a feed-forward
sublayer with f hidden features :math:`\varphi(a)`, a normal:

.. math::
    \frac{|F|^2}{\mathbb E|F|^2} &= 1 + \varepsilon_1, &
    \operatorname{Var}\varepsilon_1 &= \frac2d + \frac1f\Bigl(
        \frac{\mathbb E\varphi^4}{(\mathbb E\varphi^2)^2} - 1\Bigr), \\
    \frac{|J_Fu|^2}{\mathbb E|J_Fu|^2} &= 1 + \varepsilon_2, &
    \operatorname{Var}\varepsilon_2 &= \frac2d + \frac1f\Bigl(
        \frac{3\,\mathbb E\varphi'^4}{(\mathbb E\varphi'^2)^2} - 1\Bigr), \\
    \cos(x, F) &= \varepsilon_3, \quad \cos(u, J_Fu) = \varepsilon_4, &
    \operatorname{Var}\varepsilon_3 &= \operatorname{Var}\varepsilon_4 = \frac1d,

of which only :math:`\operatorname{Cov}(\varepsilon_1, \varepsilon_2) = \frac1f\bigl(\mathbb E
\varphi^2\varphi'^2/(\mathbb E\varphi^2\,\mathbb E\varphi'^2) - 1\bigr)` is not 0: 2/d is the
variance of a :math:`\chi^2_d/d`, the rest that of a mean over the hidden features, which the signal
and the tangent share. They are put into the block's own moments, and the derivative of the
logarithms of growth and gradient ratio by each, through all later blocks, gives their variances. By
the symmetry of :math:`J_F` and its transpose in distribution the tangent stands for the gradient.

Source: own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import sympy as sp
from scipy.special import roots_hermitenorm
from scipy.stats import norm

from derive.blocks.sublayers import FFN
from derive.calculus.maps import Apply
from derive.calculus.pointwise import Activation
from derive.errors import UnknownNodeError
from derive.laws.components import Moments, backward
from derive.laws.law import DepthLaw, Prediction
from derive.laws.meanfield import BlockMoments
from derive.lower import activation_function
from derive.symbols import d, f

__all__ = ["LogSpread", "log_spread"]

STEP = 1e-4
"""Of the central differences: their error is of relative order 1e-8."""
NODES = 200


@dataclass(frozen=True)
class LogSpread:
    r"""Standard deviations of logarithms over stacks, to leading order in 1/d.

    Attributes
    ----------
    growth : float
        Of :math:`\log|x_L|^2/|x_0|^2`.
    gradient : float
        Of :math:`\log|g_0|^2/|g_L|^2`.
    """

    growth: float
    gradient: float

    def interval(self, expected: float, confidence: float = 0.95) -> tuple[float, float]:
        r"""Return where the gradient ratio of a single stack lies, if log-normal with that mean.

        .. math:: \mathbb E\,e^{-s^2/2 \pm zs}
        """
        z = float(norm.ppf((1 + confidence) / 2))
        low, high = (-(self.gradient**2) / 2 + sign * z * self.gradient for sign in (-1, 1))
        return expected * math.exp(low), expected * math.exp(high)


class _Local(NamedTuple):
    """Derivatives of a block: of log G and of v' by v, and by its fluctuations with their law."""

    gain: float
    out: float
    gain_by: np.ndarray
    out_by: np.ndarray
    covariance: np.ndarray


def log_spread(law: DepthLaw, found: Prediction) -> LogSpread:
    """Return the spread of growth and gradient ratio over stacks of one token.

    Parameters
    ----------
    law : DepthLaw
        A law of one token and one stream, whose sublayers are feed-forward without a norm inside.
    found : Prediction
        Its numbers at one depth and width.

    Raises
    ------
    UnknownNodeError
        If the law has several tokens or streams, or another sublayer.
    """
    if law.dropout:
        raise UnknownNodeError(
            f"spread: expected no dropout, whose fluctuations are not known, got {law.dropout}"
        )
    if law.tokens > 1:
        raise UnknownNodeError(
            f"spread: expected one token, whose fluctuations are known, got {law.tokens}"
        )
    depth = len(found.blocks)
    locals_ = [
        _local(block, law.blocks_of(number, depth))
        for number, (block, _) in enumerate(found.blocks, start=1)
    ]
    after = 1 / found.forward[-1].v
    growth = ratio = adjoint = 0.0
    for one in reversed(locals_):
        by_growth = after * one.out_by
        by_ratio = one.gain_by + adjoint * one.out_by
        growth += by_growth @ one.covariance @ by_growth
        ratio += by_ratio @ one.covariance @ by_ratio
        after, adjoint = after * one.out, one.gain + adjoint * one.out
    return LogSpread(math.sqrt(max(0.0, growth)), math.sqrt(max(0.0, ratio)))


class _Shaken(BlockMoments):
    """A block whose branches are larger or less orthogonal than their mean."""

    def __init__(self, block: BlockMoments, outputs: Any, v: float, shift: Shift) -> None:
        self.shift = shift
        super().__init__(outputs, {("x", "x"): Moments(v, 0.0)}, block.setting, block.scalars)

    def _covariance(self, s: Any, t: Any) -> Moments:
        found = super()._covariance(s, t)
        if s == t:
            return Moments(found.v * (1 + self.shift.get((1, s), 0.0)), found.c)
        cosine = self.shift.get((3, frozenset((s, t))), 0.0)
        both = super()._covariance(s, s).v * super()._covariance(t, t).v
        return Moments(cosine * math.sqrt(both), 0.0)

    def log_gain(self) -> float:
        """Return log |J u|^2/|u|^2."""
        sizes: dict[Any, float] = {"x": 1.0}

        def between(signal: Any) -> float:
            total = 0.0
            for s, a in signal.items():
                for t, b in signal.items():
                    cosine = 1.0 if s == t else self.shift.get((4, frozenset((s, t))), 0.0)
                    total += a * b * cosine * math.sqrt(sizes[s] * sizes[t])
            return total

        for branch, (argument, _) in self.branches.items():
            z = self.between(argument, argument)
            through = backward(branch.mapping, Moments(between(argument), 0.0), z, self.setting)
            sizes[branch] = through.v * (1 + self.shift.get((2, branch), 0.0))
        return math.log(between(self.signals["x"]))


Shift = dict[tuple[int, Any], float]


def _local(block: BlockMoments, outputs: Mapping[str, sp.Basic]) -> _Local:
    if list(block.signals) != ["x"]:
        raise UnknownNodeError(
            f"spread: expected one stream, whose fluctuations are known, got {len(block.signals)}"
        )
    v = float(block.state["x", "x"].v)
    keys, covariance = _fluctuations(block)

    def at(shift: Shift, scale: float = 1.0) -> tuple[float, float]:
        shaken = _Shaken(block, outputs, v * scale, shift)
        return shaken.log_gain(), float(shaken.forward()["x", "x"].v)

    def slope(plus: tuple[float, float], minus: tuple[float, float], step: float) -> np.ndarray:
        return (np.array(plus) - np.array(minus)) / (2 * step)

    by_v = slope(at({}, 1 + STEP), at({}, 1 - STEP), STEP * v)
    by = np.array([slope(at({k: STEP}), at({k: -STEP}), STEP) for k in keys]).reshape(-1, 2)
    return _Local(float(by_v[0]), float(by_v[1]), by[:, 0], by[:, 1], covariance)


def _fluctuations(block: BlockMoments) -> tuple[list[tuple[int, Any]], np.ndarray]:
    """Return the fluctuations of a block and their covariances."""
    width, hidden = float(block.setting.at[d]), float(block.setting.at[f])
    keys: list[tuple[int, Any]] = []
    blocks: list[np.ndarray] = []
    earlier: list[Any] = ["x"]
    for branch, (argument, _) in block.branches.items():
        z = block.between(argument, argument)
        signal, tangent, shared = _hidden_spread(branch, float(z.v), block)
        keys += [(1, branch), (2, branch)]
        blocks.append(
            np.array([[signal, shared], [shared, tangent]]) / hidden + 2 / width * np.eye(2)
        )
        for other in earlier:
            keys += [(3, frozenset((other, branch))), (4, frozenset((other, branch)))]
            blocks.append(np.eye(2) / width)
        earlier.append(branch)
    covariance = np.zeros((len(keys), len(keys)))
    for k, part in enumerate(blocks):
        covariance[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = part
    return keys, covariance


def _hidden_spread(branch: Apply, v: float, block: BlockMoments) -> Sequence[float]:
    mapping = branch.mapping
    if not isinstance(mapping, FFN) or mapping.inner_norm is not None:
        raise UnknownNodeError(
            "spread: expected ffn without a norm inside, whose fluctuations are known, got "
            f"{mapping.name}"
        )
    into = float(block.setting.gain(d, f, writes=False))
    return _kurtoses(mapping.activation, into * v)


@lru_cache(maxsize=1024)
def _kurtoses(function: Activation, q: float) -> tuple[float, float, float]:
    """Return f times the variances of the means over hidden features, and their covariance."""
    nodes, weights = roots_hermitenorm(NODES)
    weights = weights / math.sqrt(2 * math.pi)
    value = activation_function(function, 0)(math.sqrt(q) * nodes) ** 2
    slope = activation_function(function, 1)(math.sqrt(q) * nodes) ** 2
    f_, b_ = weights @ value, weights @ slope
    return (
        float(weights @ value**2 / f_**2 - 1),
        float(3 * (weights @ slope**2) / b_**2 - 1),
        float(weights @ (value * slope) / (f_ * b_) - 1),
    )
