"""LayerNorm or RMSNorm: no difference in the depth laws, three in the exact algebra."""

from __future__ import annotations

from typing import Any

import sympy as sp

import derive
from derive.calculus.atoms import Diag, Inner, Reciprocal
from derive.proof import Gaussian, Identity, Step, Theorem, Verdict
from derive.symbols import L, d
from proofs.bibliography import INTERVIEW, ZHANG
from proofs.depth._shared import WIDE
from proofs.documents._shared import law
from proofs.norms.layernorm_is_centred_rmsnorm import theorem as layernorm_is_centred_rmsnorm
from proofs.setting import bias, block_jacobian, c, gain, one, s, x

__all__ = ["theorem"]


def _written(y: Any) -> sp.Basic:
    return y.body.output


theorem = Theorem(
    id="interview-question-layernorm-rmsnorm",
    area="documents",
    title="Question: LayerNorm or RMSNorm",
    statement=(
        "Asked: does the norm function, LayerNorm or RMSNorm, interact with "
        "the placement? Answer: not in the depth laws at the start of "
        "training; exactly, in what a block keeps and loses, and in that pre-norm "
        "can do without mean subtraction by a change of weights that does not serve "
        "post-norm."
    ),
    verdict=Verdict.PROVED,
    uses=(layernorm_is_centred_rmsnorm,),
    steps=(
        Step(
            "The law of post-norm is the same with RMSNorm.",
            "both set the mean square to 1 in wide layers",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("post", norm="rmsnorm"),
                instead=law("pre", norm="rmsnorm"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "So is pre-norm's.",
            "the same",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1 + L / 2),
                of=law("pre", norm="rmsnorm"),
                instead=law("post", norm="rmsnorm"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            (
                r"Post-norm with LayerNorm loses a direction at every $\epsilon$: "
                r"$\gamma^{-\top}J = 0$. With RMSNorm this is false."
            ),
            "deviations sum to zero",
            Identity(
                claim=lambda J: (one.T * Diag(Reciprocal(gain)) * J, sp.ZeroMatrix(1, d)),
                of=block_jacobian("post"),
                instead=block_jacobian("post", "rmsnorm"),
            ),
        ),
        Step(
            (
                r"Pre-norm with LayerNorm passes $\mathbf 1$ on at every $\epsilon$: "
                r"$J\mathbf 1 = \mathbf 1$. With RMSNorm this is false."
            ),
            "the norm does not see a shift",
            Identity(
                claim=lambda J: (J * one, one),
                of=block_jacobian("pre"),
                instead=block_jacobian("pre", "rmsnorm"),
            ),
        ),
        Step(
            (
                "LayerNorm is RMSNorm of the deviations, without the bias: a pre-norm "
                "stream whose branches have mean zero needs no LayerNorm."
            ),
            "definition of the variance",
            Identity(
                claim=lambda y: (y, Diag(gain) * c / s),
                of=lambda: _written(derive.RMSNorm()(c)),
                instead=lambda: _written(derive.RMSNorm()(x)),
            ),
        ),
        Step(
            (
                "Behind post-norm the stream has the mean of gain and bias, not zero: "
                r"$\mathbf 1^\top y = \gamma^\top\hat x + \mathbf 1^\top\beta$; the "
                "same change of weights does not do."
            ),
            "the gain acts after the mean is removed",
            Identity(
                claim=lambda y: (Inner(one, y.body.output), Inner(gain, c) / s + Inner(one, bias)),
                of=lambda: derive.LayerNorm()(x),
                instead=lambda: derive.LayerNorm(gain=False)(x),
            ),
        ),
    ),
    sources=(
        INTERVIEW("second follow-up question", seen="text"),
        ZHANG("", seen="memory"),
    ),
    assumptions=(WIDE,),
    remark=(
        "Supported: installed models have every combination, RMSNorm pre "
        "(Llama, T5), LayerNorm post (BERT), RMSNorm on the residual "
        "(MiniMax). Open: whether trained quality differs; nothing here "
        "measures it."
    ),
)
