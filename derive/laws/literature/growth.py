r"""Kim et al., 2025 (Peri-LN) and Sun et al., 2025 (LayerNorm Scaling): growth of the stream."""

from __future__ import annotations

import math

from derive.laws.law import DepthLaw
from derive.laws.literature.entry import Comparison, Published, between, equals

__all__ = ["GROWTH"]


def _exponent(law: DepthLaw, layers: int) -> float:
    """Return the exponent of v_L in L, from L to 2L."""
    low, high = (law.predict(n).growth for n in (layers, 2 * layers))
    return math.log2(high / low)


def _peri(layers: int, placement: str) -> tuple[Comparison, ...]:
    rows = []
    for init in ("lecun", "he", "gpt2"):
        found = DepthLaw(placement, init=init).predict(layers)
        rows.append(equals(f"v_L/v_0, init {init}", 1 + layers, found.growth))
    ratio = DepthLaw(placement).predict(layers).gradient_ratio
    return (*rows, equals("E|g_0|^2/E|g_L|^2", 1 + layers, ratio))


def _pre_exponential(layers: int, placement: str) -> tuple[Comparison, ...]:
    law = DepthLaw(placement)
    low, high = (law.predict(n).growth for n in (layers, 2 * layers))
    rate = math.log(high / low) / layers
    return (between("growth rate ln(v_2L/v_L)/L at the start of training", 0.1, math.inf, rate),)


def _lemma_3_2(layers: int, placement: str) -> tuple[Comparison, ...]:
    found = _exponent(DepthLaw(placement), layers)
    return (between("exponent of v_L in L", 0.99, math.inf, found),)


def _lns(layers: int, placement: str) -> tuple[Comparison, ...]:
    law = DepthLaw(placement)
    low, high = (law.predict(n).growth for n in (layers, 2 * layers))
    harmonic = sum(1 / k for k in range(1, layers + 1))
    return (
        between("exponent of v_L in L, at least 1", 0.99, math.inf, math.log2(high / low)),
        between("exponent of v_L in L, below 2", -math.inf, 2.0, math.log2(high / low)),
        equals("v_L = 1 + H_L/2 (own)", 1 + harmonic / 2, low),
    )


def _log_product(law: DepthLaw, layers: int, a: float, b: float) -> float:
    r"""Return :math:`\ln\prod_l(1 + A/\sigma_l + B/\sigma_l^2)` at the law's :math:`\sigma_l`."""
    forward = law.predict(layers).forward
    return sum(math.log1p(a / math.sqrt(m.v) + b / m.v) for m in forward[:-1])


def _step_11(layers: int, a: float, b: float, placement: str) -> tuple[Comparison, ...]:
    law = DepthLaw(placement, init="he")  # v_l = 1 + 2l: sigma_l^2 grows as l
    rows = []
    for what, first in (("A, B", a), ("A = 0, B", 0.0)):
        low, high = (_log_product(law, n, first, b) for n in (layers, 2 * layers))
        rows.append(
            between(f"exponent of the bound in L, {what}", -math.inf, 1.05,
                    (high - low) / math.log(2))
        )  # fmt: skip
    return tuple(rows)


def _step_10(layers: int, a: float, b: float) -> tuple[Comparison, ...]:
    law = DepthLaw("no-norm")  # v_l = (3/2)^l
    low, high = (_log_product(law, n, a, b) for n in (layers, 2 * layers))
    return (between("growth of ln(bound) from L to 2L", 0.0, 1e-3, high - low),)


GROWTH = (
    Published(
        "peri-linear",
        "peri",
        "section 3, growth of the variance",
        "second-hand",
        "peri-norm: the variance grows linearly, whatever the weights",
        _peri,
        {"layers": 48, "placement": "sandwich"},
        "the norm behind the branch makes it add exactly 1 a block; for relu the gradient ratio is "
        "v_L/v_0 as well",
    ),
    Published(
        "peri-pre-exponential",
        "peri",
        "section 3, on Pre-LN",
        "second-hand",
        "pre-norm: the variance grows exponentially with depth",
        _pre_exponential,
        {"layers": 48, "placement": "pre"},
        "not at the start of training, and never at bounded weights: a normed branch is bounded, "
        "so that |x_L| grows at most linearly; it takes weights that grow with depth",
    ),
    Published(
        "curse-lemma-3.2",
        "curse",
        "Lemma 3.2",
        "text",
        "pre-norm: Theta(L) <= sigma_L^2 <= Theta(exp L)",
        _lemma_3_2,
        {"layers": 192, "placement": "pre"},
        "at the start of training it is the lower end, 1 + L/2",
    ),
    Published(
        "curse-step-10",
        "curse",
        "equation (10)",
        "text",
        "if sigma_l^2 grows exponentially, prod(1 + A/sigma_l + B/sigma_l^2) stays bounded",
        _step_10,
        {"layers": 96, "a": 1.0, "b": 1.0},
        "the sum of A/sigma_l converges; here sigma_l^2 = (3/2)^l, of a stack without norms",
    ),
    Published(
        "curse-step-11",
        "curse",
        "from (9) to (11)",
        "text",
        "if sigma_l^2 grows linearly, prod(1 + A/sigma_l + B/sigma_l^2) <= Theta(L)",
        _step_11,
        {"layers": 256, "a": 1.0, "b": 1.0, "placement": "pre"},
        "the sum of A/sqrt(l) is 2 A sqrt(L), so that the product is exp(2 A sqrt(L)) and beyond "
        "every power; at A = 0, as for random branches of mean zero, it is a power of L",
    ),
    Published(
        "curse-lns",
        "curse",
        "Lemma 4.1",
        "text",
        "LayerNorm Scaling: Theta(L) <= sigma_L^2 <= Theta(L^(2-e))",
        _lns,
        {"layers": 192, "placement": "lns"},
        "the upper bound holds; with independent branches the sum of 1/l is ln L, below every "
        "power, so that the lower bound does not hold at the start of training",
    ),
)
