r"""Multi-head attention, token by token: its Jacobian is derived as three paths.

For one head, with :math:`q_i, k_j, v_j` the query, key and value of a token,

.. math:: S_{ij} = \lambda\,q_i^\top k_j,\qquad P_{ij} = \frac{m_{ij}e^{S_{ij}}}
          {\sum_k m_{ik}e^{S_{ik}}},\qquad o_i = \sum_j P_{ij}v_j,

and the token-to-token Jacobian is the sum of a value, a key and a query path. The mask
:math:`m_{ij}\in\{0,1\}` only enters through :math:`P`; a position bias is added to the score; a
softcap :math:`S = c\tanh(S_0/c)` multiplies both score paths by its derivative; a norm of query or
key puts its own Jacobian there; a sink adds a constant to the partition.
"""

from __future__ import annotations

from typing import Any, ClassVar

import sympy as sp
from sympy.core.symbol import Str

from derive import symbols
from derive.blocks.norms import L2Norm, LayerNorm, RMSNorm
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Body, Identity, Map, with_indices
from derive.calculus.pointwise import Activation, Pointwise
from derive.calculus.tensor import as_scalar, product, total
from derive.calculus.tokens import MEMORY, At, IndexSum, index, index_sum
from derive.errors import UnknownNameError, UnknownNodeError

__all__ = ["Attention", "CrossAttention"]

INVERSE_ROOT = 1 / sp.sqrt(symbols.d_h)

_NO = Str("")


