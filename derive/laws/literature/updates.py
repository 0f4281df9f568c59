r"""Liu et al., 2020 (Admin) and Wang et al., 2022 (DeepNet): what an update does to the output."""

from __future__ import annotations

import math
from functools import lru_cache

import sympy as sp

from derive.blocks.placements import PLACEMENTS
from derive.laws.initial import SCHEMES
from derive.laws.law import DepthLaw
from derive.laws.literature.entry import Comparison, Published, between, equals, rounds
from derive.laws.literature.shares import identity_path, shares
from derive.laws.update import update_amplification
from derive.symbols import L

__all__ = ["UPDATES", "deepnet_scales", "profile"]


@lru_cache(maxsize=512)
def profile(blocks: int, sublayer: str = "ffn:relu") -> tuple[float, ...]:
    r"""Return Admin's :math:`\omega_1..\omega_L`, as its code profiles them.

    .. math:: \omega_{i+1}^2 = \operatorname{Var}(\omega_ix_{i-1} + F_i(x_{i-1})),\qquad
        \omega_1 = 1

    with the variance composed from the block. Source: the authors' code,
    ``fairseq/modules/transformer_layer.py``, init type ``adaptive-profiling``.
    """
    if blocks == 1:
        return (1.0,)
    before = profile(blocks - 1, sublayer)
    law = DepthLaw("omega*x + F(x)", sublayers=(sublayer,), values={"omega": before[-1]})
    return (*before, math.sqrt(law.predict(1).growth))


def _omega(layers: int, placement: str) -> tuple[Comparison, ...]:
    weights = profile(layers)
    stream = DepthLaw(placement).predict(layers).forward
    branches = [share.output.v for share in shares(DepthLaw("post"), layers)]
    return (
        equals("last omega: root of 1 + the branches' sum",
               math.sqrt(1 + sum(branches[: layers - 1])), weights[-1]),
        equals("last omega: root of the mean square of a pre-norm stream",
               math.sqrt(float(stream[layers - 1].v)), weights[-1]),
        equals("last omega: root of the branches' sum alone",
               math.sqrt(sum(branches[: layers - 1])), weights[-1]),
    )  # fmt: skip


def _amplified(blocks: int, post: str, pre: str) -> tuple[Comparison, ...]:
    def grown(law: DepthLaw) -> tuple[float, float]:
        small, large = (law.predict(n) for n in (blocks, 2 * blocks))
        return update_amplification(small), update_amplification(large)

    linear, slow, admin = grown(DepthLaw(post)), grown(DepthLaw(pre)), grown(DepthLaw("admin"))
    doubled = 2 * math.log(2)  # 2 (H_{2N+2} - H_{N+2}) for large N
    return (
        equals("post: exponent in N", 1.0, math.log2(linear[1] / linear[0]), 1e-6),
        equals("pre: increment when N doubles, of 2 ln N", doubled, slow[1] - slow[0], 0.05),
        equals("Admin: the same increment", doubled, admin[1] - admin[0], 0.05),
    )


def deepnet_scales(kind: str) -> tuple[sp.Expr, sp.Expr]:
    r"""Return :math:`\alpha, \beta` in N (encoder layers) and M (decoder layers), derived.

    With K sublayers of scale :math:`\beta` behind :math:`\alpha`, an update moves the output by at
    most a constant if (i) :math:`2K\beta^2/\alpha^2 = 1`; (ii) :math:`\alpha\beta = 2^{-1/2}` is
    the paper's choice, which stability does not ask for. In an encoder-decoder model the encoder's
    updates reach the output through M cross-attentions, a further factor
    :math:`M\beta_d^2/\alpha_d` in (i).

    Parameters
    ----------
    kind : str
        ``encoder``, ``decoder``, ``encoder of two``, ``decoder of two``.
    """
    a = sp.Symbol("a", positive=True)
    N, M = sp.symbols("N M", positive=True)
    factor: sp.Expr = sp.S.One
    match kind:
        case "encoder":
            count = 2 * N
        case "decoder":
            count = 2 * M
        case "decoder of two":
            count = 3 * M
        case _:
            count = 2 * N
            alpha_d, beta_d = deepnet_scales("decoder of two")
            factor = M * beta_d**2 / alpha_d
    b = 1 / (sp.sqrt(2) * a)
    (alpha,) = sp.solve(sp.Eq(2 * count * b**2 / a**2 * factor, 1), a)
    alpha = sp.powsimp(sp.powdenest(alpha, force=True), force=True)
    return alpha, sp.powsimp(sp.powdenest(1 / (sp.sqrt(2) * alpha), force=True), force=True)


def _table(encoder: int, decoder: int) -> tuple[Comparison, ...]:
    N, M = sp.symbols("N M", positive=True)
    at = {N: encoder, M: decoder}
    printed = {
        "encoder": ((2 * N) ** 0.25, (8 * N) ** -0.25),
        "decoder": ((2 * M) ** 0.25, (8 * M) ** -0.25),
        "decoder of two": ((3 * M) ** 0.25, (12 * M) ** -0.25),
    }
    rows = [
        equals(f"{kind}: {name}", float(sp.sympify(want).subs(at)), float(have.subs(at)))
        for kind, pair in printed.items()
        for name, want, have in zip(("alpha", "beta"), pair, deepnet_scales(kind), strict=True)
    ]
    unit = (N**4 * M) ** sp.Rational(1, 16)
    alpha, beta = deepnet_scales("encoder of two")
    first, second = (float(sp.simplify(v).subs(at)) for v in (alpha / unit, beta * unit))
    return (
        *rows,
        rounds("encoder of two: alpha/(N^4 M)^(1/16)", "0.81", first),
        rounds("encoder of two: beta (N^4 M)^(1/16)", "0.87", second),
    )


