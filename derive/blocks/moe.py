r"""Mixture of experts: routing weights of the selected experts, and a selection that is constant.

Which experts a token goes to jumps where two of them tie; everywhere else it does not change, so
its derivative is zero and the Jacobian is that of the routing cell that the state lies in.
"""

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
from derive.calculus.tokens import At, IndexSum, ScalarIndexSum, index, index_sum
from derive.errors import DomainError, UnknownNameError

__all__ = ["ROUTERS", "MoE", "step"]

ROUTERS = ("softmax", "sigmoid")
"""What the logits of a router become before they are normalised over the selected experts."""


class step(sp.Function):
    """1 where the argument is positive, else 0; the derivative is zero away from the jump."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Zero."""
        return sp.S.Zero


class MoE(Map):
    r"""Mixture of gated feed-forward experts with normalised routing weights.

    .. math:: F(z) = \sum_e P_e(z)\,y_e(z),\qquad
              P_e = \frac{m_es(l_e)}{\sum_{e'}m_{e'}s(l_{e'})},\qquad l_e = w_e^\top z\;(+\,b_e)

    with :math:`y_e(z) = W_{down}(\phi(W_{gate}z)\circ\psi(W_{up}z))` and :math:`s=\exp` (softmax
    over the selected experts, which is also the renormalised softmax over all) or the logistic
    function, written as the exponential of its logarithm. The selection :math:`m_e` is 1 where
    fewer than `selected` experts have a larger logit (with `correction`: a larger :math:`s(l_e)`
    plus a constant); the Jacobian does not exist where two experts tie for the last place.

    .. math:: DF(z) = \sum_e P_e\,Dy_e + \sum_e P_e\,(y_e-F)\,\frac{s'(l_e)}{s(l_e)}\,w_e^\top

    Parameters
    ----------
    selected : int
        How many experts a token goes to.
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
    correction : bool
        Whether a constant ``b_C[e]`` is added to the scores for the selection.
    hidden : expression
        Hidden width of an expert, ``f`` by default.

    Raises
    ------
    UnknownNameError
        If the activation or the router is not known.
    DomainError
        If `selected` is below 1.

    References
    ----------
    Shazeer et al., *Outrageously Large Neural Networks*, 2017, arXiv:1701.06538, equation (1);
    Jiang et al., *Mixtral of Experts*, 2024, arXiv:2401.04088, section 2.1.
    """

    family = "moe"

    def __new__(
        cls,
        selected: Any,
        activation_name: Any = "silu",
        bias: Any = False,
        name: Any = "M",
        router: Any = "softmax",
        up_activation: Any = "",
        correction: Any = False,
        hidden: Any = symbols.f,
    ) -> MoE:
        """Check the arguments and build the node."""
        if not int(selected) >= 1:
            raise DomainError(f"selected: expected at least 1, got {selected}")
        if str(router) not in ROUTERS:
            raise UnknownNameError(f"router: expected one of {', '.join(ROUTERS)}, got {router!r}")
        return sp.Basic.__new__(
            cls,
            sp.Integer(selected),
            activation(activation_name),
            sp.sympify(bool(bias)),
            Str(str(name)),
            Str(str(router)),
            up_activation if isinstance(up_activation, Activation) else Str(""),
            sp.sympify(bool(correction)),
            sp.sympify(hidden),
        )

    @property
    def name(self) -> str:
        """How it prints."""
        return str(self.args[3])

    @property
    def activation(self) -> Activation:
        """The activation of the gate."""
        return self.args[1]

    @property
    def has_bias(self) -> bool:
        """Whether the linear maps have biases."""
        return bool(self.args[2])

    @property
    def router(self) -> str:
        """What the logits become."""
        return str(self.args[4])

    @property
    def up_activation(self) -> Activation | None:
        """The function of the other factor, if it is not the identity."""
        return self.args[5] if isinstance(self.args[5], Activation) else None

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return logits, routing weights, the experts and their weighted sum."""
        e, other, rival = index("e"), index("e2"), index("e3")
        count = symbols.X
        rows, hidden = argument.shape[0], self.args[7]
        logit: sp.Expr = Inner(At(Vector("W_R", rows), e), argument)
        if self.has_bias:
            logit = logit + sp.Indexed(sp.IndexedBase("b_R"), e)
        l = ScalarLet("l" + suffix, logit, e)
        scores = [l]
        if self.router == "sigmoid":
            scores.append(ScalarLet("s" + suffix, -sp.log(1 + sp.exp(-l)), e))
        score = scores[-1]
        rank = l
        if self.args[6]:  # named, so that an expert is not ahead of itself by a rounding error
            corrected = sp.exp(score) + sp.Indexed(sp.IndexedBase("b_C"), e)
            rank = ScalarLet("c" + suffix, corrected, e)
            scores.append(rank)
        better = ScalarIndexSum(step(rank.xreplace({e: rival}) - rank), rival, count)
        m = ScalarLet("m" + suffix, step(self.args[0] - sp.Rational(1, 2) - better), e)
        chosen = ScalarLet("E" + suffix, m * sp.exp(score), e)
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
            lets=(*scores, m, chosen, partition, p, g, a, expert, mean),
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
