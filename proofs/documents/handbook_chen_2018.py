"""Who proposed pre-norm: the sources differ."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import CHEN, DOMHAN, HANDBOOK, XIONG

__all__ = ["theorem"]


theorem = Theorem(
    id="handbook-chen-2018",
    area="documents",
    title="Who proposed pre-norm",
    statement="Pre-norm was proposed in 2018 by Chen and others.",
    verdict=Verdict.OPEN,
    steps=(
        Step(
            "The paper that analysed it credits others.",
            "Xiong and others, 2020, section 1",
            Cited(
                (
                    "Earlier use of pre-norm is credited to Baevski and Auli, Child and "
                    "others, Wang and others."
                ),
                XIONG("section 1", seen="text"),
            ),
        ),
        Step(
            (
                "A history of the placement has it first in the code of "
                "tensor2tensor, of March 2018, before Chen's paper of April."
            ),
            "Domhan, 2018, as told by a web page on the history of layer norm",
            Cited(
                (
                    "Tensor2Tensor was the first to implement pre-norm; Domhan's paper of "
                    "July 2018 states it."
                ),
                DOMHAN("as told by a web page on the history of layer norm", seen="secondary"),
            ),
        ),
    ),
    sources=(
        HANDBOOK("paragraph 4", seen="text"),
        CHEN("", seen="memory"),
    ),
    remark=(
        "Chen's paper was not seen. What was seen speaks for an origin in "
        "code, before any of these papers."
    ),
)
