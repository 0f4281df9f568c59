r"""The table of components: what each does to the moments of a signal and of a gradient.

Rows are computed: by `derive.laws.components` and the algebra of `derive.laws.moments` in symbols,
and, for the norms at finite width, from the moments of chi-square,

.. math:: \mathbb E\,\frac1{\chi^2_k} = \frac{\Gamma(k/2 - 1)}{2\,\Gamma(k/2)} = \frac1{k - 2}.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sympy as sp

from derive.blocks.build import sublayer
from derive.laws.components import backward, forward
from derive.laws.gaussian import dual_kernel
from derive.laws.initial import scheme
from derive.laws.moments import Moments
from derive.laws.setting import Setting
from derive.laws.solve import tidy
from derive.symbols import d, n

__all__ = ["ComponentFact", "component_facts", "norm_gradient"]

_v, _w = sp.symbols("v w", positive=True)
_c, _e = sp.symbols("c e", real=True)
_g, _b = sp.symbols("g b", positive=True)
_p, _s, _rho = sp.symbols("p s rho", positive=True)
_vg, _cg = sp.Symbol("v_g", positive=True), sp.Symbol("c_g", real=True)

SIGNAL, GRADIENT = Moments(_v, _c), Moments(_vg, _cg)


@dataclass(frozen=True)
class ComponentFact:
    """One component.

    Attributes
    ----------
    name : str
        What it is.
    forward, backward : tuple of expression, or None
        The next v and c, from v and c; the v_g and c_g behind it, from v_g and c_g at its output.
        None where a component has no such side, or c is not stated.
    exact : bool
        Whether it holds as it stands, under its assumption.
    assumption : str
        What is assumed.
    source : str
        Where it is from.
    """

    name: str
    forward: tuple[sp.Expr, ...] | None
    backward: tuple[sp.Expr, ...] | None
    exact: bool
    assumption: str
    source: str

    def latex(self) -> str:
        """Return both sides as LaTeX."""
        sides = (("v", "c"), self.forward), (("v_g", "c_g"), self.backward)
        return r",\quad ".join(
            f"{name} \\to {sp.latex(value)}"
            for names, side in sides
            if side is not None
            for name, value in zip(names, side, strict=False)
        )


def norm_gradient(removed: int, free: int) -> tuple[sp.Expr, sp.Expr]:
    r"""Return the share of a gradient that a norm keeps, and the mean of one over its square size.

    .. math:: \frac{\mathbb E|J^\top g|^2}{|g|^2} = \frac{d - k}{d}\,\frac1{s^2}, \qquad
        \mathbb E\frac1{s^2} = \mathbb E\frac{d}{\chi^2_{d-j}} = \frac{d}{d - j - 2}

    Parameters
    ----------
    removed : int
        Directions that its Jacobian maps to 0: LayerNorm 2, RMSNorm 1.
    free : int
        j, degrees of freedom that :math:`s^2` lacks: LayerNorm 1, RMSNorm 0.
    """
    half = sp.Symbol("k", positive=True)  # half the degrees of freedom
    inverse = sp.gammasimp(sp.gamma(half - 1) / (2 * sp.gamma(half)))
    return (d - removed) / d, sp.factor(d * inverse.subs(half, (d - free) / 2))


def component_facts() -> tuple[ComponentFact, ...]:
    """Return the table; gains g and widths are symbols, weights of a sublayer of variance 1/fan-in.

    ``b`` is the variance of a bias, ``p`` the rate of dropout, ``w, e`` the moments of a second
    signal, ``s`` a standard deviation, ``rho`` the correlation of the scores of two rows.
    """
    return tuple(_facts())


def _facts() -> Iterator[ComponentFact]:
    wide = "weights independent, of mean 0; wide layers, so that pre-activations are normal"
    linear = SIGNAL.times(_g, 1)
    own = "own, elementary"
    yield ComponentFact(
        "linear", linear, GRADIENT.times(_g, 1), True,
        "weights independent of the signal; g is fan-in times their variance, backwards fan-out",
        own,
    )  # fmt: skip
    yield ComponentFact(
        "bias", SIGNAL.plus(Moments(_b, _b)), tuple(GRADIENT), True,
        "drawn once for all tokens, with mean 0 and variance b", own,
    )  # fmt: skip
    yield ComponentFact(
        "dropout", SIGNAL.dropped(1 - _p), GRADIENT.dropped(1 - _p), True,
        "masks independent between tokens and of the signal, the same forwards and backwards",
        "own, elementary; as in Kedia et al., 2024, arXiv:2403.09635 (the authors' code was read)",
    )  # fmt: skip
    yield ComponentFact(
        "residual sum", SIGNAL.plus(Moments(_w, _e)), tuple(GRADIENT), True,
        "x + F with F of mean 0 given x; the gradient is passed to both", own,
    )  # fmt: skip
    yield ComponentFact(
        "embedding", (_s**2 + _b, sp.S.Zero), None, True,
        "token embeddings of standard deviation s plus positions of variance b; different tokens, "
        "independent positions", own,
    )  # fmt: skip
    yield from _activations()
    setting = Setting(scheme("lecun"), n, Moments(_v, _c), {})
    for name in ("ffn:relu", "attention"):
        mapping = sublayer(name)
        made = tuple(tidy(one) for one in forward(mapping, SIGNAL, setting))
        behind = tuple(tidy(one) for one in backward(mapping, GRADIENT, SIGNAL, setting))
        title = name if name != "attention" else "attention, uniform weights"
        yield ComponentFact(title, made, behind, False, wide, "own; see derive.laws.components")
    spread = sp.exp(_s**2)
    yield ComponentFact(
        "softmax weights", (spread / n, sp.exp(_rho * _s**2) / n), None, False,
        "v, c are the mean of sum_j P_ij^2 and sum_j P_ij P_kj; normal scores of variance s^2, n "
        "large; exact integrals for any n in derive.laws.softmax",
        "own; the first as in Kedia et al., 2024, arXiv:2403.09635",
    )  # fmt: skip
    for name, removed, free in (("layernorm", 2, 1), ("rmsnorm", 1, 0)):
        yield ComponentFact(
            name, (sp.S.One, _c / _v), (_vg / _v, _cg / _v), False,
            "d large, so that the mean square of a token is v (LayerNorm: of mean 0)", own,
        )  # fmt: skip
        kept, inverse = norm_gradient(removed, free)
        yield ComponentFact(
            f"{name}, finite d", (sp.S.One,), (kept * _vg * inverse / _v,), True,
            "a normal input with independent entries of variance v, eps = 0, and a gradient "
            "independent of it; not in a stack, where gradients know of the norm before", own,
        )  # fmt: skip


def _activations() -> Iterator[ComponentFact]:
    for name in ("relu", "gelu", "relu2"):
        kernel = dual_kernel(name)
        yield ComponentFact(
            f"{name} of normal entries",
            (kernel.value(_v), sp.simplify(kernel.value(_v, 0))),
            (tidy(kernel.slope(_v) * _vg),),
            True,
            "entries normal with mean 0 and variance v; c at independent tokens",
            kernel.source,
        )
