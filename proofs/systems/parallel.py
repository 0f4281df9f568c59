"""GPT-J, GPT-NeoX: attention and feed-forward sublayer side by side, on normed input."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import TRANSFORMERS
from proofs.systems._shared import PRE, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-parallel",
    area="systems",
    title="GPT-J and GPT-NeoX",
    statement=(
        "GPT-J and GPT-NeoX are pre-norm with parallel sublayers, GPT-J with one norm for both."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer(
            "A layer of GPT-J has one norm.",
            "gptj",
            "x + A(N1(x)) + F(N1(x))",
            "x + A(x) + F(N1(x))",
        ),
        layer("A layer of GPT-NeoX has two.", "gpt-neox", "x + A(N1(x)) + F(N2(x))", PRE),
    ),
    sources=(TRANSFORMERS("its layer and its configuration", seen="code"),),
)
