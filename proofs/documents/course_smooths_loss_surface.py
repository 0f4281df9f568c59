"""Whether LayerNorm smooths the loss: its own Jacobian can do either."""

from __future__ import annotations

import sympy as sp

import derive
from derive.calculus.atoms import Inner, Vector
from derive.proof import (
    AtMost,
    Bound,
    Counterexample,
    MaxAbs,
    NormFact,
    SpectralNorm,
    Step,
    Theorem,
    Verdict,
)
from derive.symbols import d, eps
from proofs.bibliography import COURSE
from proofs.norms.layernorm_bound import theorem as layernorm_bound
from proofs.setting import derived, gain, norm, s, x

__all__ = ["theorem"]

_w = Vector("w", d)


theorem = Theorem(
    id="course-smooths-loss-surface",
    area="documents",
    title="A smoother loss surface",
    statement="Layer normalization smooths the loss surface.",
    verdict=Verdict.OPEN,
    steps=(
        Step(
            (
                "At an input with root $s$ the norm stretches by at most "
                r"$\lVert\gamma\rVert_\infty/s$: less than the identity where $s$ is "
                "large."
            ),
            "the Jacobian is diag(gain)/s times a contraction",
            Bound(
                claim=lambda D: (SpectralNorm(D.jacobian), MaxAbs(gain) / s),
                of=norm("layernorm"),
                instead=lambda: derive.derivation(derive.LayerNorm(eps=eps / 4)(x), x),
                facts=lambda D: [
                    NormFact(D.jacobian, MaxAbs(gain) / derived("s", D), "layernorm-bound"),
                    AtMost(1 / derived("s", D), 1 / s, sp.S.Zero, power=-2),
                ],
            ),
        ),
        Step(
            (
                "At an input whose features are equal it stretches by "
                r"$1/\sqrt\epsilon$, here 100."
            ),
            r"evaluation at $d = 2$, $x = (1, 1)$, $\epsilon = 10^{-4}$",
            Counterexample(
                claim=lambda D: (Inner(_w, D.jacobian * _w) / Inner(_w, _w), 1),
                of=norm("layernorm"),
                instead=lambda: derive.derivation(derive.LayerNorm(eps=1)(x), x),
                relation=">",
                stated=("100", "1"),
                at={"x": (1, 1), "w": (1, -1), "gain": (1, 1), "eps": "1/10000"},
            ),
        ),
    ),
    sources=(COURSE("introduction", seen="text"),),
    uses=(layernorm_bound,),
    remark=(
        "A loss surface is one of a training run over the weights; no theorem "
        "about LayerNorm is known to us that says it gets smoother. Proved is "
        "what the norm does to its own input."
    ),
)
