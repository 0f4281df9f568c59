r"""Norms as concrete maps: their Jacobians are derived from mean, variance and quotient."""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.core.symbol import Str

from derive import symbols
from derive.blocks.activations import activation
from derive.calculus.atoms import Diag, Inner, Matrix, Ones, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Body, Identity, Map, with_indices
from derive.calculus.tensor import is_scalar, product, total
from derive.calculus.tokens import At, index, index_sum
from derive.errors import DomainError, UnknownNameError

__all__ = [
    "NORMS",
    "BatchNorm",
    "DynamicTanh",
    "GroupNorm",
    "L2Norm",
    "LayerNorm",
    "RMSNorm",
    "ScaleNorm",
    "norm",
]


class _Norm(Map):
    """What the norms have in common: ``args = (label, eps, gain, bias, offset, outside)``."""

    family = "norm"
    input_name = "u"
    default_bias = True

    def __new__(
        cls,
        label: Any = "",
        eps: Any = symbols.eps,
        gain: Any = True,
        bias: Any = None,
        offset: Any = False,
        outside: Any = False,
    ) -> _Norm:
        """Check the arguments and build the node."""
        eps = sp.sympify(eps)
        if not is_scalar(eps) or eps.is_negative or eps.is_extended_real is False:
            raise DomainError(f"eps: expected a non-negative number or symbol, got {eps}")
        flags = (gain, cls.default_bias if bias is None else bias, offset, outside)
        return sp.Basic.__new__(
            cls, Str(str(label)), eps, *(sp.sympify(bool(flag)) for flag in flags)
        )

    @property
    def label(self) -> str:
        """What tells this norm from another one in the same layer."""
        return str(self.args[0])

    @property
    def name(self) -> str:
        """``N``, or ``N_1`` with a label."""
        return f"N_{self.label}" if self.label else "N"

    @property
    def eps(self) -> sp.Expr:
        """The constant added to the variance."""
        return self.args[1]

    @property
    def has_gain(self) -> bool:
        """Whether there is a gain."""
        return bool(self.args[2])

    @property
    def has_bias(self) -> bool:
        """Whether there is a bias."""
        return bool(self.args[3])

    @property
    def has_offset(self) -> bool:
        """Whether the gain is stored as its difference from one."""
        return bool(self.args[4])

    @property
    def eps_outside(self) -> bool:
        """Whether eps is added to the root, not under it."""
        return bool(self.args[5])

    def parameter(self, stem: str, rows: sp.Expr) -> Vector:
        """Return the gain or bias vector of this norm."""
        return Vector(f"{stem}_{self.label}" if self.label else stem, rows)

    def affine(self, xhat: sp.Basic) -> sp.Basic:
        """Return gain times the normalised vector, plus bias."""
        rows = xhat.shape[0]
        output = xhat
        if self.has_gain:
            gain = self.parameter("gain", rows)
            output = product([Diag(total([Ones(rows), gain]) if self.has_offset else gain), xhat])
        return total([output, self.parameter("bias", rows)]) if self.has_bias else output

    def _quotient(
        self, argument: sp.Basic, numerator: sp.Basic, square: ScalarLet, root: str, suffix: str
    ) -> tuple[tuple[Let | ScalarLet, ...], sp.Basic, tuple[Identity, ...]]:
        """Return root, quotient and their identities, for eps under the root or outside it."""
        lets: list[Let | ScalarLet] = []
        identities: list[Identity] = []
        inside = sp.sqrt(square if self.eps_outside else square + self.eps)
        if self.eps_outside:
            bare = ScalarLet("rms" + suffix, inside)
            lets.append(bare)
            identities.append(Identity(inside, bare, f"definition of {bare}", f"{bare} = {inside}"))
            s = ScalarLet(root + suffix, bare + self.eps)
        else:
            s = ScalarLet(root + suffix, inside)
            identities.append(
                Identity(inside, s, f"definition of {s}", f"{s} = sqrt({square} + eps)")
            )
        xhat = Let("xhat" + suffix, product([1 / s, numerator]))
        identities.append(
            Identity(
                numerator, product([s, xhat]), f"definition of {xhat}", f"{numerator} = {s} {xhat}"
            )
        )
        return (*lets, s, xhat), self.affine(xhat), tuple(identities)


