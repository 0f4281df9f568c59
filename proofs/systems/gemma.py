"""Gemma 2, Gemma 3 and GLM-4: a norm in front of the sublayer and one behind it."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import GEMMA2, TRANSFORMERS
from proofs.systems._shared import PRE, SANDWICH, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-gemma",
    area="systems",
    title="Gemma and GLM-4",
    statement="Gemma 2, Gemma 3 and GLM-4 have two norms in a branch: $x + N(F(N(x)))$.",
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of Gemma 2 has both norms.", "gemma2", SANDWICH, PRE.replace("N2", "N3")),
        layer("So has a layer of Gemma 3.", "gemma3", SANDWICH, PRE.replace("N2", "N3")),
        layer("So has a layer of GLM-4.", "glm4", SANDWICH, PRE.replace("N2", "N3")),
    ),
    sources=(
        GEMMA2("section 2", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark=(
        "Its residual is the identity, as in pre-norm; its branches have a size "
        "of their own, as in no pre-norm."
    ),
)
