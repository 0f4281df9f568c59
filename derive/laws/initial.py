r"""Initialisation schemes as what they do to variance: the factors that a law is made of.

A linear map with weights of variance :math:`\sigma^2` takes a vector of ``fan_in`` entries of mean
square v to entries of mean square :math:`\text{fan\_in}\,\sigma^2 v`; that factor is its *gain*.
A law depends on an initialisation through these factors only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from derive.errors import DomainError, UnknownNameError
from derive.symbols import L, d, f

__all__ = ["SCHEMES", "Scheme", "scheme"]

Number = Any


WRITES = ("2", "down", "O")
"""Roles of the maps that write to the residual stream."""
UNSCALED = ("Q", "K")
"""Roles of the maps that DeepNorm's beta leaves alone."""

Variance = Callable[[Number, Number], Number]


@dataclass(frozen=True)
class Scheme:
    r"""An initialisation.

    Attributes
    ----------
    name : str
        How it is asked for.
    variance : callable
        ``(fan_in, fan_out)`` to the variance of the weights of a linear map.
    residual : expression
        Factor of the standard deviation of maps that write to the residual stream (output
        projections); may depend on the number of blocks L.
    value : expression
        Factor of the standard deviation of feed-forward, value and output projections (DeepNorm's
        beta); may depend on L.
    source : str
        Where it is from.
    roles : mapping from str to callable
        Variances of maps that differ: by ``1``, ``2`` (feed-forward), ``gate``, ``up``, ``down``
        (gated), ``Q``, ``K``, ``V``, ``O``.
    bias : callable, optional
        ``(fan_in, role)`` to the variance of the biases of a map that has them; 0 without.
    """

    name: str
    variance: Variance
    source: str
    residual: sp.Expr = sp.S.One
    value: sp.Expr = sp.S.One
    roles: Mapping[str, Variance] = field(default_factory=dict, hash=False)
    bias: Callable[[Number, str], Number] | None = None

    def gain(
        self,
        fan_in: Number,
        fan_out: Number,
        *,
        writes: bool | None = None,
        scaled: bool | None = None,
        role: str = "",
    ) -> Number:
        """Return ``fan_in`` times the variance of the weights.

        Parameters
        ----------
        fan_in, fan_out : int or expression
            Shape of the map.
        writes : bool, optional
            Whether it writes to the residual stream; by its role where not given.
        scaled : bool, optional
            Whether `value` applies: not for queries and keys; by its role where not given.
        role : str
            What the map is, as in `roles`.
        """
        writes = role in WRITES if writes is None else writes
        scaled = role not in UNSCALED if scaled is None else scaled
        factor = (self.residual if writes else 1) * (self.value if scaled else 1)
        variance = self.roles.get(role, self.variance)
        return sp.sympify(fan_in * variance(fan_in, fan_out) * factor**2)

    def bias_variance(self, fan_in: Number, role: str) -> Number:
        """Return the variance of the biases of a map that has them."""
        return sp.S.Zero if self.bias is None else sp.sympify(self.bias(fan_in, role))


def _fixed(std: str) -> Variance:
    return lambda fan_in, fan_out: sp.Rational(std) ** 2


def _inverse(fan_in: Number, fan_out: Number) -> Number:
    return sp.S.One / fan_in


def _kaiming(fan_in: Number, fan_out: Number) -> Number:
    return sp.S.One / (3 * fan_in)


def _packed(fan_in: Number, fan_out: Number) -> Number:
    """Return Xavier's variance of queries, keys and values as one matrix of 3 times the rows."""
    return sp.Integer(2) / (fan_in + 3 * fan_out)


_SCHEMES = (
    Scheme("lecun", _inverse, "LeCun et al., Efficient BackProp, 1998, equation (16)"),
    Scheme(
        "xavier",
        lambda fan_in, fan_out: sp.Integer(2) / (fan_in + fan_out),
        "Glorot and Bengio, Understanding the difficulty of training deep feedforward neural "
        "networks, 2010, equation (16)",
    ),
    Scheme(
        "he",
        lambda fan_in, fan_out: sp.Integer(2) / fan_in,
        "He et al., Delving Deep into Rectifiers, 2015, arXiv:1502.01852, equation (10)",
    ),
    Scheme(
        "gpt2",
        _fixed("0.02"),
        "Radford et al., 2019, section 2.3: N(0, 0.02^2), writing maps scaled by 1/sqrt(L) with L "
        "residual blocks",
        residual=1 / sp.sqrt(L),
    ),
    Scheme(
        "normal",
        _fixed("0.02"),
        "N(0, 0.02^2), biases 0: BERT, and transformers' initializer_range (its code was read)",
    ),
    Scheme(
        "deepnorm",
        lambda fan_in, fan_out: sp.Integer(2) / (fan_in + fan_out),
        "Wang et al., DeepNet, 2022, arXiv:2203.00555: Xavier with gain beta = (4 L)^(-1/4)",
        value=(4 * L) ** sp.Rational(-1, 4),
    ),
    Scheme(
        "t5",
        _inverse,
        "Mesh TensorFlow's, as in transformers' T5PreTrainedModel._init_weights (code read): "
        "variance 1/fan_in, queries 1/(d d_h) for logits that are not scaled, which is 1/d for "
        "logits scaled by 1/sqrt(d_h) as here; token embeddings of variance 1",
    ),
    Scheme(
        "mup",
        _inverse,
        "Yang et al., Tensor Programs V, 2022, arXiv:2203.03466, of which the authors' README and "
        "code were read: hidden weights 1/fan_in, logits scaled by 1/d_h, which makes attention "
        "uniform at infinite width, and queries 0 as they recommend",
        roles={"Q": lambda fan_in, fan_out: sp.S.Zero},
    ),
    Scheme(
        "torch",
        _kaiming,
        "the defaults of torch.nn (code read): Linear is uniform with variance 1/(3 fan_in), its "
        "bias too; MultiheadAttention draws its packed input projection by Xavier, variance "
        "2/(d + 3 d), and has biases 0",
        roles=dict.fromkeys("QKV", _packed),
        bias=lambda fan_in, role: (
            sp.S.Zero if role in ("Q", "K", "V", "O") else sp.S.One / (3 * fan_in)
        ),
    ),
)

SCHEMES: dict[str, Scheme] = {s.name: s for s in _SCHEMES}


def scheme(name: str | Scheme) -> Scheme:
    """Return the initialisation of that name.

    Raises
    ------
    UnknownNameError
        If there is none; the message lists those there are.
    """
    if isinstance(name, Scheme):
        return name
    try:
        return SCHEMES[str(name).lower()]
    except KeyError:
        raise UnknownNameError(
            f"init: expected one of {', '.join(SCHEMES)}, got {name!r}"
        ) from None


def sizes(width: int | None, hidden: int | None, blocks: int | None) -> dict[sp.Symbol, int]:
    """Return the substitution of width, hidden width (4 d by default) and number of blocks.

    Raises
    ------
    DomainError
        If a size is below 1 (a width below 3).
    """
    found: dict[sp.Symbol, int] = {}
    for name, symbol, size, least in (
        ("width", d, width, 3),
        ("hidden", f, 4 * width if hidden is None and width is not None else hidden, 1),
        ("layers", L, blocks, 1),
    ):
        if size is not None:
            if size < least:
                raise DomainError(f"{name}: expected at least {least}, got {size}")
            found[symbol] = size
    return found
