"""The first function of the handbook is LayerNorm, for every width, gain, bias and eps."""

from __future__ import annotations

import derive
from derive.proof import Identity, Step, Theorem, Verdict
from proofs.bibliography import HANDBOOK
from proofs.documents._shared import layer_norm
from proofs.setting import x

__all__ = ["theorem"]


theorem = Theorem(
    id="handbook-code-layer-norm",
    area="documents",
    title="The handbook's layer norm",
    statement=(
        r"The function that divides $x - \mu$ by the root of the biased "
        r"variance plus $\epsilon$, then scales and shifts, is LayerNorm "
        "exactly."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            (
                r"LayerNorm's output is $\gamma\odot(x-\mu\mathbf "
                r"1)/\sqrt{\mathrm{var}+\epsilon} + \beta$, the variance divided by "
                "$d$."
            ),
            "definitions of mean and variance",
            Identity(
                claim=lambda y: (y.body.output, layer_norm(x)),
                of=lambda: derive.LayerNorm()(x),
                instead=lambda: derive.RMSNorm()(x),
            ),
        ),
    ),
    sources=(HANDBOOK("code, first function", seen="text"),),
    remark=(
        "NumPy's var divides by d, not by d - 1, and eps is inside the root: "
        "both as in the definition."
    ),
)
