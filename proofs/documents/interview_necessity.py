"""Pre-norm is not the only way to keep gradients at depth."""

from __future__ import annotations

from derive.proof import Gaussian, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import DEEPNET, INTERVIEW
from proofs.depth._shared import WIDE
from proofs.depth.deepnorm_identity_path import theorem as deepnorm_identity_path
from proofs.documents._shared import law

__all__ = ["theorem"]


theorem = Theorem(
    id="interview-necessity",
    area="documents",
    title="A necessity of depth",
    statement=(
        "The switch to pre-norm was a necessity for stability at depth; "
        "models of 100 layers and more are possible only because of it."
    ),
    verdict=Verdict.REFUTED,
    uses=(deepnorm_identity_path,),
    steps=(
        Step(
            (
                "DeepNorm, a post-norm placement, has a mean squared gradient of 1 at "
                "every depth, also at 252 sublayers."
            ),
            "relu sublayers; its skip weight tends to 1",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("deepnorm"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            "So has the placement of Keel, which norms on both sides.",
            "relu sublayers",
            Gaussian(
                claim=lambda found: (found.solution.gradient, 1),
                of=law("keel"),
                instead=law("pre"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
        Step(
            (
                r"Without any norm, branches times $1/\sqrt L$ keep it below $\sqrt "
                "e$."
            ),
            "(1 + 1/(2L))^L",
            Gaussian(
                claim=lambda found: (found.solution.gradient, (1 + 1 / (2 * L)) ** L),
                of=law("skipinit"),
                instead=law("no-norm"),
                name=r"\mathbb{E}|g_0|^2/\mathbb{E}|g_L|^2",
            ),
        ),
    ),
    sources=(
        INTERVIEW("paragraph on history; example 4", seen="text"),
        DEEPNET("abstract: trained with 1000 layers", seen="text"),
    ),
    assumptions=(WIDE,),
    holds_when=(
        "The alternative is plain post-norm with cross-attention and nothing else changed."
    ),
    fails_when=(
        "Scaled residuals count as alternatives: necessity in the strict "
        "sense is refuted at the start of training, and in training by report "
        "only."
    ),
)