class _Softmax(Map):
    """What self- and cross-attention have in common: options by name, in a fixed order."""

    family = "attention"

    defaults: ClassVar[dict[str, Any]] = {
        "causal": False,
        "rotary": False,
        "bias": False,
        "name": "A",
        "masked": None,
        "scale": INVERSE_ROOT,
        "query_norm": None,
        "key_norm": None,
        "value_norm": None,
        "full_norm": False,
        "softcap": None,
        "score_bias": False,
        "sinks": False,
        "gate": None,
        "label": "",
        "norm_last": False,
        "query_gain": False,
        "out_norm": None,
    }

    def __new__(cls, *args: Any, **options: Any) -> _Softmax:
        """Check the arguments and build the node."""
        names = list(cls.defaults)
        if len(args) > len(names) or set(options) - set(names):
            wrong = sorted(set(options) - set(names)) or args[len(names) :]
            raise UnknownNameError(f"attention: expected options {', '.join(names)}, got {wrong}")
        given = {**cls.defaults, **dict(zip(names, args, strict=False)), **options}
        if given["masked"] is None or given["masked"] == _NO:
            given["masked"] = given["causal"]
        return sp.Basic.__new__(cls, *(_coerced(k, v) for k, v in given.items()))

    def _option(self, name: str) -> Any:
        value = self.args[list(self.defaults).index(name)]
        if value == _NO:
            return "" if name == "label" else None
        return str(value) if isinstance(value, Str) else value

    @property
    def name(self) -> str:
        """How it prints."""
        return self._option("name")

    @property
    def causal(self) -> bool:
        """Whether the mask is the causal one."""
        return bool(self._option("causal"))

    @property
    def rotary(self) -> bool:
        """Whether queries and keys are rotated by position."""
        return bool(self._option("rotary"))

    @property
    def has_bias(self) -> bool:
        """Whether the projections have biases."""
        return bool(self._option("bias"))

    @property
    def masked(self) -> bool:
        """Whether there is a mask."""
        return bool(self._option("masked"))

    @property
    def scale(self) -> sp.Expr:
        """Factor of the scores."""
        return self._option("scale")

    @property
    def label(self) -> str:
        """What tells the weights from those of another attention in the same layer."""
        return self._option("label")

    def weight(self, stem: str) -> str:
        """Return the name of a weight."""
        return f"{stem}_{self.label}" if self.label else stem

    def _projection(self, letter: str, vector: sp.Basic, h: sp.Symbol) -> sp.Basic:
        d_h = symbols.d_h
        weight = At(Matrix(self.weight(f"W_{letter}"), d_h, vector.shape[0]), h)
        out = product([weight, vector])
        if self.has_bias:
            out = total([out, At(Vector(self.weight(f"b_{letter}"), d_h), h)])
        return out

    def _side(
        self, letter: str, vector: sp.Basic, h: sp.Symbol, token: sp.Symbol | None, suffix: str
    ) -> tuple[list[Let | ScalarLet], list[Identity], list[str]]:
        """Return the lets of query, key or value (the last is the result), identities and cuts."""
        name = letter.lower() + suffix
        indices = (h,) if token is None else (h, token)
        norm = self._option({"Q": "query_norm", "K": "key_norm", "V": "value_norm"}[letter])
        lets: list[Let | ScalarLet] = []
        identities: list[Identity] = []
        cuts = [name]
        rotates = self.rotary and letter in "QK" and token is not None
        late = rotates and bool(self._option("norm_last"))
        out = self._projection(letter, vector, h)
        if late:
            out = _rotated(out, token)
        if norm is not None:
            raw = Let(name + "0", out, *indices)
            cuts.append(raw.name)
            lets.append(raw)
            if self._option("full_norm"):
                body = _full_width(norm, raw, letter.lower(), h, token)
            else:
                body = with_indices(norm.body(raw), indices, "_" + name)
            lets += body.lets
            identities += body.identities
            out = _per_head(body.output, h) if self._option("full_norm") else body.output
        if rotates and not late:
            out = _rotated(out, token)
        if letter == "Q" and self._option("query_gain"):
            gain = At(Vector(self.weight("gain_Q"), symbols.d_h), h)
            out = product([Diag(gain), out])
        lets.append(Let(name, out, *indices))
        return lets, identities, cuts

    def _scores(
        self, q: sp.Basic, k: sp.Basic, place: tuple[sp.Symbol, ...], suffix: str
    ) -> list[ScalarLet]:
        """Return the score, capped where there is a cap; the last one is what is exponentiated."""
        raw = self.scale * Inner(q, k)
        if self._option("score_bias"):
            raw = raw + sp.Indexed(sp.IndexedBase(self.weight("B")), *place)
        cap = self._option("softcap")
        if cap is None:
            return [ScalarLet("S" + suffix, raw, *place)]
        inner = ScalarLet("S0" + suffix, raw, *place)
        return [inner, ScalarLet("S" + suffix, cap * sp.tanh(inner / cap), *place)]

    def _mix(
        self,
        argument: sp.Basic,
        query: tuple[list[Any], list[Identity], list[str]],
        key: tuple[list[Any], list[Identity], list[str]],
        value: tuple[list[Any], list[Identity], list[str]],
        row: tuple[sp.Symbol, ...],
        over: tuple[sp.Symbol, sp.Symbol, sp.Expr],
        suffix: str,
    ) -> Body:
        """Return the body from the lets of query, key and value on."""
        h, (token, summed, size) = row[0], over
        renaming = {} if token == summed else {token: summed}
        q, k, v = (side[0][-1] for side in (query, key, value))
        k_j, v_j = k.xreplace(renaming), v.xreplace(renaming)
        place = (*row, summed)
        scores = self._scores(q, k_j, place, suffix)
        mask: sp.Expr = sp.S.One
        if self.masked:
            mask = sp.Indexed(sp.IndexedBase("m"), *place[1:])
        e = ScalarLet("E" + suffix, mask * sp.exp(scores[-1]), *place)
        everything = index_sum(e, summed, size)
        if self._option("sinks"):
            everything = everything + sp.exp(sp.Indexed(sp.IndexedBase(self.weight("sinks")), h))
        partition = ScalarLet("Z" + suffix, everything, *row)
        p = ScalarLet("P" + suffix, e / partition, *place)
        mean = index_sum(product([p, v_j]), summed, size)
        o = Let("o" + suffix, mean, *row)
        gated, gate_lets = self._gated(argument, o, row, suffix)
        normed = self._out_normed(gated, row, suffix)
        weight = At(Matrix(self.weight("W_O"), argument.shape[0], o.shape[0]), h)
        output = index_sum(product([weight, normed.output]), h, symbols.H)
        if self.has_bias:
            output = total([output, Vector(self.weight("b_O"), argument.shape[0])])
        return Body(
            lets=(
                *query[0],
                *key[0],
                *value[0],
                *scores,
                e,
                partition,
                p,
                o,
                *gate_lets,
                *normed.lets,
            ),
            output=output,
            identities=(
                *query[1],
                *key[1],
                *value[1],
                Identity(
                    mask * sp.exp(scores[-1]), e, f"definition of {e}", f"{e} = m exp({scores[-1]})"
                ),
                Identity(e, p * partition, f"definition of {p}", f"{p} = {e}/{partition}"),
                Identity(
                    IndexSum(product([p, v_j]), summed, size),
                    o,
                    f"definition of {o}",
                    f"{o} is the weighted mean of the values",
                ),
                *normed.identities,
            ),
            cuts=frozenset({*query[2], *key[2], *value[2], *(s.name for s in scores)})
            | normed.cuts,
        )

    def _gated(
        self, argument: sp.Basic, o: Let, row: tuple[sp.Symbol, ...], suffix: str
    ) -> tuple[sp.Basic, list[Let]]:
        """Return the head's output, multiplied by a gate of the input where there is one."""
        gate = self._option("gate")
        if gate is None:
            return o, []
        h, *token = row
        vector = At(argument, token[0]) if token else argument
        pre = Let("g" + suffix, self._projection("G", vector, h), *row)
        return product([Diag(Pointwise(gate, 0, pre)), o]), [pre]

    def _out_normed(self, vector: sp.Basic, row: tuple[sp.Symbol, ...], suffix: str) -> Body:
        """Return the head's output, normed over the features of all heads where asked for."""
        norm = self._option("out_norm")
        if norm is None:
            return Body((), vector)
        h, *token = row
        raw = Let("y" + suffix, vector, *row)
        body = _full_width(norm, raw, "y" + suffix, h, token[0] if token else None)
        output = _per_head(body.output, h)
        return Body((raw, *body.lets), output, body.identities, frozenset({raw.name}))


