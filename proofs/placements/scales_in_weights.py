r"""Scales and gains that other weights can take over: one function, other parameters.

A check of a layer against either member of a pair passes. What differs is how training moves the
weights, which is no statement about the function.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.atoms import Diag, Matrix, Vector
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import alpha, beta, d, f
from proofs.placements._shared import placed
from proofs.setting import bias, gain, written_out, x

__all__ = ["theorem"]

W_1, W_2, b_1 = Matrix("W_1", f, d), Matrix("W_2", d, f), Vector("b_1", f)
lam = Vector("lam", d)
FFN = derive.FFN()


def _bare(gains: dict[sp.Basic, sp.Basic]) -> sp.Basic:
    """Return x + F(N(x)) with a norm that has neither gain nor bias, weights replaced."""
    N = derive.LayerNorm(gain=False, bias=False)
    return written_out(derive.jacobian(x + FFN(N(x)), x)).xreplace(gains)


def _equal_gains(second: str) -> dict[sp.Basic, sp.Basic]:
    return {Vector(f"{kind}_2", d): Vector(f"{kind}_{second}", d) for kind in ("gain", "bias")}


theorem = Theorem(
    id="scales-in-weights",
    area="placements",
    title="Scales that other weights take over",
    statement=(
        "A residual scale and LayerScale can be moved into the last linear map of the branch, a "
        "scale before a branch norm into its gain, LayerNorm Scaling into gain and bias of the "
        "pre-norm, and these into the first linear map; parallel with two norms of equal gains is "
        "parallel with one."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"$x + \alpha F(N(x))$ is $x + F(N(x))$ with $\alpha W_2$, for any activation.",
            r"$F(z) = W_2\phi(W_1z + b_1) + b_2$",
            Identity(
                claim=lambda w: (
                    placed("scaled-residual", sublayer=FFN),
                    placed("pre", {W_2: w * W_2}, FFN),
                ),
                of=lambda: alpha,
                instead=lambda: beta,
            ),
        ),
        Step(
            r"$x + \lambda\odot F(N(x))$ is $x + F(N(x))$ with $\mathrm{diag}(\lambda)W_2$.",
            r"$F(z) = W_2\phi(W_1z + b_1) + b_2$",
            Identity(
                claim=lambda w: (
                    placed("layerscale", sublayer=FFN),
                    placed("pre", {W_2: Diag(w) * W_2}, FFN),
                ),
                of=lambda: lam,
                instead=lambda: gain,
            ),
        ),
        Step(
            r"$x + \alpha N(F(x))$ is $x + N(F(x))$ with $\alpha\gamma$.",
            "the gain is the last factor of a norm",
            Identity(
                claim=lambda w: (
                    placed("x + alpha*N(F(x))"),
                    placed("res-post", {gain: w * gain}),
                ),
                of=lambda: alpha,
                instead=lambda: beta,
            ),
        ),
        Step(
            r"$x + F(\beta N(x))$ is $x + F(N(x))$ with $\beta\gamma$ and $\beta$ times the bias: "
            "LayerNorm Scaling is a choice of gains.",
            "gain and bias are linear in the output of a norm",
            Identity(
                claim=lambda w: (
                    placed("lns", sublayer=FFN),
                    placed("pre", {gain: w * gain, bias: w * bias}, FFN),
                ),
                of=lambda: beta,
                instead=lambda: alpha,
            ),
        ),
        Step(
            r"The gain and bias of a pre-norm can be moved into $W_1\mathrm{diag}(\gamma)$ and "
            r"$b_1 + W_1\beta$.",
            r"$W_1(\gamma\odot\hat x + \beta) + b_1$",
            Identity(
                claim=lambda w: (
                    placed("pre", sublayer=FFN),
                    _bare({W_1: W_1 * Diag(w), b_1: b_1 + W_1 * bias}),
                ),
                of=lambda: gain,
                instead=lambda: lam,
            ),
        ),
        Step(
            "Parallel with two norms of equal gains and biases is parallel with one.",
            "the two norms have one input",
            Identity(
                claim=lambda second: (
                    placed("parallel-two-norms", _equal_gains(second)),
                    placed("parallel"),
                ),
                of=lambda: "1",
                instead=lambda: "3",
            ),
        ),
    ),
)
