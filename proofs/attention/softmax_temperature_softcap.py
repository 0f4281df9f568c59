r"""A temperature divides the Jacobian of softmax, a softcap multiplies it by the cap's slope.

With scores z/T the Jacobian is (1/T) S; with scores c tanh(z/c) it is S diag(tanh'(z/c)), whose
norm is at most 1/2 still, since the slope of tanh is between 0 and 1.
"""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.atoms import Diag
from derive.calculus.pointwise import Pointwise
from derive.proof import Bound, Entries, Identity, Laplacian, SpectralNorm, Step, Theorem, Verdict
from proofs.attention._shared import jacobian, softmax, spread, z
from proofs.attention.softmax_jacobian_norm import theorem as softmax_norm

__all__ = ["theorem"]

T, cap = sp.symbols("T c", positive=True)
tanh = derive.activation("tanh")
capped = softmax(cap * tanh(z / cap))
slope = Pointwise(tanh, 1, z / cap)


theorem = Theorem(
    id="softmax-temperature-softcap",
    area="attention",
    title="Temperature and softcap in softmax's Jacobian",
    statement=(
        r"With scores $z/T$ the Jacobian of softmax is $\frac1T S$; with scores $c\tanh(z/c)$ it "
        r"is $S\,\mathrm{diag}(\tanh'(z/c))$, and its norm stays at most $\frac12$."
    ),
    verdict=Verdict.PROVED,
    uses=(softmax_norm,),
    steps=(
        Step(
            r"A temperature gives $\frac1T(\mathrm{diag}(p) - pp^\top)$ with the weights at $z/T$.",
            "chain rule",
            Identity(
                claim=lambda w: (jacobian(w, z), 1 / T * spread(softmax(z / T))),
                of=lambda: softmax(z / T),
                instead=lambda: softmax(z),
                seed=1,
            ),
        ),
        Step(
            r"A softcap multiplies from the right by $\mathrm{diag}(\tanh'(z/c))$.",
            "chain rule; the factors c cancel",
            Identity(
                claim=lambda w: (jacobian(w, z), spread(capped) * Diag(slope)),
                of=lambda: capped,
                instead=lambda: softmax(tanh(z / cap)),
            ),
        ),
        Step(
            r"The norm is at most $\frac12$.",
            r"$0 \le \tanh' \le 1$",
            Bound(
                claim=lambda w: (SpectralNorm(w * Diag(slope)), sp.S.Half),
                of=lambda: spread(capped),
                instead=lambda: 3 * spread(capped),
                facts=lambda w: [Laplacian(w, capped, sp.S.Half), Entries(slope, sp.S.One)],
            ),
        ),
    ),
)
