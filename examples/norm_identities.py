"""Identities of the norms at every width, decided; and claims that only look right, rejected."""

import derive
from derive.calculus.atoms import Diag, Ones, Reciprocal, Vector
from derive.calculus.normal_form import equal
from derive.symbols import d, eps

x = derive.state("x")
D = derive.derivation(derive.LayerNorm()(x), x)
J = D.jacobian
mean, var, s, xhat = D.definitions  # the named intermediates, in order of evaluation
one, gain = Ones(d), Vector("gain", d)
centred = x - mean * one

R = derive.derivation(derive.RMSNorm()(x), x)
_, r, _ = R.definitions

N, F = derive.LayerNorm(), derive.Sublayer("F")
post, pre = (derive.jacobian(b, x) for b in (N(x + F(x)), x + F(N(x))))
left = one.T * Diag(Reciprocal(gain))

claims = {
    "J_LN 1 = 0": (J * one, 0 * x),
    "J_LN c = (eps/s^3) gain*c, c = x - mean 1": (J * centred, eps / s**3 * Diag(gain) * centred),
    "1' diag(gain)^-1 J_LN = 0": (left * J, 0 * one.T),
    "1' diag(gain)^-1 J_post = 0, whatever F is": (left * post, 0 * one.T),
    "J_pre 1 = 1, whatever F is": (pre * one, one),
    "J_RMS x = (eps/r^3) gain*x": (R.jacobian * x, eps / r**3 * Diag(gain) * x),
    # and some that are not true
    "J_LN c = 0 at eps > 0": (J * centred, 0 * x),
    "J_LN c = (eps/s^2) gain*c": (J * centred, eps / s**2 * Diag(gain) * centred),
    "J_RMS 1 = 0": (R.jacobian * one, 0 * x),
    "1' J_LN = 0 with a gain": (one.T * J, 0 * one.T),
}
for claim, sides in claims.items():
    print(f"{'proved for every d' if equal(*sides) else 'rejected':<18}  {claim}")
