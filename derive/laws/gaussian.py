r"""Gaussian moments of activations: the dual kernels that depth laws are made of.

For :math:`(a, b)` jointly normal with mean 0, variance q and correlation :math:`\rho`,

.. math:: K(q, \rho) = \mathbb E\,\phi(a)\phi(b), \qquad
    \dot K(q, \rho) = \mathbb E\,\phi'(a)\phi'(b).

Where tokens differ, a and b have variances p and q of their own.

At :math:`\rho = 1` they are the second moments of :math:`\phi(a)` and :math:`\phi'(a)`. Closed
forms are SymPy expressions; the others are sums of the Hermite expansion

.. math:: K(q, \rho) = \sum_k c_k(q)^2 \rho^k, \qquad
    c_k(q) = \mathbb E\,\phi(\sqrt q\,z)\,\mathrm{He}_k(z)/\sqrt{k!}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from derive.blocks.activations import activation
from derive.calculus.pointwise import Activation
from derive.errors import DomainError, UnknownNodeError
from derive.lower import activation_function

__all__ = ["DualKernel", "dual_kernel"]

Number = Any
"""A float, or a SymPy expression."""

RANGE = 12.0
"""Standard deviations up to which a density is integrated: 1e-32 is beyond."""
POINTS = 16
"""Nodes on a panel."""
MOST = 200.0
"""Panels at most: functions of slope 1 are resolved up to variances of some 600."""
TERMS = 120
"""Terms of the Hermite expansion."""
ACCURATE = 1e-10
"""Relative remainder of the expansion from which two variables are integrated instead."""

_p, _q = sp.symbols("p q", positive=True)
_r = sp.Symbol("rho", real=True)


@dataclass(frozen=True)
class DualKernel:
    r"""The moments :math:`K` and :math:`\dot K` of an activation.

    Attributes
    ----------
    activation : Activation
        The function.
    exact_value, exact_slope : sympy.Lambda or None
        Closed forms in p, q and rho, the variances of a and b and their correlation, where there
        is one.
    source : str
        Where the closed forms are from.
    """

    activation: Activation
    exact_value: sp.Lambda | None = None
    exact_slope: sp.Lambda | None = None
    source: str = ""

    def value(self, q: Number, rho: Number = 1) -> Number:
        r"""Return :math:`\mathbb E\,\phi(a)\phi(b)`.

        Parameters
        ----------
        q : float, expression or array
            Variance of both, not negative; an array has that of each of n tokens.
        rho : float, expression or array
            Correlation, -1 to 1; of n tokens the matrix, whose diagonal is 1.

        Returns
        -------
        float, expression or array
            For n tokens the ``(n, n)`` matrix.

        Raises
        ------
        DomainError
            If a number is out of range.
        UnknownNodeError
            If an argument is an expression and there is no closed form.
        """
        return self._moment(self.exact_value, 0, q, rho)

    def slope(self, q: Number, rho: Number = 1) -> Number:
        r"""Return :math:`\mathbb E\,\phi'(a)\phi'(b)`; arguments as for `value`."""
        return self._moment(self.exact_slope, 1, q, rho)

    def _moment(self, exact: sp.Lambda | None, order: int, q: Number, rho: Number) -> Number:
        if isinstance(q, np.ndarray):
            return self._matrix(exact, order, q, np.asarray(rho, dtype=float))
        symbolic = any(isinstance(v, sp.Basic) and not v.is_number for v in (q, rho))
        if not symbolic and (float(q) < 0 or abs(float(rho)) > 1 + 1e-12):
            raise DomainError(f"q, rho: expected q >= 0 and |rho| <= 1, got q = {q}, rho = {rho}")
        if exact is not None:
            if symbolic or isinstance(q, sp.Basic) or isinstance(rho, sp.Basic):
                found = _diagonal(exact)(q) if rho == 1 else _equal(exact)(q, rho)
                return sp.expand(sp.radsimp(found)) if found.is_number else found
            if float(rho) == 1.0:
                return float(_compiled(_diagonal(exact))(float(q)))
            return float(_compiled(_equal(exact))(float(q), min(1.0, max(-1.0, float(rho)))))
        if symbolic:
            raise UnknownNodeError(
                f"{self.activation.name}: its Gaussian moments have no closed form here; expected "
                f"numbers, got q = {q}, rho = {rho}"
            )
        if float(rho) == 1.0:
            return _second_moment(self.activation, order, float(q))
        return _product_moment(self.activation, order, float(q), float(q), float(rho))

    def _matrix(
        self, exact: sp.Lambda | None, order: int, q: np.ndarray, rho: np.ndarray
    ) -> np.ndarray:
        if np.any(q < 0) or np.any(np.abs(rho) > 1 + 1e-12):
            raise DomainError("q, rho: expected q >= 0 and |rho| <= 1 for every token")
        variances, which = np.unique(q, return_inverse=True)
        if exact is not None:
            found = _compiled_arrays(exact)(q[:, None], q[None, :], np.clip(rho, -1.0, 1.0))
            found = np.array(np.broadcast_to(found, rho.shape), dtype=float)
        else:
            rows = np.array([_coefficients(self.activation, order, float(v)) for v in variances])
            found = np.zeros_like(rho)
            for k in reversed(range(TERMS)):  # Horner's scheme in the correlation
                term = rows[which, k]
                found = found * rho + term[:, None] * term
            rest = np.array([_remainder(self.activation, order, float(v)) for v in variances])
            slow = np.sqrt(rest[which][:, None] * rest[which]) * np.abs(rho) ** TERMS
            for i, j in zip(*np.nonzero(slow > ACCURATE * np.abs(found)), strict=True):
                pair = float(q[i]), float(q[j]), float(np.clip(rho[i, j], -1.0, 1.0))
                found[i, j] = _quadrature(self.activation, order, *pair)
        whole = np.diagonal(rho) == 1.0
        each = np.array([float(self._moment(exact, order, float(v), 1.0)) for v in variances])
        np.fill_diagonal(found, np.where(whole, each[which], np.diagonal(found)))
        return found


@lru_cache(maxsize=64)
def _equal(exact: sp.Lambda) -> sp.Lambda:
    """Return a closed form at equal variances."""
    return sp.Lambda((_q, _r), exact(_q, _q, _r))


@lru_cache(maxsize=64)
def _diagonal(exact: sp.Lambda) -> sp.Lambda:
    """Return a closed form at correlation 1, simplified for a positive variance."""
    q = sp.Dummy(positive=True)
    angles = sp.asin, sp.acos  # what multiplies a sum with an angle in it is multiplied out
    terms = [
        part
        for term in sp.Add.make_args(exact(q, q, sp.S.One))
        for part in sp.Add.make_args(sp.expand_mul(term, deep=False) if term.has(*angles) else term)
    ]
    return sp.Lambda(q, sp.Add(*(sp.factor(sp.simplify(part)) for part in terms)))


@lru_cache(maxsize=64)
def _compiled(exact: sp.Lambda) -> Callable[..., float]:
    return sp.lambdify(exact.variables, exact.expr, "math")


@lru_cache(maxsize=64)
def _compiled_arrays(exact: sp.Lambda) -> Callable[..., np.ndarray]:
    return sp.lambdify(exact.variables, exact.expr, "numpy")


@lru_cache(maxsize=256)
def _rule(panels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the normal density: Gauss-Legendre on panels up to RANGE."""
    base, weight = np.polynomial.legendre.leggauss(POINTS)
    width = 2 * RANGE / panels
    starts = -RANGE + width * np.arange(panels)
    nodes = (starts[:, None] + width * (base + 1) / 2).ravel()
    weights = np.tile(weight * width / 2, panels)
    return nodes, weights * np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi)


