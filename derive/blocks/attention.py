r"""Multi-head self-attention, token by token: its Jacobian is derived as three paths.

For one head, with :math:`q_i, k_j, v_j` the query, key and value of a token,

.. math:: S_{ij} = \lambda\,q_i^\top k_j,\qquad P_{ij} = \frac{m_{ij}e^{S_{ij}}}
          {\sum_k m_{ik}e^{S_{ik}}},\qquad o_i = \sum_j P_{ij}v_j,

and the token-to-token Jacobian is the sum of a value, a key and a query path. The mask
:math:`m_{ij}\in\{0,1\}` only enters through :math:`P`.
"""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.core.symbol import Str

from derive import symbols
from derive.calculus.atoms import Inner, Matrix, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Body, Identity, Map
from derive.calculus.tensor import as_scalar, product, total
from derive.calculus.tokens import At, IndexSum, index, index_sum

__all__ = ["Attention"]

INVERSE_ROOT = 1 / sp.sqrt(symbols.d_h)


class Attention(Map):
    r"""Multi-head self-attention :math:`A(Z)_i = \sum_h W_O^{(h)} o^{(h)}_i + b_O`.

    .. math:: \frac{\partial A_i}{\partial z_j} = \sum_h W_O\Bigl[P_{ij}W_V
              + P_{ij}(v_j-o_i)\,\lambda\,q_i^\top R_jW_K
              + \delta_{ij}\sum_k P_{ik}(v_k-o_i)\,\lambda\,k_k^\top R_iW_Q\Bigr]

    Grouped-query attention is the same formula with equal key and value weights within a group.

    Parameters
    ----------
    causal : bool
        Whether token ``i`` sees tokens ``j <= i`` only; a general mask is given with the weights.
    rotary : bool
        Whether queries and keys are rotated by position, :math:`q_i = R_i(W_Qz_i+b_Q)`.
    bias : bool
        Whether the projections have biases.
    name : str
        How it prints.
    masked : bool
        Whether there is a mask at all; ``causal`` implies it.
    scale : expression
        Factor of the scores, ``1/sqrt(d_h)`` by default.

    References
    ----------
    Vaswani et al., *Attention Is All You Need*, 2017, equation (1); rotary: Su et al., *RoFormer*,
    2021, arXiv:2104.09864.
    """

    family = "attention"
    mixes_tokens = True

    def __new__(
        cls,
        causal: Any = False,
        rotary: Any = False,
        bias: Any = False,
        name: Any = "A",
        masked: Any = None,
        scale: Any = INVERSE_ROOT,
    ) -> Attention:
        """Check the arguments and build the node."""
        masked = causal if masked is None else masked
        return sp.Basic.__new__(
            cls,
            *(sp.sympify(bool(flag)) for flag in (causal, rotary, bias)),
            Str(str(name)),
            sp.sympify(bool(masked)),
            as_scalar(scale, "scale"),
        )

    @property
    def name(self) -> str:
        """How it prints."""
        return str(self.args[3])

    @property
    def causal(self) -> bool:
        """Whether the mask is the causal one."""
        return bool(self.args[0])

    @property
    def rotary(self) -> bool:
        """Whether queries and keys are rotated by position."""
        return bool(self.args[1])

    @property
    def has_bias(self) -> bool:
        """Whether the projections have biases."""
        return bool(self.args[2])

    @property
    def masked(self) -> bool:
        """Whether there is a mask."""
        return bool(self.args[4])

    @property
    def scale(self) -> sp.Expr:
        """Factor of the scores."""
        return self.args[5]

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return query, key, value, score, weight, head output and output at token ``i``."""
        d, d_h, n, heads = argument.shape[0], symbols.d_h, symbols.n, symbols.H
        i, j, h = index("i"), index("j"), index("h")

        def project(letter: str, token: sp.Symbol) -> sp.Basic:
            out = product([At(Matrix(f"W_{letter}", d_h, d), h), At(argument, token)])
            if self.has_bias:
                out = total([out, At(Vector(f"b_{letter}", d_h), h)])
            if self.rotary and letter in "QK":
                out = product([At(Matrix("R", d_h, d_h), token), out])
            return out

        def head(name: str, letter: str, token: sp.Symbol) -> Let:
            return Let(name + suffix, project(letter, token), h, token)

        q, k, v = head("q", "Q", i), head("k", "K", i), head("v", "V", i)
        k_j, v_j = head("k", "K", j), head("v", "V", j)
        score = ScalarLet("S" + suffix, self.scale * Inner(q, k_j), h, i, j)
        mask = sp.Indexed(sp.IndexedBase("m"), i, j) if self.masked else sp.S.One
        e = ScalarLet("E" + suffix, mask * sp.exp(score), h, i, j)
        partition = ScalarLet("Z" + suffix, index_sum(e, j, n), h, i)
        p = ScalarLet("P" + suffix, e / partition, h, i, j)
        o = Let("o" + suffix, index_sum(product([p, v_j]), j, n), h, i)
        output = index_sum(product([At(Matrix("W_O", d, d_h), h), o]), h, heads)
        if self.has_bias:
            output = total([output, Vector("b_O", d)])
        return Body(
            lets=(q, k, v, score, e, partition, p, o),
            output=output,
            identities=(
                Identity(mask * sp.exp(score), e, f"definition of {e}", f"{e} = m exp({score})"),
                Identity(e, p * partition, f"definition of {p}", f"{p} = {e}/{partition}"),
                Identity(
                    IndexSum(product([p, v_j]), j, n),
                    o,
                    f"definition of {o}",
                    f"{o} is the weighted mean of the values",
                ),
            ),
            cuts=frozenset({q.name, k.name, v.name, score.name}),
        )