class LayerNorm(_Norm):
    r"""Layer normalisation with biased variance.

    .. math:: N(u) = \operatorname{diag}(\gamma)\,\frac{u-\mu\mathbf 1}{s} + \beta,\qquad
              s = \sqrt{\tfrac1d\lVert u-\mu\mathbf 1\rVert^2+\epsilon}

    Its Jacobian, exact for every :math:`\epsilon`, is
    :math:`\frac1s\operatorname{diag}(\gamma)(I-\frac1d\mathbf{11}^\top-\frac1d\hat x\hat x^\top)`.

    Parameters
    ----------
    label : str or int, optional
        Tells several norms of one layer apart: gain and bias become ``gain_1``, ``bias_1``.
    eps : number or symbol, optional
        Added to the variance, inside the root. 0 is allowed and is then a stated assumption.
    gain, bias : bool, optional
        Whether the norm has them.
    offset : bool, optional
        Whether the gain is ``1 + gain`` (zero-centred gain, as in Gemma).
    outside : bool, optional
        Whether eps is added to the root instead of under it.

    Raises
    ------
    DomainError
        If `eps` is negative or not real.

    References
    ----------
    Ba, Kiros and Hinton, *Layer Normalization*, 2016, arXiv:1607.06450, equations (3) and (4).
    """

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return mean, variance, root and quotient."""
        d = argument.shape[0]
        if d == 1:
            raise DomainError("d: LayerNorm of a single feature is constant (d = 1); need d >= 2")
        one = Ones(d)
        mean = ScalarLet("mean" + suffix, Inner(one, argument) / d)
        centred = total([argument, product([-mean, one])])
        var = ScalarLet("var" + suffix, Inner(centred, centred) / d)
        lets, output, identities = self._quotient(argument, centred, var, "s", suffix)
        return Body(
            lets=(mean, var, *lets),
            output=output,
            identities=(
                Identity(
                    Inner(one, centred),
                    sp.S.Zero,
                    "deviations sum to zero",
                    f"1'({centred}) = 1'{argument} - d {mean} = 0 by the definition of {mean}",
                ),
                *identities,
            ),
        )


class RMSNorm(_Norm):
    r"""Root-mean-square normalisation: no mean is subtracted.

    .. math:: N(u) = \operatorname{diag}(\gamma)\,\frac{u}{r}\;(+\,\beta),\qquad
              r = \sqrt{\tfrac1d\lVert u\rVert^2+\epsilon}

    Its Jacobian, exact for every :math:`\epsilon`, is
    :math:`\frac1r\operatorname{diag}(\gamma)(I-\frac1d\hat x\hat x^\top)` with :math:`\hat x=u/r`.

    Parameters
    ----------
    label : str or int, optional
        Tells several norms of one layer apart.
    eps : number or symbol, optional
        Added to the mean square, inside the root.
    gain : bool, optional
        Whether the norm has a gain.
    bias : bool, optional
        Whether the norm has a bias; the published RMSNorm has none.
    offset : bool, optional
        Whether the gain is ``1 + gain`` (zero-centred gain, as in Gemma).
    outside : bool, optional
        Whether eps is added to the root instead of under it.

    Raises
    ------
    DomainError
        If `eps` is negative or not real.

    References
    ----------
    Zhang and Sennrich, *Root Mean Square Layer Normalization*, 2019, arXiv:1910.07467, eq. (4).
    """

    default_bias = False

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return mean square, root and quotient."""
        d = argument.shape[0]
        ms = ScalarLet("ms" + suffix, Inner(argument, argument) / d)
        lets, output, identities = self._quotient(argument, argument, ms, "r", suffix)
        return Body(lets=(ms, *lets), output=output, identities=identities)