def _panels(q: float) -> int:
    r"""Return how many panels resolve a function of :math:`\sqrt q\,z`, in steps of 8; even."""
    return 8 * math.ceil(min(MOST, max(24.0, 8 * math.sqrt(q))) / 8)


@lru_cache(maxsize=4096)
def _second_moment(function: Activation, order: int, q: float) -> float:
    nodes, weights = _rule(_panels(q))
    return float(weights @ activation_function(function, order)(math.sqrt(q) * nodes) ** 2)


@lru_cache(maxsize=1024)
def _coefficients(function: Activation, order: int, q: float) -> np.ndarray:
    nodes, weights = _rule(_panels(q))
    weighted = weights * activation_function(function, order)(math.sqrt(q) * nodes)
    previous, current = np.zeros_like(nodes), np.ones_like(nodes)
    found = []
    for k in range(TERMS):  # normalised Hermite polynomials by their recurrence
        found.append(weighted @ current)
        previous, current = current, (nodes * current - math.sqrt(k) * previous) / math.sqrt(k + 1)
    return np.array(found)


@lru_cache(maxsize=4096)
def _mean(function: Activation, order: int, q: float) -> float:
    nodes, weights = _rule(_panels(q))
    return float(weights @ activation_function(function, order)(math.sqrt(q) * nodes))


@lru_cache(maxsize=4096)
def _remainder(function: Activation, order: int, q: float) -> float:
    """Return the sum of the squared coefficients beyond TERMS, by Parseval's identity."""
    squares = _coefficients(function, order, q) ** 2
    return max(0.0, _second_moment(function, order, q) - float(squares.sum()))


