"""Fragile from 24 layers on: reports say earlier, and 24 layers have been trained."""

from __future__ import annotations

from derive.proof import Cited, Gaussian, Step, Theorem, Verdict
from proofs.bibliography import B2T, BERT, EXDEEP, HANDBOOK
from proofs.depth._shared import WIDE
from proofs.documents._shared import law

__all__ = ["theorem"]


theorem = Theorem(
    id="handbook-fragility-at-24",
    area="documents",
    title="Fragile from 24 layers on",
    statement=(
        "It was when models with 24, 48 or more layers were tried that the "
        "fragility of post-norm became impossible to ignore."
    ),
    verdict=Verdict.OPEN,
    steps=(
        Step(
            (
                "In an encoder at the start of training there is no such depth: the "
                "gradient is unchanged at every L."
            ),
            "the law has no L in it",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("post"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "One report places the instability at ten layers or more.",
            "Takase and others, 2022, abstract",
            Cited(
                (
                    "Training deep post-norm Transformers, of ten layers or more, often "
                    "becomes unstable."
                ),
                B2T("abstract", seen="text"),
            ),
        ),
        Step(
            "Another has difficulties above 12 layers.",
            "Liu, Duh, Liu and Gao, 2020, introduction",
            Cited(
                "It is difficult to train Transformers of over 12 layers.",
                EXDEEP("introduction", seen="text"),
            ),
        ),
        Step(
            "BERT-large was trained with 24 post-norm layers.",
            "Devlin and others, 2018, section 3",
            Cited("BERT-large has 24 layers and is post-norm.", BERT("section 3", seen="memory")),
        ),
    ),
    sources=(HANDBOOK("paragraph 3", seen="text"),),
    assumptions=(WIDE,),
    remark=(
        "The reports put the trouble earlier than 24, and one well-known "
        "model of 24 layers trained: the number is a matter of task, decoder "
        "and schedule."
    ),
)