def _rotated(vector: sp.Basic, token: sp.Symbol | None) -> sp.Basic:
    return product([At(Matrix("R", symbols.d_h, symbols.d_h), token), vector])


def _coerced(name: str, value: Any) -> sp.Basic:
    """Return an option as a SymPy object, which the node can be rebuilt from."""
    if name in ("name", "label"):
        return Str(str(value))
    if value is None:
        return _NO
    if isinstance(value, Map | Activation) or value == _NO:
        return value
    if name in ("scale", "softcap"):
        return as_scalar(value, name)
    return sp.sympify(bool(value))


def _per_head(output: sp.Basic, h: sp.Symbol) -> sp.Basic:
    """Give the gain and bias of a norm over all heads their head index."""
    if isinstance(output, Vector):
        return At(output, h)
    if not output.args or isinstance(output, Let):
        return output
    return output.func(*[_per_head(a, h) if isinstance(a, sp.Expr) else a for a in output.args])


def _full_width(norm: Any, raw: Let, name: str, h: sp.Symbol, token: Any) -> Body:
    """Return a norm over the features of all heads together, head by head."""
    other = index("h2")
    tokens = () if token is None else (token,)
    features = symbols.H * raw.shape[0]
    lets: list[Let | ScalarLet] = []
    numerator: sp.Basic = raw
    if isinstance(norm, LayerNorm):
        one = Ones(raw.shape[0])
        total_ = index_sum(Inner(one, raw.xreplace({h: other})), other, symbols.H)
        mean = ScalarLet("mean_" + name, total_ / features, *tokens)
        numerator = Let("c_" + name, total([raw, product([-mean, one])]), h, *tokens)
        lets += (mean, numerator)
    elif not isinstance(norm, RMSNorm | L2Norm):
        raise UnknownNodeError(
            f"out_norm, full_norm: expected a LayerNorm, RMSNorm or L2Norm over all heads, "
            f"got {type(norm).__name__}"
        )
    each = numerator.xreplace({h: other})
    squares = index_sum(Inner(each, each), other, symbols.H)
    ms = ScalarLet("ms_" + name, squares / (1 if isinstance(norm, L2Norm) else features), *tokens)
    inside = sp.sqrt(ms) + norm.eps if norm.eps_outside else sp.sqrt(ms + norm.eps)
    r = ScalarLet("r_" + name, inside, *tokens)
    xhat = Let("xhat_" + name, product([1 / r, numerator]), h, *tokens)
    rules = (
        Identity(inside, r, f"definition of {r}", f"{r} = {inside}"),
        Identity(
            numerator, product([r, xhat]), f"definition of {xhat}", f"{numerator} = {r} {xhat}"
        ),
    )
    return Body((*lets, ms, r, xhat), norm.affine(xhat), rules)


