"""The four numbers that the handbook prints."""

from __future__ import annotations

from derive.proof import Observed, Step, Theorem, Verdict
from proofs.bibliography import HANDBOOK
from proofs.documents._shared import demo

__all__ = ["theorem"]


theorem = Theorem(
    id="handbook-printed-numbers",
    area="documents",
    title="The handbook's printed numbers",
    statement=(
        "The demonstration prints an input mean of -0.1373, an input std of "
        "0.9311, an output mean of 0.0000 and an output std of 1.0000."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        Step(
            "The mean of the input is as printed.",
            "a run with the document's seed and order of draws",
            Observed(
                claim=lambda found: found.x.mean(),
                of=demo(),
                instead=demo(seed=43),
                stated="-0.1373",
                quantity="mean of the input",
            ),
        ),
        Step(
            "Its standard deviation is as printed.",
            "a run with the document's seed and order of draws",
            Observed(
                claim=lambda found: found.x.std(),
                of=demo(),
                instead=demo(seed=43),
                stated="0.9311",
                quantity="standard deviation of the input",
            ),
        ),
        Step(
            "The standard deviation of the output is 1.0000 to four decimals.",
            "a run with the document's seed and order of draws",
            Observed(
                claim=lambda found: found.y.std(),
                of=demo(),
                instead=demo(ddof=1),
                stated="1.0000",
                quantity="standard deviation of the output",
            ),
        ),
        Step(
            "With more digits it is below 1.",
            "every token has the root of v/(v + eps)",
            Observed(
                claim=lambda found: found.y.std(),
                of=demo(),
                instead=demo(ddof=1),
                stated="0.9999928",
                quantity="standard deviation of the output, to seven digits",
            ),
        ),
    ),
    sources=(HANDBOOK("output of the code", seen="text"),),
    remark=(
        "The output mean is zero to rounding. The exact standard deviation is "
        "in handbook-next-input-standardized."
    ),
)
