"""The handbook's layer norm against torch's."""

from __future__ import annotations

from derive.backends.extras import load_torch
from derive.proof import Observed, Step, Theorem, Verdict
from proofs.bibliography import HANDBOOK, PYTORCH
from proofs.documents._shared import Demo, demo

__all__ = ["theorem"]


def _agreeing(found: Demo) -> int:
    """Return on how many entries the demonstration and torch agree."""
    torch = load_torch()
    theirs = torch.nn.functional.layer_norm(torch.from_numpy(found.added), (8,), eps=1e-5)
    return int((abs(theirs.numpy() - found.y) < 1e-12).sum())


theorem = Theorem(
    id="handbook-code-torch",
    area="documents",
    title="The handbook's code against torch",
    statement="On its demonstration the handbook's layer norm returns what torch's does.",
    verdict=Verdict.SUPPORTED,
    steps=(
        Step(
            "All 32 entries agree to twelve digits.",
            "a run of both in double precision",
            Observed(
                claim=_agreeing,
                of=demo(),
                instead=demo(ddof=1),
                stated="32",
                quantity="entries of the output on which both agree",
            ),
        ),
    ),
    sources=(
        HANDBOOK("code, first function", seen="text"),
        PYTORCH("layer_norm", seen="code"),
    ),
    remark="With the variance divided by d - 1 none of them would.",
)
