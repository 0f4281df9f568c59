r"""What differs between the Jacobians of LayerNorm and RMSNorm: rank, null spaces, the mean.

Notation as in `proofs.norms`: c = x - mean(x) 1, s = sqrt(|c|^2/d + eps), r = sqrt(|x|^2/d + eps),
g the gain, C = I - 11'/d. "Plain" means without gain and bias.

In short, for a plain norm at eps = 0: s J_LN is the projection that removes 1 and c, of rank d - 2,
r J_RMS the projection that removes x only, of rank d - 1 (a projection's rank is its trace). On the
left they remove the same vectors divided by the gain. RMSNorm has no relation to the direction 1:
what it does to it depends on the mean of its input. On an input of mean zero the two Jacobians
differ by 11'/(d r), that is, RMSNorm lets the mean's direction pass and LayerNorm does not.

`CLAIMS` are proved for every d; `REJECTED` are statements that one meets and that do not hold.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.blocks.norms import DynamicTanh, L2Norm
from derive.calculus.atoms import Diag, Inner, Ones, Reciprocal, Vector, eye
from derive.calculus.tensor import Product, Sum, is_scalar
from derive.errors import UnknownNodeError
from derive.symbols import d, eps
from proofs.claim import Claim

__all__ = ["CLAIMS", "REJECTED", "trace"]

x = derive.state("x")
one = Ones(d)
gain = Vector("gain", d)
identity = eye(d)
C = identity - one * one.T / d


def _jacobian(norm: sp.Basic) -> sp.Basic:
    return derive.jacobian(norm(x), x)


def _with_root(norm: sp.Basic, name: str) -> tuple[sp.Basic, sp.Basic]:
    """Return the Jacobian and the root that the norm divides by."""
    found = derive.derivation(norm(x), x)
    return found.jacobian, next(v for v in found.lets if v.name == name)


LN, RMS = _jacobian(derive.LayerNorm()), _jacobian(derive.RMSNorm())
LN_PLAIN = _jacobian(derive.LayerNorm(gain=False, bias=False))
RMS_PLAIN = _jacobian(derive.RMSNorm(gain=False))
LN0, s0 = _with_root(derive.LayerNorm(eps=0, gain=False, bias=False), "s")
RMS0, r0 = _with_root(derive.RMSNorm(eps=0, gain=False), "r")
UNIT = _jacobian(L2Norm())
DYT = _jacobian(DynamicTanh())

mean = Inner(one, x) / d
c = x - mean * one
s = sp.sqrt(Inner(c, c) / d + eps)
r = sp.sqrt(Inner(x, x) / d + eps)
length = sp.sqrt(Inner(x, x))


def trace(matrix: sp.Basic) -> sp.Expr:
    """Return the trace by three rules: it is linear, tr I = d and tr(u v') = v'u.

    Raises
    ------
    UnknownNodeError
        If a term is neither a multiple of the identity nor of an outer product.
    """
    if isinstance(matrix, Sum):
        return sp.Add(*map(trace, matrix.args))
    if isinstance(matrix, sp.Identity):
        return matrix.shape[0]
    if isinstance(matrix, Product):
        scalars = [a for a in matrix.args if is_scalar(a)]
        factors = [a for a in matrix.args if not is_scalar(a)]
        if len(factors) == 1:
            return sp.Mul(*scalars) * trace(factors[0])
        if len(factors) == 2 and factors[0].shape[1] == 1:
            return sp.Mul(*scalars) * Inner(factors[1].T, factors[0])
    raise UnknownNodeError(f"trace: expected multiples of I and of outer products, got {matrix}")


def _at_mean_zero() -> tuple[sp.Basic, sp.Basic]:
    """J_RMS - J_LN at the input C x, whose mean is zero; the root there is s."""
    at = {x: C * x}
    return RMS_PLAIN.xreplace(at) - LN_PLAIN.xreplace(at), 1 / (d * s) * one * one.T


alpha = sp.Symbol("alpha", positive=True)
F = derive.Sublayer("F")


def _scaled(kind: type, left: sp.Expr, right: sp.Expr) -> tuple[sp.Basic, sp.Basic]:
    """Return the Jacobians of N(alpha x + F(x)) and N(x + F(x)/alpha), with these eps."""
    residual, branch = alpha * x + F(x), x + F(x) / alpha
    blocks = kind(eps=left)(residual), kind(eps=right)(branch)
    return derive.jacobian(blocks[0], x), derive.jacobian(blocks[1], x)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "difference-at-mean-zero",
        "plain, at an input of mean zero: J_RMS - J_LN = 11'/(d s), every eps",
        _at_mean_zero,
        "own",
    ),
    Claim(
        "rmsnorm-on-ones",
        "J_RMS 1 = (1/r) g*(1 - (mean(x)/r^2) x): zero only for x along 1, and only at eps = 0",
        lambda: (RMS * one, 1 / r * Diag(gain) * (one - mean / r**2 * x)),
        "own",
    ),
    Claim(
        "ones-on-rmsnorm",
        "plain: 1'J_RMS = (1/r) (1' - (mean(x)/r^2) x'), where 1'J_LN = 0",
        lambda: (one.T * RMS_PLAIN, 1 / r * (one.T - mean / r**2 * x.T)),
        "own",
    ),
    Claim(
        "layernorm-within-mean-zero",
        "plain: J_LN = C J_LN C: it maps the vectors of mean zero to themselves, and 1 to 0",
        lambda: (C * LN_PLAIN * C, LN_PLAIN),
        "own",
    ),
    Claim(
        "layernorm-left-deviations",
        "c' diag(g)^-1 J_LN = (eps/s^3) c': the second left null vector, at eps = 0",
        lambda: (c.T * Diag(Reciprocal(gain)) * LN, eps / s**3 * c.T),
        "own",
    ),
    Claim(
        "rmsnorm-left-input",
        "x' diag(g)^-1 J_RMS = (eps/r^3) x': the only left null vector, at eps = 0",
        lambda: (x.T * Diag(Reciprocal(gain)) * RMS, eps / r**3 * x.T),
        "own",
    ),
    Claim(
        "layernorm-symmetric",
        "plain: J_LN' = J_LN",
        lambda: (LN_PLAIN.T, LN_PLAIN),
        "own",
    ),
    Claim(
        "rmsnorm-symmetric",
        "plain: J_RMS' = J_RMS",
        lambda: (RMS_PLAIN.T, RMS_PLAIN),
        "own",
    ),
    Claim(
        "layernorm-projection",
        "plain, eps = 0: (s J_LN)^2 = s J_LN, a projection",
        lambda: (s0**2 * LN0 * LN0, s0 * LN0),
        "own",
    ),
    Claim(
        "rmsnorm-projection",
        "plain, eps = 0: (r J_RMS)^2 = r J_RMS, a projection",
        lambda: (r0**2 * RMS0 * RMS0, r0 * RMS0),
        "own",
    ),
    Claim(
        "unit-projection",
        "division by the length: (|x| J)^2 = |x| J, a projection",
        lambda: (length**2 * UNIT * UNIT, length * UNIT),
        "own; the norm is that of nGPT",
    ),
    Claim(
        "layernorm-rank",
        "plain, eps = 0: tr(s J_LN) = d - 2, so the rank is d - 2",
        lambda: (trace(s0 * LN0), d - 2),
        "own",
    ),
    Claim(
        "rmsnorm-rank",
        "plain, eps = 0: tr(r J_RMS) = d - 1, so the rank is d - 1",
        lambda: (trace(r0 * RMS0), d - 1),
        "own",
    ),
    Claim(
        "unit-rank",
        "division by the length: tr(|x| J) = d - 1, so the rank is d - 1",
        lambda: (trace(length * UNIT), d - 1),
        "own",
    ),
    Claim(
        "layernorm-trace",
        "plain: tr(s J_LN) = d - 2 + eps/s^2 for every eps",
        lambda: (trace(s * LN_PLAIN), d - 2 + eps / s**2),
        "own",
    ),
    Claim(
        "rmsnorm-trace",
        "plain: tr(r J_RMS) = d - 1 + eps/r^2 for every eps",
        lambda: (trace(r * RMS_PLAIN), d - 1 + eps / r**2),
        "own",
    ),
    Claim(
        "rmsnorm-is-scaled-unit",
        "plain, eps = 0: J_RMS = sqrt(d) times the Jacobian of division by the length",
        lambda: (RMS0, sp.sqrt(d) * UNIT),
        "own",
    ),
    Claim(
        "residual-scale-layernorm",
        "N(alpha x + F(x)) and N(x + F(x)/alpha) have one Jacobian, with eps and eps/alpha^2",
        lambda: _scaled(derive.LayerNorm, eps, eps / alpha**2),
        "own",
    ),
    Claim(
        "residual-scale-rmsnorm",
        "the same for RMSNorm",
        lambda: _scaled(derive.RMSNorm, eps, eps / alpha**2),
        "own",
    ),
    Claim(
        "residual-scale-without-eps",
        "at eps = 0 the two are the same without further condition",
        lambda: _scaled(derive.LayerNorm, sp.S.Zero, sp.S.Zero),
        "own",
    ),
)

REJECTED: tuple[Claim, ...] = (
    Claim(
        "residual-scale-with-one-eps",
        "N(alpha x + F(x)) and N(x + F(x)/alpha) have one Jacobian, with the same eps > 0",
        lambda: _scaled(derive.LayerNorm, eps, eps),
        "in circulation, with eps dropped",
    ),
    Claim(
        "rmsnorm-kills-ones",
        "J_RMS 1 = 0, as for LayerNorm",
        lambda: (RMS * one, 0 * x),
        "in circulation",
    ),
    Claim(
        "norms-alike",
        "J_RMS = J_LN",
        lambda: (RMS, LN),
        "in circulation",
    ),
    Claim(
        "layernorm-projection-with-eps",
        "plain, eps > 0: (s J_LN)^2 = s J_LN",
        lambda: (s**2 * LN_PLAIN * LN_PLAIN, s * LN_PLAIN),
        "in circulation, with eps dropped",
    ),
    Claim(
        "rmsnorm-projection-with-eps",
        "plain, eps > 0: (r J_RMS)^2 = r J_RMS",
        lambda: (r**2 * RMS_PLAIN * RMS_PLAIN, r * RMS_PLAIN),
        "in circulation, with eps dropped",
    ),
    Claim(
        "same-rank",
        "plain, eps = 0: tr(r J_RMS) = d - 2",
        lambda: (trace(r0 * RMS0), d - 2),
        "in circulation",
    ),
    Claim(
        "tanh-ignores-scale",
        "J x = 0 for the point-wise DyT, as for a norm at eps = 0",
        lambda: (DYT * x, 0 * x),
        "in circulation: that DyT replaces a norm in this too",
    ),
    Claim(
        "tanh-ignores-shift",
        "J 1 = 0 for the point-wise DyT, as for LayerNorm",
        lambda: (DYT * one, 0 * x),
        "in circulation",
    ),
)
