r"""Certificates of kind ``gaussian``: expectations over normal variables, evaluated exactly.

`Expectation` integrates a function of one or two standard normal variables by SymPy (by the rules
of `derive.proof.normal_integrals` where a normal distribution function is in it), `chi_square`
are the moments of a squared length, also negative ones, at symbolic d. Quadrature decides which
claims are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import sympy as sp

from derive.calculus.pointwise import normal_cdf
from derive.errors import DomainError
from derive.proof.check import Claimed, differ
from derive.proof.normal_integrals import normal_mean
from derive.proof.perturb import Sides
from derive.proof.scalars import common_gammas, same, trial

__all__ = ["ChiSquare", "Expectation", "Gaussian", "chi_square"]


class Expectation(sp.Expr):
    r"""The mean :math:`\mathbb E f(z_1, \dots)` over independent standard normal variables.

    Parameters
    ----------
    function : expression
        f, in the variables and in constants.
    variables : Symbol
        One or more real symbols.
    """

    is_commutative = True
    is_real = True

    def __new__(cls, function: Any, *variables: sp.Symbol) -> Expectation:
        """Check the arguments and build the node."""
        if not variables or not all(isinstance(v, sp.Symbol) and v.is_real for v in variables):
            raise DomainError(f"variables: expected real symbols, got {variables}")
        return sp.Basic.__new__(cls, sp.sympify(function), *variables)

    @property
    def free_symbols(self) -> set[sp.Basic]:
        """The symbols of the function that are not integrated over."""
        return self.args[0].free_symbols - set(self.args[1:])

    def doit(self, **_: Any) -> sp.Expr:
        """Return the integral against the normal density."""
        found = self.args[0]
        for z in self.args[1:]:
            if found.has(sp.erf, sp.erfc, normal_cdf):
                found = sp.simplify(normal_mean(found, z))
                continue
            density = sp.exp(-(z**2) / 2) / sp.sqrt(2 * sp.pi)
            halves = [  # functions with a kink at 0 are smooth on either side
                sp.integrate(_on_half(found, z, sign) * density, (z, 0, sp.oo)) for sign in (1, -1)
            ]
            found = sp.simplify(sum(halves))
        return found

    def quadrature(self) -> float:
        """Return the mean by numerical integration; the constants must be numbers."""
        total = _density_times(self.args[0].rewrite(sp.erf), self.args[1:])
        ends = [[-14, 0, 14]] * len(self.args[1:])
        return float(mpmath.quad(sp.lambdify(self.args[1:], total, "mpmath"), *ends))

    def _sympystr(self, printer: Any) -> str:
        return f"E[{printer._print(self.args[0])}]"

    def _latex(self, printer: Any, **_: Any) -> str:
        return rf"\mathbb{{E}}\left[{printer._print(self.args[0])}\right]"


def _density_times(function: sp.Expr, variables: Sequence[sp.Symbol]) -> sp.Expr:
    exponent = -sum(z**2 for z in variables) / 2
    return function * sp.exp(exponent) / (2 * sp.pi) ** sp.Rational(len(variables), 2)


def _on_half(function: sp.Expr, z: sp.Symbol, sign: int) -> sp.Expr:
    """Return f(z) or f(-z) for positive z, its case distinctions resolved."""
    t = sp.Dummy("t", positive=True)
    return sp.piecewise_fold(function.subs(z, sign * t)).doit().subs(t, z)


class ChiSquare(sp.Expr):
    r"""The moment :math:`\mathbb E(\chi^2_k)^p`, evaluated by `chi_square` when asked to.

    Parameters
    ----------
    degrees, power : expression
        k and p.
    """

    is_commutative = True
    is_real = True
    is_positive = True

    def doit(self, **_: Any) -> sp.Expr:
        """Return the moment."""
        return chi_square(*self.args)

    def _sympystr(self, printer: Any) -> str:
        return f"E[chi2({printer._print(self.args[0])})^({printer._print(self.args[1])})]"

    def _latex(self, printer: Any, **_: Any) -> str:
        degrees, power = (printer._print(a) for a in self.args)
        return rf"\mathbb{{E}}\left[\left(\chi^2_{{{degrees}}}\right)^{{{power}}}\right]"


def chi_square(degrees: sp.Expr, power: sp.Expr) -> sp.Expr:
    r"""Return :math:`\mathbb E (|z|^2)^p = 2^p\,\Gamma(k/2 + p)/\Gamma(k/2)` for z in :math:`R^k`.

    Parameters
    ----------
    degrees, power : expression
        k and p; finite for k > -2p.
    """
    k, p = sp.sympify(degrees), sp.sympify(power)
    return sp.factor(common_gammas(2**p * sp.gamma(k / 2 + p) / sp.gamma(k / 2)))


@dataclass(frozen=True, kw_only=True)
class Gaussian(Claimed):
    """An equation between exact expectations, or between what they compose to."""

    kind = "gaussian"

    def decide(self, left: sp.Basic, right: sp.Basic) -> tuple[bool, str]:
        """Evaluate the expectations and compare."""
        holds = same(_evaluated(left), _evaluated(right))
        return holds, "expectations evaluated exactly"

    def false(self, sides: Sides) -> bool:
        """Whether the sides differ, by quadrature."""
        left, right = sides
        if not (left.has(Expectation) or right.has(Expectation)):
            return differ(left, right, seed=self.seed)
        at = trial(sp.Tuple(left, right), self.seed)
        a, b = (_by_quadrature(side.subs(at)) for side in sides)
        return abs(a - b) > 1e-6 * (abs(a) + abs(b))


def _evaluated(expr: sp.Expr) -> sp.Expr:
    return expr.xreplace({e: e.doit() for e in expr.atoms(Expectation, ChiSquare)})


def _by_quadrature(expr: sp.Expr) -> float:
    found = {e: sp.Float(e.quadrature(), 17) for e in expr.atoms(Expectation)}
    return float(sp.N(expr.xreplace(found).doit()))
