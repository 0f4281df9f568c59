"""Zero mean and unit variance for the next block: with unit gain, no bias, and up to eps."""

from __future__ import annotations

from typing import Any

import derive
from derive.calculus.atoms import Inner
from derive.proof import Counterexample, Identity, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.bibliography import HANDBOOK
from proofs.norms.layernorm_output_statistics import theorem as layernorm_output_statistics
from proofs.setting import bias, c, one, x

__all__ = ["theorem"]


def _bare(kind: str) -> Any:
    """Return a subject: a norm at x without gain and bias."""
    made = {"layernorm": derive.LayerNorm, "rmsnorm": derive.RMSNorm}[kind]
    return lambda: made(gain=False, bias=False)(x)


theorem = Theorem(
    id="handbook-next-input-standardized",
    area="documents",
    title="What the next block receives",
    statement=(
        "After a post-norm block the next one always receives input of mean "
        "zero and approximately unit variance."
    ),
    verdict=Verdict.CONDITIONAL,
    uses=(layernorm_output_statistics,),
    steps=(
        Step(
            (
                "Without gain the mean of a token over its features is that of the "
                "bias, so that it is 0 without bias."
            ),
            "deviations sum to zero",
            Identity(
                claim=lambda y: (Inner(one, y.body.output), Inner(one, bias)),
                of=lambda: derive.LayerNorm(gain=False)(x),
                instead=lambda: derive.RMSNorm(gain=False, bias=True)(x),
            ),
        ),
        Step(
            (
                r"Its mean square is $v/(v+\epsilon)$ exactly, $v$ the variance of "
                "what is normed."
            ),
            "definition of the variance",
            Identity(
                claim=lambda y: (
                    Inner(y.body.output, y.body.output) / d,
                    Inner(c, c) / (Inner(c, c) + d * eps),
                ),
                of=_bare("layernorm"),
                instead=_bare("rmsnorm"),
            ),
        ),
        Step(
            r"Where $v = \epsilon$ the variance is one half.",
            r"evaluation at $d = 2$, $x = (1, -1)$, $\epsilon = 1$",
            Counterexample(
                claim=lambda y: (Inner(y.body.output, y.body.output) / d, 1),
                of=_bare("layernorm"),
                instead=lambda: derive.LayerNorm(gain=False, bias=False, eps=0)(x),
                relation="<",
                stated=("0.500", "1"),
                at={"x": (1, -1), "eps": 1},
            ),
        ),
        Step(
            "With a bias the mean is the bias's.",
            "evaluation with gain 1 and bias 1 in two dimensions",
            Counterexample(
                claim=lambda y: (Inner(one, y.body.output) / d, 0),
                of=lambda: derive.LayerNorm()(x),
                instead=_bare("layernorm"),
                relation=">",
                stated=("1", "0"),
                at={"x": (1, -1), "gain": (1, 1), "bias": (1, 1), "eps": 1},
            ),
        ),
    ),
    sources=(HANDBOOK("paragraph 2, and the paragraph after the code", seen="text"),),
    holds_when=(
        "The gain is 1, the bias 0 and the variance of the sum far above "
        r"$\epsilon$; per token, over features."
    ),
    fails_when=(
        "A gain or a bias has been learnt, or the variance of a token is not "
        r"far above $\epsilon$. RMSNorm has no zero mean. Over tokens, feature "
        "by feature, nothing is normed."
    ),
)
