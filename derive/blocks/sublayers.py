r"""Sublayers: abstract, feed-forward, gated feed-forward."""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.core.symbol import Str

from derive import symbols
from derive.blocks.activations import activation
from derive.calculus.atoms import Diag, Matrix, Vector
from derive.calculus.let import Let
from derive.calculus.maps import Body, Map
from derive.calculus.pointwise import Activation
from derive.calculus.tensor import product, total
from derive.errors import UnknownNodeError

__all__ = ["FFN", "GatedFFN", "Sublayer"]


class Sublayer(Map):
    r"""An abstract sublayer :math:`F:\mathbb R^d\to\mathbb R^d`, differentiable, otherwise unknown.

    Its Jacobian is the node :math:`DF(u)`.

    Parameters
    ----------
    name : str
        How it prints.
    """

    def __new__(cls, name: Any = "F") -> Sublayer:
        """Check the arguments and build the node."""
        return sp.Basic.__new__(cls, Str(str(name)))


class _Concrete(Map):
    """A sublayer with weights: ``args = (activation, bias, name, hidden, label, inner norm)``."""

    family = "ffn"
    default_activation = "gelu"
    default_bias = True

    def __new__(
        cls,
        activation_name: str | Activation | None = None,
        bias: Any = None,
        name: Any = "F",
        hidden: Any = symbols.f,
        label: Any = "",
        inner_norm: Any = "",
    ) -> _Concrete:
        """Check the arguments and build the node."""
        bias = cls.default_bias if bias is None else bias
        return sp.Basic.__new__(
            cls,
            activation(activation_name or cls.default_activation),
            sp.sympify(bool(bias)),
            Str(str(name)),
            sp.sympify(hidden),
            Str(str(label)),
            inner_norm if isinstance(inner_norm, Map) else Str(""),
        )

    @property
    def name(self) -> str:
        """How it prints."""
        return str(self.args[2])

    @property
    def activation(self) -> Activation:
        """The element-wise function."""
        return self.args[0]

    @property
    def has_bias(self) -> bool:
        """Whether the linear maps have biases."""
        return bool(self.args[1])

    @property
    def hidden(self) -> sp.Expr:
        """Hidden width."""
        return self.args[3]

    @property
    def label(self) -> str:
        """What tells the weights from those of another sublayer in the same layer."""
        return str(self.args[4])

    @property
    def inner_norm(self) -> Map | None:
        """The norm between activation and output projection, if there is one."""
        return self.args[5] if isinstance(self.args[5], Map) else None

    def _linear(self, suffix: str, rows: sp.Expr, vector: sp.Basic) -> sp.Basic:
        suffix = f"{suffix}_{self.label}" if self.label else suffix
        weighted = product([Matrix(f"W_{suffix}", rows, vector.shape[0]), vector])
        return total([weighted, Vector(f"b_{suffix}", rows)]) if self.has_bias else weighted

    def _normed(self, lets: tuple[Let, ...], hidden: sp.Basic, suffix: str) -> Body:
        """Return the body up to the hidden vector that the output projection takes."""
        if self.inner_norm is None:
            return Body(lets, hidden)
        inner = Let("y" + suffix, hidden)
        body = self.inner_norm.body(inner, "_y" + suffix)
        if body is None:
            raise UnknownNodeError(f"inner norm: expected a concrete norm, got {self.inner_norm}")
        cuts = frozenset({inner.name})
        return Body((*lets, inner, *body.lets), body.output, body.identities, cuts)

    def _projected(self, suffix: str, body: Body, rows: sp.Expr) -> Body:
        return Body(body.lets, self._linear(suffix, rows, body.output), body.identities, body.cuts)


class FFN(_Concrete):
    r"""Feed-forward sublayer :math:`F(z) = W_2\,\phi(W_1z+b_1)+b_2`.

    .. math:: DF(z) = W_2\operatorname{diag}(\phi'(a))\,W_1,\qquad a = W_1z+b_1

    Parameters
    ----------
    activation_name : str or Activation
        ``relu``, ``gelu`` (erf), ``gelu_tanh``, ``silu``, ``tanh`` or ``phi`` (abstract).
    bias : bool
        Whether there are biases.
    name : str
        How it prints.
    hidden : expression
        Hidden width, ``f`` by default.
    label : str
        Appended to the names of the weights, to tell several sublayers of one layer apart.
    inner_norm : norm, optional
        A norm before the output projection (NormFormer, Sub-LN).

    Raises
    ------
    UnknownNameError
        If the activation is not known.

    References
    ----------
    Vaswani et al., *Attention Is All You Need*, 2017, equation (2).
    """

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return the pre-activation and the output."""
        a = Let("a" + suffix, self._linear("1", self.hidden, argument))
        normed = self._normed((a,), self.activation(a), suffix)
        return self._projected("2", normed, argument.shape[0])


class GatedFFN(_Concrete):
    r"""Gated feed-forward sublayer :math:`F(z) = W_{down}\,(\phi(W_{gate}z)\circ W_{up}z)`.

    .. math:: DF(z) = W_{down}\bigl(\operatorname{diag}(a)\operatorname{diag}(\phi'(g))W_{gate}
              + \operatorname{diag}(\phi(g))W_{up}\bigr),\qquad g = W_{gate}z,\; a = W_{up}z

    Parameters
    ----------
    activation_name : str or Activation
        As for `FFN`; ``silu`` gives SwiGLU.
    bias : bool
        Whether there are biases.
    name : str
        How it prints.
    hidden : expression
        Hidden width, ``f`` by default.
    label : str
        Appended to the names of the weights, to tell several sublayers of one layer apart.
    inner_norm : norm, optional
        A norm before the output projection (NormFormer, Sub-LN).

    Raises
    ------
    UnknownNameError
        If the activation is not known.

    References
    ----------
    Shazeer, *GLU Variants Improve Transformer*, 2020, arXiv:2002.05202, equations (5) and (6).
    """

    default_activation = "silu"
    default_bias = False

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return gate, value and output."""
        g = Let("g" + suffix, self._linear("gate", self.hidden, argument))
        a = Let("a" + suffix, self._linear("up", self.hidden, argument))
        hidden = product([Diag(self.activation(g)), a])
        return self._projected("down", self._normed((g, a), hidden, suffix), argument.shape[0])
