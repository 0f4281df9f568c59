"""LayerNorm norms every position by itself, over its features."""

from __future__ import annotations

from typing import Any

import derive
from derive.backends.extras import load_torch
from derive.calculus.atoms import Inner
from derive.proof import Identity, Observed, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.bibliography import COURSE, PYTORCH
from proofs.setting import c, derived, norm, x

__all__ = ["theorem"]


def _unchanged(shape: Any) -> int:
    """Return how many numbers of tokens 2 and 3 do not change with token 1."""
    torch = load_torch()
    made = torch.nn.LayerNorm(shape, dtype=torch.float64)
    first = torch.arange(12, dtype=torch.float64).reshape(3, 4).sin()
    second = first.clone()
    second[0] = second[0].cos()
    return int((made(first)[1:] == made(second)[1:]).sum())


theorem = Theorem(
    id="course-per-position",
    area="documents",
    title="One position at a time",
    statement="Layer normalization norms across the features, for each position independently.",
    verdict=Verdict.SUPPORTED,
    steps=(
        Step(
            (
                "Over the features of one token the deviations have mean square $s^2 "
                r"- \epsilon$: what is divided by is the token's own."
            ),
            "definition of the variance",
            Identity(
                claim=lambda D: (derived("s", D) ** 2 - eps, Inner(c, c) / d),
                of=norm("layernorm"),
                instead=lambda: derive.derivation(derive.LayerNorm()(2 * x), x),
            ),
        ),
        Step(
            (
                "In torch's norm a change of one token out of three leaves the other "
                "two alone, all 8 numbers of them."
            ),
            "the layer of the package",
            Observed(
                claim=_unchanged,
                of=lambda: 4,
                instead=lambda: (3, 4),
                stated="8",
                quantity="numbers of other tokens that stay as they were",
            ),
        ),
    ),
    sources=(
        COURSE("introduction", seen="text"),
        PYTORCH("LayerNorm", seen="code"),
    ),
)
