r"""DeepNorm's constants from two conditions, also .81 and .87, which are roots of 3.

(i) 2 K beta^2/alpha^2 = 1 for K sublayers keeps an update of the output below a constant;
(ii) alpha beta = 1/sqrt(2) is a choice. In an encoder-decoder model the encoder's updates pass M
cross-attentions, which multiplies (i) by M beta_d^2/alpha_d.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import sympy as sp

from derive.proof import Identity, Step, Theorem, Verdict
from proofs.bibliography import DEEPNET

__all__ = ["theorem"]

N, M = sp.symbols("N M", positive=True)
QUARTER, SIXTEENTH = sp.Rational(1, 4), sp.Rational(1, 16)
UNIT = N**QUARTER * M**SIXTEENTH


class Scales(NamedTuple):
    """The scale of a skip, the scale of weights, and how many sublayers there are."""

    alpha: sp.Expr
    beta: sp.Expr
    count: sp.Expr


ENCODER = Scales((2 * N) ** QUARTER, (8 * N) ** -QUARTER, 2 * N)
DECODER = Scales((2 * M) ** QUARTER, (8 * M) ** -QUARTER, 2 * M)
OF_TWO = Scales((3 * M) ** QUARTER, (12 * M) ** -QUARTER, 3 * M)
ENCODER_OF_TWO = Scales(
    3 ** (-3 * SIXTEENTH) * UNIT, 3 ** (3 * SIXTEENTH) / (sp.sqrt(2) * UNIT), 2 * N
)


def _bounded(s: Scales) -> tuple[sp.Expr, sp.Expr]:
    return 2 * s.count * s.beta**2, s.alpha**2


def _through_decoder(s: Scales) -> tuple[sp.Expr, sp.Expr]:
    passed = M * OF_TWO.beta**2 / OF_TWO.alpha
    return 2 * s.count * s.beta**2 * passed, s.alpha**2


def _chosen(s: Scales) -> tuple[sp.Expr, sp.Expr]:
    return s.alpha * s.beta, 1 / sp.sqrt(2)


NAMES = {
    _bounded: r"2K\beta^2",
    _through_decoder: r"2K\beta^2M\beta_d^2/\alpha_d",
    _chosen: r"\alpha\beta",
}


def _step(words: str, claim: Any, scales: Scales, instead: Scales) -> Step:
    check = Identity(claim=claim, of=lambda: scales, instead=lambda: instead, name=NAMES[claim])
    return Step(words, "powers of N and M cancel", check)


XAVIER = Scales(sp.S.One, sp.S.One, 2 * N)

theorem = Theorem(
    id="deepnorm-constants",
    area="depth",
    title="DeepNorm's constants follow from two conditions",
    statement=(
        r"The table of DeepNorm, $\alpha = (2N)^{1/4}, \beta = (8N)^{-1/4}$ for $N$ encoder "
        r"layers, the same with $M$ for a decoder, $(3M)^{1/4}, (12M)^{-1/4}$ for a decoder of "
        r"two, satisfies (i) $2K\beta^2 = \alpha^2$ for $K$ sublayers and (ii) $\alpha\beta = "
        r"2^{-1/2}$. In the encoder of two the same conditions give $\alpha = 3^{-3/16}"
        r"(N^4M)^{1/16}$ and $\beta = 2^{-1/2}\,3^{3/16}(N^4M)^{-1/16}$: $.8138$ and $.8688$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        _step("Encoder only: (i).", _bounded, ENCODER, XAVIER),
        _step("Encoder only: (ii).", _chosen, ENCODER, XAVIER),
        _step("Decoder only: (i).", _bounded, DECODER, XAVIER),
        _step("Decoder only: (ii).", _chosen, DECODER, XAVIER),
        _step("Decoder of two, with cross-attention K = 3 M: (i).", _bounded, OF_TWO, XAVIER),
        _step("Decoder of two: (ii).", _chosen, OF_TWO, XAVIER),
        _step(
            r"Encoder of two: (i) with the further factor $M\beta_d^2/\alpha_d$.",
            _through_decoder,
            ENCODER_OF_TWO,
            ENCODER,
        ),
        _step("Encoder of two: (ii).", _chosen, ENCODER_OF_TWO, XAVIER),
    ),
    sources=(DEEPNET("table of alpha and beta", seen="code"),),
    remark=(
        "(ii) is not implied by stability: every pair with (i) bounds the update alike. That (i) "
        "bounds an update is the paper's theorem, recalled here and not checked."
    ),
)
