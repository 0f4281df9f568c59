r"""The activations of the field, each by its one formula; derivatives come from SymPy.

At its corner ``relu`` has derivative 0, as in PyTorch. ``gelu`` is written with the
normal distribution function, so that it keeps its digits far on the left, where ``1 + erf`` is 0.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.pointwise import Activation, normal_cdf, sigmoid
from derive.errors import UnknownNameError

__all__ = ["ACTIVATIONS", "activation"]

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