def _torchscale(encoder: int, decoder: int) -> tuple[Comparison, ...]:
    N, M = sp.symbols("N M", positive=True)
    at = {N: encoder, M: decoder}
    beta = float(deepnet_scales("encoder of two")[1].subs(at))
    unit = (encoder**4 * decoder) ** (1 / 16)
    alone = float(deepnet_scales("encoder")[1].subs(at))
    return (
        equals("encoder alone: beta", (8 * encoder) ** -0.25, alone),
        equals("encoder of two: beta (N^4 M)^(1/16)", 1 / 1.15, beta * unit),
    )


def _catalogue(layers: int) -> tuple[Comparison, ...]:
    at = {L: 2 * layers}
    alpha = float(PLACEMENTS["deepnorm"].scalars["alpha"].subs(at))
    beta = float(SCHEMES["deepnorm"].value.subs(at))
    return (
        equals("alpha of the placement", (2 * layers) ** 0.25, alpha),
        equals("beta of the initialisation", (8 * layers) ** -0.25, beta),
    )


def _bounded(blocks: int, placement: str) -> tuple[Comparison, ...]:
    law = DepthLaw(placement, init="deepnorm")
    small, large = (update_amplification(law.predict(n)) for n in (blocks, 4 * blocks))
    return (
        between("amplification, 4N over N", 0, 1, large / small),
        between("weight of the identity path", 0.9, 1, identity_path(shares(law, 4 * blocks))),
    )


def _identity(blocks: int) -> tuple[Comparison, ...]:
    post = identity_path(shares(DepthLaw("post"), blocks))
    whole = DepthLaw("post").predict(blocks).gradient_ratio
    return (
        between("weight of post-norm's identity path", 0, 1e-6, post),
        between("post-norm's E|g_0|^2/E|g_L|^2", 0, 1e-6, whole),
    )


UPDATES = (
    Published(
        "admin-profile",
        "admin",
        "section 4; transformer_layer.py",
        "code",
        "omega_i is the root of the sum of the variances of the branches before",
        _omega,
        {"layers": 12, "placement": "pre"},
        "the authors' code starts at omega_1 = 1, so that the input's variance counts in the sum; "
        "then omega_i x has the mean square of a pre-norm stream",
    ),
    Published(
        "admin-amplification",
        "admin",
        "Theorem 2 and its corollaries",
        "second-hand",
        "a perturbation of the weights moves the output by O(N) in post-norm, by O(log N) in "
        "pre-norm and with Admin",
        _amplified,
        {"blocks": 48, "post": "post", "pre": "pre"},
        "for independent perturbations of relu blocks it is 2N/3, and 2 (H_(N+2) - 3/2) twice "
        "(own): Admin weighs its branches as pre-norm does",
    ),
    Published(
        "deepnet-table",
        "deepnet",
        "table of alpha and beta",
        "code",
        "alpha and beta for encoder-only, decoder-only and encoder-decoder models",
        _table,
        {"encoder": 12, "decoder": 6},
        "follows from 2K beta^2/alpha^2 = 1 and the choice alpha beta = 2^(-1/2): .81 and .87 are "
        "3^(-3/16) and 2^(-1/2) 3^(3/16)",
    ),
    Published(
        "deepnet-torchscale",
        "deepnet",
        "torchscale, architecture/encoder.py",
        "code",
        "beta is 1/(8N)^(1/4), and 1/1.15 of (N^4 M)^(-1/16) in the encoder of two",
        _torchscale,
        {"encoder": 12, "decoder": 6},
        "1/1.15 = .86957 stands for 2^(-1/2) 3^(3/16) = .86885: larger by 0.08 %",
    ),
    Published(
        "deepnet-catalogue",
        "deepnet",
        "table of alpha and beta, encoder-only",
        "code",
        "N layers have alpha = (2N)^(1/4), beta = (8N)^(-1/4)",
        _catalogue,
        {"layers": 12},
        "here L = 2N counts blocks: alpha = L^(1/4), beta = (4L)^(-1/4)",
    ),
    Published(
        "deepnet-bounded",
        "deepnet",
        "Theorem on the expected model update",
        "memory",
        "with these scales an update moves the output by a constant, whatever the depth",
        _bounded,
        {"blocks": 32, "placement": "deepnorm"},
        "the bound holds with room: for relu blocks the amplification falls as N^(-1/2) (own)",
    ),
    Published(
        "deepnet-vanishing",
        "deepnet",
        "introduction; as widely summarised",
        "second-hand",
        "post-norm's gradient vanishes with depth",
        _identity,
        {"blocks": 64},
        "only the identity path does; at the start of training an encoder's gradient has paths "
        "through every branch, and their sum keeps its mean square",
    ),
)