class Attention(_Softmax):
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
    query_norm, key_norm, value_norm : norm, optional
        Norm of each head's query, key or value, before the rotation.
    full_norm : bool
        Whether that norm is over the features of all heads together.
    softcap : expression, optional
        The cap ``c`` of :math:`c\tanh(S/c)`.
    score_bias : bool
        Whether a constant ``B[h, i, j]`` is added to the score (ALiBi, relative positions).
    sinks : bool
        Whether a constant ``exp(sinks[h])`` is added to the partition.
    gate : Activation, optional
        Multiplies each head's output by :math:`\phi(W_Gz_i)`.
    label : str
        Appended to the names of the weights.
    norm_last : bool
        Whether the norms of query and key come after the rotation.
    query_gain : bool
        Whether the query is multiplied entry by entry by ``gain_Q[h]``, after norm and rotation.
    out_norm : norm, optional
        Layer, RMS or L2 norm of the (gated) outputs of all heads together, before the projection.

    Raises
    ------
    UnknownNameError
        If an option is not known.
    ShapeError
        If `scale` or `softcap` is not a scalar.

    References
    ----------
    Vaswani et al., *Attention Is All You Need*, 2017, equation (1); rotary: Su et al., *RoFormer*,
    2021, arXiv:2104.09864.
    """

    mixes_tokens = True

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return query, key, value, score, weight, head output and output at token ``i``."""
        i, j, h = index("i"), index("j"), index("h")
        q, k, v = (self._side(letter, At(argument, i), h, i, suffix) for letter in "QKV")
        return self._mix(argument, q, k, v, (h, i), (i, j, symbols.n), suffix)


class CrossAttention(_Softmax):
    r"""Attention to a fixed memory: keys and values are constants, so each token acts alone.

    .. math:: \frac{\partial A}{\partial z} = \sum_h W_O\sum_t P_t(v_t-o)\,\lambda\,k_t^\top W_Q

    The memory is the weight ``mem``, one row a memory token. Options as for `Attention`; rotary
    positions do not apply, a mask is not taken.

    References
    ----------
    Vaswani et al., *Attention Is All You Need*, 2017, section 3.2.3.
    """

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return query, key, value, score, weight, head output and output of one token."""
        h, t = index("h"), MEMORY[0]
        memory = At(Vector(self.weight("mem"), argument.shape[0]), t)
        query = self._side("Q", argument, h, None, suffix)
        key, value = (self._side(letter, memory, h, t, suffix) for letter in "KV")
        return self._mix(argument, query, key, value, (h,), (t, t, symbols.M), suffix)
