"""The relay race: a baton that is reweighed does not drift; errors of scale are undone."""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Inner
from derive.proof import Gaussian, Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import INTERVIEW
from proofs.depth._shared import WIDE
from proofs.documents._shared import centred, law
from proofs.norms.norm_scale_invariance import theorem as norm_scale_invariance
from proofs.setting import x

__all__ = ["theorem"]


def _rms(u: sp.Basic) -> sp.Basic:
    """Return the deviations of u over their root mean square: LayerNorm at eps = 0."""
    return centred(u) / sp.sqrt(Inner(centred(u), centred(u)) / d)


theorem = Theorem(
    id="interview-relay-analogy",
    area="documents",
    title="The relay race: post-norm",
    statement=(
        "In post-norm the baton is rescaled at every handoff; if the "
        "rescaling is slightly off it grows or shrinks over many."
    ),
    verdict=Verdict.REFUTED,
    uses=(norm_scale_invariance,),
    steps=(
        Step(
            (
                "A factor t at one handoff is undone at the next: $N(t u)$ is $N(u)$ "
                r"at $\epsilon = 0$."
            ),
            "mean and root scale with the input",
            Identity(
                claim=lambda t: (_rms(t * x), _rms(x)),
                of=lambda: sp.Symbol("t", positive=True),
                instead=lambda: -sp.Symbol("t", positive=True),
            ),
        ),
        Step(
            "So the baton's mean square is the same after every handoff.",
            "the norm sets it",
            Gaussian(
                claim=lambda found: (found.solution.forward, 1),
                of=law("post"),
                instead=law("pre"),
                name=r"\mathbb{E}|x_L|^2/d",
            ),
        ),
    ),
    sources=(INTERVIEW("analogy", seen="text"),),
    assumptions=(WIDE,),
    holds_when=(
        "The baton is the gradient: its factor $(1+b)/(1+f)$ is a constant "
        "that depth raises to a power."
    ),
    fails_when=(
        "The baton is the activation, as the story has it: rescaling removes "
        "errors of scale instead of gathering them."
    ),
)