def _product_moment(function: Activation, order: int, p: float, q: float, rho: float) -> float:
    """Return the mean product at two variances: by the series where its remainder is small."""
    if rho == 0:
        return _mean(function, order, p) * _mean(function, order, q)
    left, right = (_coefficients(function, order, v) for v in (p, q))
    found = float((left * right) @ rho ** np.arange(TERMS))
    rest = math.sqrt(_remainder(function, order, p) * _remainder(function, order, q))
    if rest * abs(rho) ** TERMS <= ACCURATE * abs(found):
        return found
    return _quadrature(function, order, p, q, rho)


@lru_cache(maxsize=4096)
def _quadrature(function: Activation, order: int, p: float, q: float, rho: float) -> float:
    """Return the mean product by the rule for two variables, some rows at a time."""
    nodes, weights = _rule(_panels(max(p, q)))
    value = activation_function(function, order)
    other = math.sqrt(max(0.0, 1 - rho**2)) * nodes
    total = 0.0
    for rows in np.array_split(np.arange(len(nodes)), max(1, len(nodes) // 256)):
        inner = value(math.sqrt(q) * (rho * nodes[rows, None] + other)) @ weights
        total += float((weights[rows] * value(math.sqrt(p) * nodes[rows])) @ inner)
    return total


def _relu() -> DualKernel:
    angle = sp.pi - sp.acos(_r)
    return DualKernel(
        activation("relu"),
        sp.Lambda((_p, _q, _r), sp.sqrt(_p * _q) / (2 * sp.pi) * (sp.sqrt(1 - _r**2) + _r * angle)),
        sp.Lambda((_p, _q, _r), angle / (2 * sp.pi)),
        "Cho and Saul, Kernel Methods for Deep Learning, NIPS 2009, section 2, n = 0, 1",
    )


def _gelu() -> DualKernel:
    r"""Kernels of :math:`\phi(t) = t\,\Phi(t)`, by Stein's identity.

    With :math:`D = \det(I + \Sigma) = (1+p)(1+q) - pq\rho^2`: weighting by a normal density is
    conditioning on a noisy zero, which gives the expectations below.
    """
    c = sp.sqrt(_p * _q) * _r
    det = (1 + _p) * (1 + _q) - c**2
    both = sp.Rational(1, 4) + sp.asin(c / sp.sqrt((1 + _p) * (1 + _q))) / (2 * sp.pi)
    left = _q - c**2 / (1 + _p)  # the variance of b given a noisy a
    ours = left / (2 * sp.pi * sp.sqrt(det))  # E density(a) b Phi(b)
    theirs = c / (1 + _q) / (2 * sp.pi * sp.sqrt(det))  # E Phi(a) b density(b)
    turned = c / (1 + _p) / (2 * sp.pi * sp.sqrt(det))  # E a density(a) Phi(b)
    twice = c / (2 * sp.pi * det ** sp.Rational(3, 2))  # E a b density(a) density(b)
    return DualKernel(
        activation("gelu"),
        sp.Lambda((_p, _q, _r), _p * ours + c * (both + theirs)),
        sp.Lambda((_p, _q, _r), both + theirs + turned + twice),
        "own, by Stein's identity; second moments as in Kedia et al., 2024, arXiv:2403.09635",
    )


def _relu2() -> DualKernel:
    sine, angle = sp.sqrt(1 - _r**2), sp.pi - sp.acos(_r)
    second = 3 * sine * _r + angle * (1 + 2 * _r**2)
    return DualKernel(
        activation("relu2"),
        sp.Lambda((_p, _q, _r), _p * _q / (2 * sp.pi) * second),
        sp.Lambda((_p, _q, _r), 2 * sp.sqrt(_p * _q) / sp.pi * (sine + angle * _r)),
        "Cho and Saul, Kernel Methods for Deep Learning, NIPS 2009, section 2, n = 1, 2",
    )


_EXACT: dict[str, Callable[[], DualKernel]] = {"relu": _relu, "gelu": _gelu, "relu2": _relu2}


@lru_cache(maxsize=32)
def dual_kernel(name: str | Activation) -> DualKernel:
    """Return the moments of an activation.

    Parameters
    ----------
    name : str or Activation
        One of `derive.blocks.activations.ACTIVATIONS`.

    Raises
    ------
    UnknownNameError
        If the activation is not known.
    UnknownNodeError
        If it is abstract.
    """
    function = activation(name)
    if function.name in _EXACT and function == activation(function.name):
        return _EXACT[function.name]()
    if len(function.args) < 2:
        raise UnknownNodeError(
            f"activation: {function.name} is abstract; its moments have no values"
        )
    return DualKernel(function)
