r"""Identities of the norms and of the two placements, each proved for every d.

Notation: u is the vector that is normalised, c = u - mean(u) 1 its deviations, g the gain,
s = sqrt(|c|^2/d + eps) and r = sqrt(|u|^2/d + eps). J_LN and J_RMS are the Jacobians that
`derive.derivation` derives; every right side below is typed in by the author and checked.

Sources: T1, T3, T4 and T5 are classical; the Jacobian of LayerNorm at eps = 0 and unit gain is in
Xiong et al., *On Layer Normalization in the Transformer Architecture*, 2020, appendix D.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

import derive
from derive.calculus.atoms import Diag, Inner, Ones, Reciprocal, Vector, eye
from derive.calculus.maps import JacobianOf
from derive.symbols import d, eps
from proofs.claim import Claim

__all__ = ["CLAIMS"]


@dataclass(frozen=True)
class _Norm:
    """A norm at the state x: its Jacobian as derived, and the quantities of its closed form."""

    jacobian: sp.Basic
    root: sp.Basic
    xhat: sp.Basic
    deviations: sp.Basic


x = derive.state("x")
F = derive.Sublayer("F")
one = Ones(d)
gain = Vector("gain", d)
identity = eye(d)


def _at_x(norm: derive.LayerNorm | derive.RMSNorm) -> _Norm:
    found = derive.derivation(norm(x), x)
    named = {v.name: v for v in found.lets}
    root, xhat = named.get("s", named.get("r")), named["xhat"]
    assert root is not None
    return _Norm(found.jacobian, root, xhat, root * xhat)


LN, LN0 = _at_x(derive.LayerNorm()), _at_x(derive.LayerNorm(eps=0))
RMS, RMS0 = _at_x(derive.RMSNorm()), _at_x(derive.RMSNorm(eps=0))
post = derive.jacobian(derive.block("post"), x)
pre, pre0 = (
    derive.jacobian(derive.block("pre", norm_), x)
    for norm_ in (derive.LayerNorm(), derive.LayerNorm(eps=0))
)


def _mean() -> sp.Basic:
    return Inner(one, x) / d


def _centred() -> sp.Basic:
    return x - _mean() * one


def _s() -> sp.Basic:
    return sp.sqrt(Inner(_centred(), _centred()) / d + eps)


def _r() -> sp.Basic:
    return sp.sqrt(Inner(x, x) / d + eps)


def _ln_closed() -> sp.Basic:
    c, s = _centred(), _s()
    return 1 / s * Diag(gain) * (identity - one * one.T / d - c * c.T / (d * s**2))


def _rms_closed() -> sp.Basic:
    return 1 / _r() * Diag(gain) * (identity - x * x.T / (d * _r() ** 2))


def _post_closed() -> sp.Basic:
    u = x + F(x)
    c = u - Inner(one, u) / d * one
    s = sp.sqrt(Inner(c, c) / d + eps)
    return (
        1
        / s
        * Diag(gain)
        * (identity - one * one.T / d - c * c.T / (d * s**2))
        * (identity + JacobianOf(F, x))
    )


def _ln_through_rms() -> tuple[sp.Basic, sp.Basic]:
    """J_LN(x) = J_RMS(C x) C with C = I - 11'/d, both without gain."""
    plain = derive.jacobian(derive.LayerNorm(gain=False, bias=False)(x), x)
    centre = identity - one * one.T / d
    return plain, derive.jacobian(derive.RMSNorm(gain=False)(centre * x), x)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "layernorm-jacobian",
        "J_LN = (1/s) diag(g) (I - 11'/d - c c'/(d s^2)), exact for every eps",
        lambda: (LN.jacobian, _ln_closed()),
        "Xiong et al. 2020, appendix D, at eps = 0 and unit gain",
    ),
    Claim(
        "rmsnorm-jacobian",
        "J_RMS = (1/r) diag(g) (I - x x'/(d r^2)), exact for every eps",
        lambda: (RMS.jacobian, _rms_closed()),
        "own; the norm is Zhang and Sennrich 2019, equation (4)",
    ),
    Claim(
        "layernorm-kills-ones",
        "J_LN 1 = 0 for every eps: LayerNorm does not see a shift",
        lambda: (LN.jacobian * one, 0 * x),
        "classical",
    ),
    Claim(
        "layernorm-along-deviations",
        "J_LN c = (eps/s^3) g*c: zero only where eps = 0 or c = 0",
        lambda: (LN.jacobian * _centred(), eps / _s() ** 3 * Diag(gain) * _centred()),
        "own",
    ),
    Claim(
        "layernorm-left-null",
        "1' diag(g)^-1 J_LN = 0 for every eps and every gain without a zero",
        lambda: (one.T * Diag(Reciprocal(gain)) * LN.jacobian, 0 * x.T),
        "own",
    ),
    Claim(
        "rmsnorm-along-input",
        "J_RMS x = (eps/r^3) g*x",
        lambda: (RMS.jacobian * x, eps / _r() ** 3 * Diag(gain) * x),
        "own",
    ),
    Claim(
        "layernorm-scale",
        "J_LN x = 0 at eps = 0: LayerNorm does not see a scale",
        lambda: (LN0.jacobian * x, 0 * x),
        "classical",
    ),
    Claim(
        "normalised-length",
        "|xhat|^2 = d (1 - eps/s^2): at most d, and d only at eps = 0",
        lambda: (Inner(LN.xhat, LN.xhat), d * (1 - eps / _s() ** 2)),
        "own",
    ),
    Claim(
        "layernorm-is-centred-rmsnorm",
        "without gain, J_LN(x) = J_RMS(C x) C with C = I - 11'/d",
        _ln_through_rms,
        "Zhang and Sennrich 2019, section 3",
    ),
    Claim(
        "post-norm-jacobian",
        "d N(x + F(x))/dx = J_LN(u) (I + DF(x)), u = x + F(x)",
        lambda: (post, _post_closed()),
        "Xiong et al. 2020, appendix F",
    ),
    Claim(
        "pre-norm-jacobian",
        "d (x + F(N(x)))/dx = I + DF(N(x)) J_LN(x): the factor J_LN is not optional",
        lambda: (pre, identity + JacobianOf(F, derive.LayerNorm()(x)) * _ln_closed()),
        "Xiong et al. 2020, appendix F",
    ),
    Claim(
        "post-norm-left-null",
        "1' diag(g)^-1 J = 0 for the whole post-norm block, whatever the sublayer",
        lambda: (one.T * Diag(Reciprocal(gain)) * post, 0 * x.T),
        "own",
    ),
    Claim(
        "pre-norm-keeps-ones",
        "J 1 = 1 for the whole pre-norm block with LayerNorm, for every eps and sublayer",
        lambda: (pre * one, one),
        "own",
    ),
    Claim(
        "pre-norm-keeps-input",
        "J x = x for the whole pre-norm block at eps = 0, whatever the sublayer",
        lambda: (pre0 * x, x),
        "own",
    ),
)
