"""Gaussian moments of activations, against integrals by other means."""

import math

import numpy as np
import pytest
import sympy as sp
from scipy.integrate import quad
from scipy.special import expit, ndtr

from derive.errors import DomainError, UnknownNodeError
from derive.laws.gaussian import DualKernel, dual_kernel

FUNCTIONS = {
    "relu": (lambda t: max(t, 0.0), lambda t: float(t > 0)),
    "relu2": (lambda t: max(t, 0.0) ** 2, lambda t: 2 * max(t, 0.0)),
    "gelu": (lambda t: t * phi(t), lambda t: phi(t) + t * density(t)),
    "silu": (lambda t: t * logistic(t), lambda t: logistic(t) * (1 + t * logistic(-t))),
    "tanh": (math.tanh, lambda t: 1 - math.tanh(t) ** 2),
}

ARRAYS = {
    "relu": (lambda t: np.maximum(t, 0), lambda t: (t > 0) * 1.0),
    "relu2": (lambda t: np.maximum(t, 0) ** 2, lambda t: 2 * np.maximum(t, 0)),
    "gelu": (lambda t: t * ndtr(t), lambda t: ndtr(t) + t * np.exp(-t * t / 2) / ROOT),
    "silu": (lambda t: t * expit(t), lambda t: expit(t) * (1 + t * expit(-t))),
    "tanh": (np.tanh, lambda t: 1 - np.tanh(t) ** 2),
}
ROOT = math.sqrt(2 * math.pi)


def density(t):
    return math.exp(-t * t / 2) / math.sqrt(2 * math.pi)


def phi(t):
    return math.erfc(-t / math.sqrt(2)) / 2


def logistic(t):
    return 1 / (1 + math.exp(-t))


def by_quadrature(function, q, rho):
    """E f(a) f(b): an adaptive integral over a, of one over b given a."""
    root, rest = math.sqrt(q), math.sqrt(1 - rho**2)

    def inner(z):
        cut = min(9.0, max(-9.0, -rho * z / rest))  # where b changes its sign
        return sum(
            quad(lambda w: function(root * (rho * z + rest * w)) * density(w), *part, epsabs=1e-12)[
                0
            ]
            for part in ((-9.0, cut), (cut, 9.0))
        )

    def outer(z):
        return function(root * z) * (function(root * z) if rho == 1 else inner(z)) * density(z)

    return sum(quad(outer, *part, epsabs=1e-11)[0] for part in ((-9.0, 0.0), (0.0, 9.0)))


