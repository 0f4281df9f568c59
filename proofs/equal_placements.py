r"""Placements that no test can tell apart: one Jacobian, in other weights or another eps.

Each claim equates the Jacobians of two blocks at every input; on one side the weights are those of
the other, multiplied as the claim says. What does differ within a pair is how training moves the
weights, which is no statement about the function.

The pair N(alpha x + F(x)) and N(x + F(x)/alpha) is in `proofs.norm_comparison`. `CLAIMS` are proved
for every d; `REJECTED` are pairs that look equal and are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

import derive
from derive.blocks.norms import L2Norm
from derive.calculus.atoms import Diag, Matrix, Ones, State, Vector
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply
from derive.symbols import alpha, beta, d, eps, f
from proofs.claim import Claim

__all__ = ["CLAIMS", "REJECTED"]

x = derive.state("x")
one = Ones(d)
gain, bias, lam = Vector("gain", d), Vector("bias", d), Vector("lam", d)
W_1, W_2 = Matrix("W_1", f, d), Matrix("W_2", d, f)
FFN = derive.FFN()


def _written_out(expr: sp.Basic) -> sp.Basic:
    """Replace every name by its definition and every concrete map by its output."""
    if isinstance(expr, Let | ScalarLet):
        return _written_out(expr.definition)
    if isinstance(expr, Apply) and expr.body is not None:
        return _written_out(expr.body.output)
    if not expr.args or isinstance(expr, State):
        return expr
    return expr.func(*[_written_out(a) if isinstance(a, sp.Expr) else a for a in expr.args])


def _jacobian(block: sp.Basic, weights: Mapping[sp.Basic, sp.Basic] | None = None) -> sp.Basic:
    """Return the Jacobian, written out, its weights replaced."""
    return _written_out(derive.jacobian(block, x)).xreplace(dict(weights or {}))


def _placed(
    equation: str,
    weights: Mapping[sp.Basic, sp.Basic] | None = None,
    sublayer: Any = "abstract",
) -> sp.Basic:
    """Return the Jacobian of a placement, written out, its weights replaced."""
    return _jacobian(derive.block(equation, sublayer_=sublayer, x=x), weights)


def _merged_gain() -> tuple[sp.Basic, sp.Basic]:
    """F(N(x)) with a gain, and with W_1 diag(gain) and W_1 bias in the first linear map."""
    bare = derive.LayerNorm(gain=False, bias=False)
    moved = {
        W_1: W_1 * Diag(gain),
        Vector("b_1", f): Vector("b_1", f) + W_1 * bias,
    }
    return _jacobian(x + FFN(derive.LayerNorm()(x))), _jacobian(x + FFN(bare(x)), moved)


def _unit_norm(root: sp.Expr) -> tuple[sp.Basic, sp.Basic]:
    """RMSNorm with a gain and eps, and the L2 norm with sqrt(d) gain and this eps."""
    unit = L2Norm(eps=root, gain=True)
    return _jacobian(derive.RMSNorm()(x)), _jacobian(unit(x), {gain: sp.sqrt(d) * gain})


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "rezero-skipinit-fixup",
        "ReZero, SkipInit and Fixup are one equation; what differs is alpha at the start",
        lambda: (_placed("rezero"), _placed("fixup")),
        "own",
    ),
    Claim(
        "deepnorm-one",
        "DeepNorm with alpha = 1 is post-norm",
        lambda: (_placed("deepnorm", {alpha: sp.S.One}), _placed("post")),
        "own",
    ),
    Claim(
        "admin-constant",
        "Admin with omega = alpha 1 is DeepNorm",
        lambda: (_placed("admin", {Vector("omega", d): alpha * one}), _placed("deepnorm")),
        "own",
    ),
    Claim(
        "scaled-residual-one",
        "a residual scale of 1 is pre-norm",
        lambda: (_placed("scaled-residual", {alpha: sp.S.One}), _placed("pre")),
        "own",
    ),
    Claim(
        "layerscale-constant",
        "LayerScale with lam = alpha 1 is the residual scale alpha",
        lambda: (_placed("layerscale", {lam: alpha * one}), _placed("scaled-residual")),
        "own",
    ),
    Claim(
        "scaled-normed-residual-one",
        "MiniMax's placement with alpha = beta = 1 is the normed residual",
        lambda: (
            _placed("scaled-normed-residual", {alpha: sp.S.One, beta: sp.S.One}),
            _placed("normed-residual"),
        ),
        "own",
    ),
    Claim(
        "residual-scale-in-projection",
        "x + alpha F(N(x)) is x + F(N(x)) with alpha W_2 (and alpha b_2): FFN, any activation",
        lambda: (
            _placed("scaled-residual", sublayer=FFN),
            _placed("pre", {W_2: alpha * W_2}, FFN),
        ),
        "own",
    ),
    Claim(
        "layerscale-in-projection",
        "x + lam*F(N(x)) is x + F(N(x)) with diag(lam) W_2 (and lam*b_2): FFN, any activation",
        lambda: (_placed("layerscale", sublayer=FFN), _placed("pre", {W_2: Diag(lam) * W_2}, FFN)),
        "own",
    ),
    Claim(
        "residual-scale-in-gain",
        "x + alpha N(F(x)) is x + N(F(x)) with alpha gain (and alpha bias)",
        lambda: (
            _placed("x + alpha*N(F(x))"),
            _placed("res-post", {gain: alpha * gain}),
        ),
        "own",
    ),
    Claim(
        "lns-in-gain",
        "x + F(beta N(x)) is x + F(N(x)) with beta gain: LayerNorm Scaling is a choice of gains",
        lambda: (
            _placed("lns", sublayer=FFN),
            _placed("pre", {gain: beta * gain, bias: beta * bias}, FFN),
        ),
        "own",
    ),
    Claim(
        "pre-norm-gain-in-matrix",
        "the gain and bias of a pre-norm can be moved into the first linear map of the branch",
        _merged_gain,
        "own",
    ),
    Claim(
        "parallel-equal-gains",
        "parallel with two norms is parallel with one, where gains and biases are equal",
        lambda: (
            _placed(
                "parallel-two-norms",
                {
                    Vector("gain_2", d): Vector("gain_1", d),
                    Vector("bias_2", d): Vector("bias_1", d),
                },
            ),
            _placed("parallel"),
        ),
        "own",
    ),
    Claim(
        "rmsnorm-is-l2norm",
        "RMSNorm with gain and eps is division by sqrt(|x|^2 + d eps) with sqrt(d) gain",
        lambda: _unit_norm(d * eps),
        "own",
    ),
)

REJECTED: tuple[Claim, ...] = (
    Claim(
        "rmsnorm-is-l2norm-one-eps",
        "RMSNorm with gain and eps is division by sqrt(|x|^2 + eps) with sqrt(d) gain",
        lambda: _unit_norm(eps),
        "in circulation, with eps dropped",
    ),
    Claim(
        "normed-residual-is-pre",
        "the normed residual N(x) + F(N(x)) is pre-norm, since the norm comes first",
        lambda: (_placed("normed-residual"), _placed("pre")),
        "in circulation",
    ),
    Claim(
        "sandwich-gain-is-pre",
        "the second norm of the sandwich placement can be absorbed into the branch",
        lambda: (
            _placed("sandwich", sublayer=FFN),
            _placed("pre", {W_2: Diag(Vector("gain_2", d)) * W_2}, FFN),
        ),
        "own",
    ),
    Claim(
        "post-is-res-post",
        "N(x + F(x)) and x + N(F(x)) differ only in a constant",
        lambda: (_placed("post"), _placed("res-post")),
        "own",
    ),
)
