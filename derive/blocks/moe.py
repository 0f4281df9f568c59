r"""Mixture of experts inside one routing cell: which experts a token goes to does not change."""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.core.symbol import Str

from derive import symbols
from derive.blocks.activations import activation
from derive.calculus.atoms import Diag, Inner, Matrix, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Body, Identity, Map
from derive.calculus.pointwise import Activation
from derive.calculus.tensor import product, total
from derive.calculus.tokens import At, IndexSum, index, index_sum
from derive.errors import UnknownNameError

__all__ = ["ROUTERS", "MoE"]

ROUTERS = ("softmax", "sigmoid")
"""What the logits of a router become before they are normalised over the selected experts."""


class MoE(Map):
    r"""Mixture of gated feed-forward experts with normalised routing weights.

    .. math:: F(z) = \sum_e P_e(z)\,E_e(z),\qquad
              P_e = \frac{m_es(l_e)}{\sum_{e'}m_{e'}s(l_{e'})},\qquad l_e = w_e^\top z\;(+\,b_e)

    with :math:`E_e(z) = W_{down}(\phi(W_{gate}z)\circ\psi(W_{up}z))` and :math:`s=\exp` (softmax
    over the selected experts, which is also the renormalised softmax over all) or the logistic
    function. The selection :math:`m` (weight ``route``, ``(n, X)``) is constant: the Jacobian holds
    where the selected experts are strictly ahead of the others, and does not exist at a tie.

    .. math:: DF(z) = \sum_e P_e\,DE_e + \sum_e P_e\,(E_e-F)\,\frac{s'(l_e)}{s(l_e)}\,w_e^\top

    Parameters
    ----------
    activation_name : str or Activation
        The activation :math:`\phi` of the gate.
    bias : bool
        Whether the linear maps of the experts and the router have biases.
    name : str
        How it prints.
    router : str
        One of `ROUTERS`.
    up_activation : Activation, optional
        The function :math:`\psi`, the identity by default.
    hidden : expression
        Hidden width of an expert, ``f`` by default.

    Raises
    ------
    UnknownNameError
        If the activation or the router is not known.

    References
    ----------
    Shazeer et al., *Outrageously Large Neural Networks*, 2017, arXiv:1701.06538, equation (1);
    Jiang et al., *Mixtral of Experts*, 2024, arXiv:2401.04088, section 2.1.
    """

    family = "moe"

    def __new__(
        cls,
        activation_name: Any = "silu",
        bias: Any = False,
        name: Any = "M",
        router: Any = "softmax",
        up_activation: Any = "",
        hidden: Any = symbols.f,
    ) -> MoE:
        """Check the arguments and build the node."""
        if str(router) not in ROUTERS:
            raise UnknownNameError(f"router: expected one of {', '.join(ROUTERS)}, got {router!r}")
        return sp.Basic.__new__(
            cls,
            activation(activation_name),
            sp.sympify(bool(bias)),
            Str(str(name)),
            Str(str(router)),
            up_activation if isinstance(up_activation, Activation) else Str(""),
            sp.sympify(hidden),
        )

    @property
    def name(self) -> str:
        """How it prints."""
        return str(self.args[2])

    @property
    def activation(self) -> Activation:
        """The activation of the gate."""
        return self.args[0]

    @property
    def has_bias(self) -> bool:
        """Whether the linear maps have biases."""
        return bool(self.args[1])

    @property
    def router(self) -> str:
        """What the logits become."""
        return str(self.args[3])

    @property
    def up_activation(self) -> Activation | None:
        """The function of the other factor, if it is not the identity."""
        return self.args[4] if isinstance(self.args[4], Activation) else None

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return logits, routing weights, the experts and their weighted sum."""
        e, other, count = index("e"), index("e2"), symbols.X
        rows, hidden = argument.shape[0], self.args[5]
        logit: sp.Expr = Inner(At(Vector("W_R", rows), e), argument)
        if self.has_bias:
            logit = logit + sp.Indexed(sp.IndexedBase("b_R"), e)
        l = ScalarLet("l" + suffix, logit, e)
        score = sp.exp(l) if self.router == "softmax" else 1 / (1 + sp.exp(-l))
        chosen = ScalarLet("E" + suffix, sp.Indexed(sp.IndexedBase("route"), e) * score, e)
        everything = index_sum(chosen.xreplace({e: other}), other, count)
        partition = ScalarLet("Z" + suffix, everything)
        p = ScalarLet("P" + suffix, chosen / partition, e)
        g = Let("g" + suffix, self._linear("gate", hidden, argument, e), e)
        a = Let("a" + suffix, self._linear("up", hidden, argument, e), e)
        up = a if self.up_activation is None else self.up_activation(a)
        expert = Let(
            "y" + suffix,
            self._linear("down", rows, product([Diag(self.activation(g)), up]), e),
            e,
        )
        mean = Let("o" + suffix, index_sum(product([p, expert]), e, count))
        return Body(
            lets=(l, chosen, partition, p, g, a, expert, mean),
            output=mean,
            identities=(
                Identity(
                    chosen.definition,
                    chosen,
                    f"definition of {chosen}",
                    f"{chosen} = {chosen.definition}",
                ),
                Identity(
                    chosen, p * partition, f"definition of {p}", f"{p} = {chosen}/{partition}"
                ),
                Identity(
                    IndexSum(product([p, expert]), e, count),
                    mean,
                    f"definition of {mean}",
                    f"{mean} is the weighted mean of the experts",
                ),
            ),
        )

    def _linear(self, letters: str, rows: sp.Expr, vector: sp.Basic, e: sp.Symbol) -> sp.Basic:
        out = product([At(Matrix(f"W_{letters}", rows, vector.shape[0]), e), vector])
        return total([out, At(Vector(f"b_{letters}", rows), e)]) if self.has_bias else out
