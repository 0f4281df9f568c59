r"""The activations of the field, each by its one formula; derivatives come from SymPy.

At its corner ``relu`` has derivative 0, as in PyTorch. ``gelu`` is written with the
normal distribution function, so that it keeps its digits far on the left, where ``1 + erf`` is 0.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.pointwise import Activation, normal_cdf, sigmoid
from derive.errors import UnknownNameError

__all__ = ["ACTIVATIONS", "activation", "clamped_shift", "clamped_swish", "xielu"]

_t = sp.Symbol("t", real=True)


def _define(name: str, body: sp.Expr) -> Activation:
    return Activation(name, sp.Lambda(_t, body))


_tanh_argument = sp.sqrt(2 / sp.pi) * (_t + sp.Rational(44715, 10**6) * _t**3)

ACTIVATIONS: dict[str, Activation] = {
    "relu": _define("relu", sp.Piecewise((_t, _t > 0), (0, True))),
    "gelu": _define("gelu", _t * normal_cdf(_t)),
    "gelu_tanh": _define("gelu_tanh", _t * (1 + sp.tanh(_tanh_argument)) / 2),
    "silu": _define("silu", _t * sigmoid(_t)),
    "tanh": _define("tanh", sp.tanh(_t)),
    "relu2": _define("relu2", sp.Piecewise((_t**2, _t > 0), (0, True))),
    "sigmoid": _define("sigmoid", sigmoid(_t)),
    "phi": Activation("phi"),
}

_ALIASES = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "swish": "silu"}


def activation(name: str | Activation) -> Activation:
    """Return the activation of that name; ``phi`` is an abstract one.

    Raises
    ------
    UnknownNameError
        If there is none; the message lists those there are.
    """
    if isinstance(name, Activation):
        return name
    key = str(name).lower()
    try:
        return ACTIVATIONS[_ALIASES.get(key, key)]
    except KeyError:
        raise UnknownNameError(
            f"activation: expected one of {', '.join((*ACTIVATIONS, *_ALIASES))}, got {name!r}"
        ) from None


def xielu(positive: float, negative: float, beta: float, eps: float) -> Activation:
    r"""Return the activation xIELU with its own parameters.

    .. math:: \phi(t) = \begin{cases}a_pt^2+\beta t & t>0\\
              a_n(e^{\min(t,\epsilon)}-1-t)+\beta t & t\le0\end{cases}

    The published function has no :math:`\epsilon`; the code in use takes a small negative number,
    so that its slope jumps to :math:`\beta-a_n` between that number and 0.

    Parameters
    ----------
    positive, negative, beta, eps : float
        :math:`a_p`, :math:`a_n`, :math:`\beta` and :math:`\epsilon\le0`.

    References
    ----------
    Huang and Schlag, *Deriving Activation Functions Using Integration*, 2024, arXiv:2411.13010.
    """
    a, b, beta, eps = (_number(v) for v in (positive, negative, beta, eps))
    return _define(
        "xielu",
        sp.Piecewise(
            (a * _t**2 + beta * _t, _t > 0),
            (b * (sp.exp(eps) - 1 - _t) + beta * _t, _t > eps),
            (b * (sp.exp(_t) - 1 - _t) + beta * _t, True),
        ),
    )


def clamped_swish(alpha: float, limit: float) -> Activation:
    r"""Return :math:`\phi(t) = c\,\sigma(\alpha c)` with :math:`c = \min(t, \text{limit})`."""
    slope, top = _number(alpha), _number(limit)
    end = top / (1 + sp.exp(-slope * top))
    return _define("clamped_swish", sp.Piecewise((_t * sigmoid(slope * _t), _t < top), (end, True)))


def clamped_shift(limit: float) -> Activation:
    r"""Return :math:`\phi(t) = 1 + \max(-\text{limit}, \min(t, \text{limit}))`."""
    top = _number(limit)
    return _define(
        "clamped_shift",
        sp.Piecewise((1 - top, _t < -top), (1 + top, _t > top), (1 + _t, True)),
    )


def _number(value: float) -> sp.Float:
    return sp.Float(float(value), 17)
