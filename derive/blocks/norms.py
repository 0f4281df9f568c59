r"""Norms as concrete maps: their Jacobians are derived from mean, variance and quotient."""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.core.symbol import Str

from derive import symbols
from derive.calculus.atoms import Diag, Inner, Ones, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Body, Identity, Map
from derive.calculus.tensor import is_scalar, product, total
from derive.errors import DomainError, UnknownNameError

__all__ = ["NORMS", "LayerNorm", "RMSNorm", "norm"]


class _Norm(Map):
    """What the norms have in common: a label, eps, and whether gain and bias are there."""

    family = "norm"
    input_name = "u"

    def __new__(
        cls,
        label: Any = "",
        eps: Any = symbols.eps,
        gain: Any = True,
        bias: Any = True,
    ) -> _Norm:
        """Check the arguments and build the node."""
        eps = sp.sympify(eps)
        if not is_scalar(eps) or eps.is_negative or eps.is_extended_real is False:
            raise DomainError(f"eps: expected a non-negative number or symbol, got {eps}")
        return sp.Basic.__new__(
            cls, Str(str(label)), eps, sp.sympify(bool(gain)), sp.sympify(bool(bias))
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

    def parameter(self, stem: str, rows: sp.Expr) -> Vector:
        """Return the gain or bias vector of this norm."""
        return Vector(f"{stem}_{self.label}" if self.label else stem, rows)

    def affine(self, xhat: sp.Basic) -> sp.Basic:
        """Return gain times the normalised vector, plus bias."""
        rows = xhat.shape[0]
        output = product([Diag(self.parameter("gain", rows)), xhat]) if self.has_gain else xhat
        return total([output, self.parameter("bias", rows)]) if self.has_bias else output


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
        s = ScalarLet("s" + suffix, sp.sqrt(var + self.eps))
        xhat = Let("xhat" + suffix, product([1 / s, centred]))
        return Body(
            lets=(mean, var, s, xhat),
            output=self.affine(xhat),
            identities=(
                Identity(
                    Inner(one, centred),
                    sp.S.Zero,
                    "deviations sum to zero",
                    f"1'({centred}) = 1'{argument} - d {mean} = 0 by the definition of {mean}",
                ),
                Identity(
                    sp.sqrt(var + self.eps), s, f"definition of {s}", f"{s} = sqrt({var} + eps)"
                ),
                Identity(
                    centred,
                    product([s, xhat]),
                    f"definition of {xhat}",
                    f"{centred} = {s} {xhat}",
                ),
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

    Raises
    ------
    DomainError
        If `eps` is negative or not real.

    References
    ----------
    Zhang and Sennrich, *Root Mean Square Layer Normalization*, 2019, arXiv:1910.07467, eq. (4).
    """

    def __new__(
        cls,
        label: Any = "",
        eps: Any = symbols.eps,
        gain: Any = True,
        bias: Any = False,
    ) -> RMSNorm:
        """Check the arguments and build the node."""
        return _Norm.__new__(cls, label, eps, gain, bias)

    def body(self, argument: sp.Basic, suffix: str = "") -> Body:
        """Return mean square, root and quotient."""
        d = argument.shape[0]
        ms = ScalarLet("ms" + suffix, Inner(argument, argument) / d)
        r = ScalarLet("r" + suffix, sp.sqrt(ms + self.eps))
        xhat = Let("xhat" + suffix, product([1 / r, argument]))
        return Body(
            lets=(ms, r, xhat),
            output=self.affine(xhat),
            identities=(
                Identity(
                    sp.sqrt(ms + self.eps), r, f"definition of {r}", f"{r} = sqrt({ms} + eps)"
                ),
                Identity(
                    argument,
                    product([r, xhat]),
                    f"definition of {xhat}",
                    f"{argument} = {r} {xhat}",
                ),
            ),
        )


NORMS: dict[str, type[_Norm]] = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}


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
