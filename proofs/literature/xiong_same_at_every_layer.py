r"""Pre-norm gradients are not the same at every layer, and not all divided by sqrt(L).

With a final norm the squared gradient of W_2 in layer l is proportional to 1/v_l = 2/(l + 2). The
first layers do not know how deep the stack is; only the last ones fall with its depth.
"""

from __future__ import annotations

import sympy as sp

from derive.proof import Counterexample, Gaussian, Step, Theorem, Verdict
from derive.symbols import L, d, l
from proofs.bibliography import XIONG
from proofs.depth._shared import WIDE
from proofs.depth.pre_norm_weight_gradients import theorem as weights
from proofs.literature.xiong_skip_factor import last_matrices

__all__ = ["theorem"]


def _normed(W: sp.Expr) -> sp.Expr:
    """Put the final norm behind: it divides by v_L."""
    return sp.cancel(W / (1 + L / 2))


theorem = Theorem(
    id="xiong-same-at-every-layer",
    area="literature",
    title="Pre-norm gradients are the same at every layer",
    statement=(
        r"In pre-norm the gradient norm is likely to stay the same for any layer, and the "
        r"gradients "
        r"of all parameters are normalised by $\sqrt L$."
    ),
    verdict=Verdict.REFUTED,
    assumptions=(WIDE,),
    uses=(weights,),
    steps=(
        Step(
            r"Behind a final norm $\mathbb E\lVert\partial\mathcal L/\partial W_{2,l}\rVert_F^2 = "
            r"\frac d{l+2}|g|^2$: $L$ does not occur.",
            r"$\frac d2/v_l$ with $v_l = 1 + l/2$",
            Gaussian(
                name=r"\mathbb{E}\lVert\partial\mathcal L/\partial W_2\rVert_F^2/|g|^2",
                claim=lambda W: (_normed(W), d / (l + 2)),
                of=last_matrices("pre"),
                instead=last_matrices("post"),
            ),
        ),
        Step(
            r"At 12 branches the first squared gradient is $14/3$ times the last.",
            r"$v_{12}/v_1$",
            Counterexample(
                claim=lambda W: (W.subs({l: 1, L: 12}) / W.subs({l: 12, L: 12}), sp.S.One),
                of=last_matrices("pre"),
                instead=last_matrices("post"),
                relation=">",
                stated=("4.6667", "1"),
            ),
        ),
        Step(
            r"From 12 to 48 branches the first layer's gradient does not change; $\sqrt L$ would "
            "halve it.",
            "exact arithmetic",
            Counterexample(
                claim=lambda W: (
                    _normed(W).subs({l: 1, L: 48}) / _normed(W).subs({l: 1, L: 12}),
                    sp.Rational(1, 4),
                ),
                of=last_matrices("pre"),
                instead=last_matrices("post"),
                relation=">",
                stated=("1", "0.250"),
            ),
        ),
    ),
    sources=(XIONG("section 3.3 and appendix F", seen="text"),),
    holds_when="only layers near the output are compared, over stacks of different depth.",
    fails_when=r"all layers are compared: the norms go as $1/\sqrt{v_l}$.",
)
