r"""Rank collapse and the edge of chaos: correlation of tokens over depth.

Dong et al., 2021, Noci et al., 2022 and Cowsik et al., 2024. The formulas of the last were not
found; the exponents here are own, by the definitions that a third party's code gives:

.. math:: \lambda_a = \ln\frac{1-\rho'}{1-\rho}\Big|_{\rho\to1},\qquad
    \lambda_g = \ln\frac{\mathbb E|g_{l-1}|^2}{\mathbb E|g_l|^2}.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq

from derive.depth import placed_lyapunov_spectrum
from derive.errors import DomainError
from derive.laws.initial import Scheme
from derive.laws.law import DepthLaw
from derive.laws.literature.entry import Comparison, Published, between, equals

__all__ = ["TOKENS", "angle_exponent", "edge_of_chaos", "gradient_exponent", "layer_exponent"]


def _apart(law: DepthLaw, layers: int, correlation: float = 0.0) -> float:
    """Return 1 - rho at the output."""
    last = law.predict(layers, correlation=correlation).forward[-1]
    return float(1 - last.c / last.v)


def angle_exponent(law: DepthLaw, blocks: int = 1, start: float = 1.0) -> float:
    r"""Return :math:`\lambda_a`: by what the distance of nearly equal tokens grows, a logarithm.

    .. math:: 1 - \rho = \frac{v - c}v, \qquad
        \lambda_a = \ln G\Big|_{\rho = 1,\ \rho_g = -1/(n-1)} - \ln\frac{v'}v

    The difference of two tokens runs through the same Jacobians as a gradient whose sum over tokens
    is 0, which is that of correlation -1/(n - 1); mean squares of random Jacobians are the same
    forwards and backwards.

    Parameters
    ----------
    law : DepthLaw
        The law, of at least two tokens.
    blocks : int
        Blocks over which it is taken.
    start : float
        Mean square of the input.

    Raises
    ------
    DomainError
        If there is one token, or the tokens are equal after the blocks.

    Notes
    -----
    Source: own.
    """
    if law.tokens < 2:
        raise DomainError(f"tokens: expected at least 2, got {law.tokens}")
    balanced = -1 / (law.tokens - 1)
    found = law.predict(blocks, correlation=1.0, gradient_correlation=balanced, start=start)
    if found.gradient_ratio == 0:
        raise DomainError(f"law: expected tokens that stay apart, got {law.placement}")
    return math.log(found.gradient_ratio / found.growth)


def gradient_exponent(law: DepthLaw, start: float = 1.0, correlation: float = 0.0) -> float:
    r"""Return :math:`\lambda_g` of one block: the logarithm of its mean squared gradient gain."""
    return math.log(law.predict(1, start=start, gradient_correlation=correlation).gradient_ratio)


def _gaussian(width: float) -> Scheme:
    return Scheme("gaussian", lambda fan_in, fan_out: width**2 / fan_in, "std width/sqrt(fan-in)")


def layer_exponent(alpha: float, width: float, activation: str, tokens: int) -> float:
    r"""Return the angle exponent of a layer at equal tokens of mean square 1.

    Parameters
    ----------
    alpha : float
        Strength of both branches, of attention and of the feed-forward block.
    width : float
        Standard deviation of the feed-forward weights, times the root of their fan-in.
    activation : str
        The feed-forward sublayer.
    tokens : int
        n.
    """
    equation = "x + alpha*F(N(x))"
    scaled = {"alpha": alpha}
    attention = DepthLaw(equation, "rmsnorm", ("attention",), tokens=tokens, values=scaled)
    between_them = attention.predict(1, correlation=1.0).growth
    mlp = DepthLaw(equation, "rmsnorm", (activation,), _gaussian(width), tokens, scaled)
    return angle_exponent(attention) + angle_exponent(mlp, start=between_them)


def edge_of_chaos(
    alpha: float = 1.0, activation: str = "ffn:tanh", tokens: int = 16, most: float = 16.0
) -> float:
    r"""Return the scale of the feed-forward weights at which :math:`\lambda_a = 0`.

    Raises
    ------
    DomainError
        If tokens come together at every scale up to `most`.
    """
    if layer_exponent(alpha, most, activation, tokens) < 0:
        raise DomainError(f"activation: tokens come together at every scale with {activation}")
    return float(brentq(lambda width: layer_exponent(alpha, width, activation, tokens), 0.5, most))


def _collapse(tokens: int, layers: int, sublayer: str) -> tuple[Comparison, ...]:
    def law(equation: str) -> DepthLaw:
        return DepthLaw(equation, sublayers=(sublayer,), tokens=tokens)

    post, pre = law("post"), law("pre")
    stream = pre.predict(layers)
    kept = [_apart(one, 2 * layers) / _apart(one, layers) for one in (post, pre)]
    step = _apart(post, layers + 1) / _apart(post, layers)
    return (
        between("1 - rho after one block without skip", 0, 1e-12, _apart(law("F(x)"), 1)),
        between("the same with a norm behind", 0, 1e-12, _apart(law("N(F(x))"), 1)),
        equals("1 - rho with skip, 2L over L, post", 1.0, kept[0], 0.05),
        equals("1 - rho with skip, 2L over L, pre", 1.0, kept[1], 0.05),
        equals("its factor a block, post (own)", 0.5, step, 1e-2),
        equals("(1 - rho_L) v_L, pre (own)", 1.0, _apart(pre, layers) * stream.growth),
    )


def _residual_scale(layers: int, tokens: int, scaled: str, plain: str) -> tuple[Comparison, ...]:
    def law(equation: str, depth: int) -> DepthLaw:
        values = {"alpha": 1 / math.sqrt(depth)}
        return DepthLaw(equation, sublayers=("attention",), tokens=tokens, values=values)

    with_scale = [_apart(law(scaled, n), n) for n in (layers, 4 * layers)]
    return (
        between("1 - rho_L, branches scaled by 1/sqrt(L)", 0.1, 1, with_scale[1]),
        equals("the same, 4L over L", 1.0, with_scale[1] / with_scale[0], 0.02),
        between("1 - rho_L, not scaled", 0, 1e-3, _apart(law(plain, layers), layers)),
    )


def _without_mlp(tokens: int, sublayer: str) -> tuple[Comparison, ...]:
    rows = []
    for alpha in (0.1, 0.5, 1.0):
        law = DepthLaw(
            "x + alpha*F(N(x))", "rmsnorm", (sublayer,), tokens=tokens, values={"alpha": alpha}
        )
        found = angle_exponent(law)
        rows.append(between(f"angle exponent, alpha = {alpha}", -math.inf, -1e-3, found))
    return tuple(rows)


def _transition(activation: str, tokens: int) -> tuple[Comparison, ...]:
    low, high = (layer_exponent(1.0, width, activation, tokens) for width in (1.0, 4.0))
    rows = [
        between("angle exponent of a layer, weights of scale 1", -math.inf, 0, low),
        between("angle exponent of a layer, weights of scale 4", 0, math.inf, high),
    ]
    if low < 0 < high:
        edge = edge_of_chaos(1.0, activation, tokens)
        rows.append(between("scale at the edge (own)", 1, 4, edge))
    return tuple(rows)


def _both_vanish(tokens: int, layers: int, power: float) -> tuple[Comparison, ...]:
    law = DepthLaw(
        "x + alpha*F(N(x))",
        "rmsnorm",
        ("attention",),
        tokens=tokens,
        values={"alpha": layers**-power},
    )
    angle, gradient = angle_exponent(law), gradient_exponent(law, correlation=1.0)
    return (
        between("L times |angle exponent|", 0, 2, layers * abs(angle)),
        between("L times |gradient exponent|", 0, 2, layers * abs(gradient)),
    )


def _typical(width: int, layers: int, scaled: str, grown: str) -> tuple[Comparison, ...]:
    rows = []
    for placement, sublayer in ((scaled, "ffn:tanh"), (grown, "ffn:relu")):
        found = placed_lyapunov_spectrum(
            placement, layers, width=width, sublayer=sublayer, tokens=1, count=1
        )
        mean, batches = float(found.exponents[0]), found.batch_means[:, 0]
        error = float(batches.std(ddof=1)) / math.sqrt(len(batches))
        half = gradient_exponent(DepthLaw(placement, sublayers=(sublayer,))) / 2
        low, high = mean - 4 * error, mean + 4 * error + 1 / width
        rows.append(between(f"half the exponent, {placement}, {sublayer}", low, high, half))
    return tuple(rows)


def _same_exponent(activation: str, placement: str) -> tuple[Comparison, ...]:
    law = DepthLaw(placement, sublayers=(activation,), tokens=2)
    gain = gradient_exponent(law)
    return (equals("angle exponent over gradient exponent", 1.0, angle_exponent(law) / gain, 1e-2),)


TOKENS = (
    Published(
        "dong-collapse",
        "dong",
        "Theorem 2.2 and abstract",
        "part",
        "attention alone loses rank doubly exponentially with depth; skips stop the collapse",
        _collapse,
        {"tokens": 16, "layers": 12, "sublayer": "attention"},
        "without skip uniform attention collapses in one block, norm or not (the theorem bounds "
        "any attention from above). Skips slow it down rather than stop it: 1 - rho halves at "
        "every block of a post-norm stack of attention, and goes as 1/v_L in a pre-norm one",
    ),
    Published(
        "noci-residual-scale",
        "noci",
        "figure 1 and the theorem on depth scaling",
        "part",
        "branches scaled by 1/sqrt(L) keep tokens apart at any depth; without, tokens align",
        _residual_scale,
        {"layers": 24, "tokens": 32, "scaled": "x + alpha*F(x)", "plain": "x + F(x)"},
        "v - c does not change in a skip with uniform attention, and v_L stays bounded at "
        "1/sqrt(L): 1 - rho_L = (v_0 - c_0)/v_L has a limit",
    ),
    Published(
        "cowsik-collapse",
        "cowsik",
        "abstract",
        "part",
        "without MLP layers the tokens collapse to a line",
        _without_mlp,
        {"tokens": 16, "sublayer": "attention"},
        "the exponent is -ln(1 + alpha^2) at equal tokens (own), negative at every strength",
    ),
    Published(
        "cowsik-transition",
        "cowsik",
        "abstract; definitions by third-party code",
        "second-hand",
        "with MLP layers there is an order-chaos transition in the variance of their weights",
        _transition,
        {"activation": "ffn:tanh", "tokens": 16},
        "for tanh, at the scale that `edge_of_chaos` solves for. A bias-free relu block keeps "
        "the distance of nearly equal tokens to first order, so that relu has no chaotic side",
    ),
    Published(
        "cowsik-both-vanish",
        "cowsik",
        "abstract; third-party code",
        "second-hand",
        "both exponents have to vanish; they do for residual branches of strength 1/sqrt(L)",
        _both_vanish,
        {"tokens": 16, "layers": 100, "power": 0.5},
        "both are of order alpha^2 = 1/L a block, so that over L blocks they stay bounded: by 2, "
        "as the bound is put here",
    ),
    Published(
        "cowsik-exponents",
        "cowsik",
        "section on exponents; formulas not found",
        "second-hand",
        "angle and gradient exponent are told apart; asked here: whether they are one number",
        _same_exponent,
        {"activation": "ffn:gelu", "placement": "post"},
        "in a post-norm feed-forward block they are one number, ln((a^2 + b)/(a^2 + f)) for "
        "N(a x + F(x)) (own): tokens part at the rate at which gradients grow. Attention tells "
        "them apart, and so does the growth of the stream in pre-norm, by ln(v_l/v_(l-1))",
    ),
    Published(
        "cowsik-lyapunov",
        "cowsik",
        "abstract: the exponents are Lyapunov exponents",
        "part",
        "the gradient exponent is a Lyapunov exponent of the stack; measured, 4 standard errors "
        "and 1/d",
        _typical,
        {"width": 48, "layers": 800, "scaled": "post", "grown": "no-norm"},
        "half of ours bounds the largest Lyapunov exponent, a mean logarithm against the logarithm "
        "of a mean; the two differ by the spread, of order 1/d",
    ),
)
