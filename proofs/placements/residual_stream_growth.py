r"""How fast the residual stream can grow, and that a post-norm stream cannot.

pre:   |x_L| <= |x_0| + sum_l C_l,   C_l = sup |F_l(N(x))|, finite since N(x) is bounded
post:  |x_L| <= sqrt(d) max|g| + |b|, whatever came before
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.maps import Body
from derive.proof import AtMost, Bound, Induction, MaxAbs, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import L, d, eps
from proofs.bibliography import HANDBOOK
from proofs.norms.norm_output_length import theorem as norm_output_length
from proofs.placements._shared import W
from proofs.setting import F, bias, gain, x

__all__ = ["theorem"]

N = derive.LayerNorm()
limit = MaxAbs(gain) * sp.sqrt(d) + SpectralNorm(bias)
C, first = sp.symbols("C x_0", positive=True)


def _length(body: Body) -> list[AtMost]:
    """Return the fact |xhat| <= sqrt(d), by d - |xhat|^2 = d eps/s^2."""
    named = {q.name: q for q in body.lets}
    return [AtMost(SpectralNorm(named["xhat"]), sp.sqrt(d), d * eps / named["s"] ** 2, power=2)]


before, after = (N(u).body or Body((), u) for u in (x, x + F(x)))

theorem = Theorem(
    id="residual-stream-growth",
    area="placements",
    title="How fast the residual stream can grow",
    statement=(
        r"In a pre-norm stack $|x_L| \le |x_0| + \sum_l C_l$ with $C_l$ the largest length of the "
        r"branch, so at most linearly in $L$ for bounded weights; in a post-norm stack "
        r"$|x_L| \le \sqrt d\,\lVert\gamma\rVert_\infty + |\beta|$."
    ),
    verdict=Verdict.PROVED,
    uses=(norm_output_length,),
    steps=(
        Step(
            r"One pre-norm block: $|x + F(N(x))| \le |x| + |F(N(x))|$.",
            "triangle inequality",
            Bound(
                claim=lambda y: (SpectralNorm(y), SpectralNorm(x) + SpectralNorm(F(N(x)))),
                of=lambda: x + F(N(x)),
                instead=lambda: 3 * x + F(N(x)),
            ),
        ),
        Step(
            r"The branch is bounded: for $F(z) = Wz$ by $\lVert W\rVert_2(\sqrt d\,"
            r"\lVert\gamma\rVert_\infty + |\beta|)$, at every $x$.",
            "the output of a norm is bounded",
            Bound(
                claim=lambda y: (SpectralNorm(W * y), SpectralNorm(W) * limit),
                of=lambda: before.output,
                instead=lambda: 9 * before.output,
                facts=lambda _: _length(before),
            ),
        ),
        Step(
            r"With one bound $C$ for all branches, $|x_L| \le |x_0| + LC$.",
            "induction over the number of blocks",
            Induction(
                claim=lambda step: (first + L * C, first, lambda y, _: y + step),
                of=lambda: C,
                instead=lambda: 2 * C,
                name="b_L",
            ),
        ),
        Step(
            r"After a post-norm block, $|x_l| \le \sqrt d\,\lVert\gamma\rVert_\infty + |\beta|$.",
            "the output of a norm is bounded",
            Bound(
                claim=lambda y: (SpectralNorm(y), limit),
                of=lambda: after.output,
                instead=lambda: x + after.output,
                facts=lambda _: _length(after),
            ),
        ),
    ),
    sources=(HANDBOOK("on what post-norm prevents", seen="text"),),
    remark=(
        "A variance that grows exponentially with depth needs branch norms that grow with depth; "
        "at bounded weights the mean square grows at most quadratically."
    ),
)