class L2Norm(_Norm):
    r"""Division by the length, :math:`N(u) = \operatorname{diag}(\gamma)\,u/\lVert u\rVert`.

    Its Jacobian is
    :math:`\frac1r\operatorname{diag}(\gamma)(I-\hat x\hat x^\top)` with :math:`r=\lVert u\rVert`.
    With ``eps`` the length is :math:`\sqrt{\lVert u\rVert^2+\epsilon}`; it is 0 by default.

    Parameters
    ----------
    label, eps, gain, bias, offset, outside
        As for `RMSNorm`.

    References
    ----------
    Loshchilov et al., *nGPT: Normalized Transformer*, 2024, arXiv:2410.01131.
    """

    default_bias = False

    def __new__(
        cls, label: Any = "", eps: Any = 0, gain: Any = False, *flags: Any, **options: Any
    ) -> L2Norm:
        """Check the arguments and build the node."""
        return _Norm.__new__(cls, label, eps, gain, *flags, **options)

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return squared length, length and quotient."""
        square = ScalarLet("sq" + suffix, Inner(argument, argument))
        lets, output, identities = self._quotient(argument, argument, square, "r", suffix)
        return Body(lets=(square, *lets), output=output, identities=identities)


class ScaleNorm(L2Norm):
    r"""Length times one learned scalar, :math:`N(u) = g\,u/\lVert u\rVert`.

    References
    ----------
    Nguyen and Salazar, *Transformers without Tears*, 2019, arXiv:1910.05895.
    """

    def affine(self, xhat: sp.Basic) -> sp.Basic:
        """Return the scalar gain times the unit vector."""
        name = f"g_{self.label}" if self.label else "g"
        return product([sp.Symbol(name, real=True), xhat])


class DynamicTanh(_Norm):
    r"""Point-wise, in place of a norm: :math:`N(u)=\operatorname{diag}(\gamma)\tanh(au)+\beta`.

    Its Jacobian :math:`a\operatorname{diag}(\gamma)\operatorname{diag}(1-\tanh^2(au))` is diagonal:
    full rank, not invariant to scale, and bounded by :math:`\lvert a\rvert\max\lvert\gamma\rvert`.

    References
    ----------
    Zhu et al., *Transformers without Normalization*, 2025, arXiv:2503.10622.
    """

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return the scaled argument and its hyperbolic tangent."""
        a = sp.Symbol(f"a_{self.label}" if self.label else "a", real=True)
        scaled = Let("v" + suffix, product([a, argument]))
        return Body(lets=(scaled,), output=self.affine(activation("tanh")(scaled)))


class BatchNorm(_Norm):
    r"""Batch normalisation at inference: an affine map with constant statistics.

    .. math:: N(u) = \operatorname{diag}(\gamma)\operatorname{diag}(w)(u-m)+\beta

    with ``w`` the reciprocal root of the running variance plus eps (weight ``w``) and ``m`` the
    running mean: its Jacobian does not depend on the input.

    References
    ----------
    Ioffe and Szegedy, *Batch Normalization*, 2015, arXiv:1502.03167, algorithm 2.
    """

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return the affine map."""
        rows = argument.shape[0]
        inverse, mean = self.parameter("w", rows), self.parameter("m", rows)
        standard = product([Diag(inverse), total([argument, product([-1, mean])])])
        return Body(lets=(), output=self.affine(standard))


class GroupNorm(_Norm):
    r"""LayerNorm of each of G groups of features on its own.

    With :math:`E_g` the rows of the identity that select group g,

    .. math:: N(u) = \operatorname{diag}(\gamma)\sum_g E_g^\top\,\mathrm{LN}(E_gu) + \beta,

    so its Jacobian is block diagonal, one LayerNorm Jacobian a group. The weight ``E`` has shape
    ``(G, d/G, d)``.

    References
    ----------
    Wu and He, *Group Normalization*, 2018, arXiv:1803.08494.
    """

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return the members of a group, their LayerNorm, and the groups put together."""
        g = index("g")
        rows = argument.shape[0]
        name = "E" if rows == symbols.d else f"E_{rows}"  # inside a sublayer: another width
        select = At(Matrix(name, rows / symbols.G, rows), g)
        member = Let("u" + suffix, product([select, argument]), g)
        plain = LayerNorm(eps=self.eps, gain=False, bias=False, outside=self.eps_outside)
        inner = with_indices(LayerNorm.body(plain, member), (g,), suffix or "_g")
        output = self.affine(index_sum(product([select.T, inner.output]), g, symbols.G))
        cuts = frozenset({member.name})
        return Body((member, *inner.lets), output, inner.identities, cuts)


NORMS: dict[str, type[_Norm]] = {
    "layernorm": LayerNorm,
    "rmsnorm": RMSNorm,
    "l2norm": L2Norm,
    "scalenorm": ScaleNorm,
    "groupnorm": GroupNorm,
    "batchnorm": BatchNorm,
    "dyt": DynamicTanh,
}


def norm(name: str, **options: Any) -> _Norm:
    """Return the norm of that name.

    Raises
    ------
    UnknownNameError
        If there is none; the message lists those there are.
    """
    try:
        return NORMS[name.lower()](**options)
    except KeyError:
        raise UnknownNameError(f"norm: expected one of {', '.join(NORMS)}, got {name!r}") from None
