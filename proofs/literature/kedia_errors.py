r"""Errors of DeepScaleLM's moment formulas: one component is worse than its summaries say.

The figures are the authors' own, from the output that they publish beside their simulations; they
were not run again here.
"""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import DEEPSCALE

__all__ = ["theorem"]

theorem = Theorem(
    id="kedia-errors",
    area="literature",
    title="DeepScaleLM's formulas are accurate to 10 per cent",
    statement=(
        r"The closed-form moments of all components have errors below $10\%$ at the 99th "
        r"percentile."
    ),
    verdict=Verdict.OPEN,
    steps=(
        Step(
            "A third party's summary says so of the whole framework.",
            "taken from the source",
            Cited(
                what=r"errors below $10\%$ at the 99th percentile",
                cite=DEEPSCALE("section on validation, by a summary", seen="secondary"),
            ),
        ),
        Step(
            "The authors' published output has an exception: the gradient variance of single-head "
            r"attention, up to $44.5\%$ at the 99th percentile, with a median of $2.2\%$; all "
            r"others are at most $8.2\%$.",
            "taken from the source",
            Cited(
                what=r"$44.5\%$ for the gradient variance of attention, at most $8.2\%$ else",
                cite=DEEPSCALE("simulations, expected_output.txt", seen="code"),
            ),
        ),
    ),
    remark=(
        "If the output is read rightly the summary is not true of all components. The formulas "
        "themselves, of linear maps, relu, gelu and uniform attention, agree with the moments here."
    ),
)