@pytest.mark.parametrize(("q", "rho"), [(0.3, 1), (2.0, 1), (1.5, 0.6), (0.7, -0.4), (1.0, 0)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_moments_are_the_integrals(name, q, rho):
    kernel = dual_kernel(name)
    value, slope = (by_quadrature(f, q, rho) for f in FUNCTIONS[name])
    assert kernel.value(q, rho) == pytest.approx(value, rel=1e-9, abs=1e-10)
    assert kernel.slope(q, rho) == pytest.approx(slope, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("name", ["gelu", "relu", "relu2"])
def test_second_moments_in_closed_form_are_exact(name):
    """SymPy's own integral where it finds one, at q = 1."""
    t = sp.Symbol("t", real=True)
    kernel = dual_kernel(name)
    known = {
        "relu": (sp.Rational(1, 2), sp.Rational(1, 2)),
        "relu2": (sp.Rational(3, 2), sp.Integer(2)),
        "gelu": (
            sp.Rational(1, 3) + sp.sqrt(3) / (6 * sp.pi),
            sp.Rational(1, 3) + 2 * sp.sqrt(3) / (9 * sp.pi),
        ),
    }
    found = [sp.simplify(m(sp.S.One, sp.S.One)) for m in (kernel.value, kernel.slope)]
    assert [sp.simplify(a - b) for a, b in zip(found, known[name], strict=True)] == [0, 0]
    if name != "gelu":
        power = 1 if name == "relu" else 2
        density = sp.exp(-(t**2) / 2) / sp.sqrt(2 * sp.pi)
        assert sp.integrate(t ** (2 * power) * density, (t, 0, sp.oo)) == found[0]


@pytest.mark.parametrize("q", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("rho", [-0.7, 0.0, 0.5, 0.95])
def test_the_hermite_series_meets_the_closed_form(q, rho):
    exact = dual_kernel("gelu")
    series = DualKernel(exact.activation)
    assert series.value(q, rho) == pytest.approx(exact.value(q, rho), rel=1e-10, abs=1e-12)
    assert series.slope(q, rho) == pytest.approx(exact.slope(q, rho), rel=1e-10, abs=1e-12)


def test_ratios_of_slope_to_value_at_unit_variance():
    """kappa = b/f: the exponent of the gradient in the growth of the variance."""
    kappa = {n: dual_kernel(n).slope(1.0) / dual_kernel(n).value(1.0) for n in FUNCTIONS}
    assert kappa["relu"] == pytest.approx(1.0, abs=1e-14)
    for name, expected in (("gelu", 1.072032), ("silu", 1.066634), ("tanh", 1.177807)):
        assert kappa[name] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tokens_of_different_variance_have_the_moments_of_their_pairs(name):
    """The n x n matrix against a fine trapezoid rule in the plane."""
    q, rho = np.array([0.3, 2.0, 0.3]), np.array([[1, 0.6, -0.4], [0.6, 1, 0.1], [-0.4, 0.1, 1.0]])
    z = np.linspace(-8.5, 8.5, 1001)
    weight = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    for order, moment in enumerate((dual_kernel(name).value, dual_kernel(name).slope)):
        found = moment(q, rho)
        assert np.allclose(found, found.T, atol=1e-14)
        function = ARRAYS[name][order]
        for i in range(3):
            for j in range(i, 3):
                a = np.sqrt(q[i]) * z[:, None]
                b = np.sqrt(q[j]) * (rho[i, j] * z[:, None] + np.sqrt(1 - rho[i, j] ** 2) * z)
                want = weight @ (function(a) * function(b)) @ weight
                # a kink or step costs the rule a share of its spacing; a smooth function nothing
                assert found[i, j] == pytest.approx(want, abs=4e-3 if "relu" in name else 1e-9)
        swapped = moment(q[[1, 0, 2]], rho)
        assert np.max(np.abs(swapped - found)) > (1e-2 if (name, order) != ("relu", 1) else -1)


def test_what_has_no_moments():
    with pytest.raises(DomainError, match="q, rho: expected q >= 0"):
        dual_kernel("relu").value(-1.0)
    with pytest.raises(DomainError, match="rho"):
        dual_kernel("silu").value(1.0, 1.5)
    with pytest.raises(DomainError, match="q, rho: expected q >= 0 and"):
        dual_kernel("relu").value(np.array([1.0, -1.0]), np.eye(2))
    with pytest.raises(UnknownNodeError, match="silu: its Gaussian moments have no closed form"):
        dual_kernel("silu").value(sp.Symbol("v"))
    with pytest.raises(UnknownNodeError, match="phi is abstract"):
        dual_kernel("phi")


def test_monte_carlo_agrees_and_rejects():
    rng = np.random.default_rng(0)
    a, z = rng.normal(size=(2, 400_000))
    b = 0.5 * a + np.sqrt(0.75) * z
    products = np.maximum(a, 0) * np.maximum(b, 0)
    spread = 4 * products.std() / np.sqrt(products.size)
    assert abs(products.mean() - dual_kernel("relu").value(1.0, 0.5)) < spread
    assert abs(products.mean() - dual_kernel("relu").value(1.0, 0.45)) > spread


@pytest.mark.parametrize("q", [0.5, 4.0, 64.0, 400.0])
@pytest.mark.parametrize("rho", [-0.6, 0.3, 0.99, 0.9999])
def test_steep_functions_are_resolved(q, rho):
    """Tanh of large pre-activations by adaptive quadrature of an integral over the angle.

    E tanh(a) tanh(b) has derivative q E tanh'(a) tanh'(b) in rho (Price), which ties value and
    slope; the value itself is compared with the trapezoidal rule on a fine grid.
    """
    kernel = dual_kernel("tanh")
    z, step = np.linspace(-9, 9, 6001, retstep=True)
    density = step * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    total = 0.0
    for a, w in zip(z[::4], 4 * density[::4], strict=True):
        inner = np.tanh(math.sqrt(q) * (rho * a + math.sqrt(1 - rho**2) * z)) @ density
        total += w * math.tanh(math.sqrt(q) * a) * inner
    assert kernel.value(q, rho) == pytest.approx(total, rel=1e-8)
    wide = 1e-5 if abs(rho) < 0.99 else 1e-7
    ahead, behind = (kernel.value(q, rho + sign * wide) for sign in (1, -1))
    assert q * kernel.slope(q, rho) == pytest.approx((ahead - behind) / (2 * wide), rel=1e-5)
