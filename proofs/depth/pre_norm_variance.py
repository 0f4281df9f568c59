r"""The residual stream of a pre-norm stack grows linearly: v_L = 1 + L f.

Every branch sees an input of unit mean square and adds f; nothing is ever divided.
"""

from __future__ import annotations

from derive.proof import Gaussian, Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import DEEPSCALE, XIONG
from proofs.depth._shared import WIDE, f, general, law, stream, v

__all__ = ["theorem"]

theorem = Theorem(
    id="pre-norm-variance",
    area="depth",
    title="The mean square of a pre-norm stream",
    statement=(
        r"For $x_{l+1} = x_l + F(N(x_l))$, $v_L = \mathbb E|x_L|^2/d = 1 + Lf$, with $f$ the mean "
        r"square of a branch at unit input; $1 + L/2$ for relu and matrices of variance "
        "one over fan-in."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    steps=(
        Step(
            "A block adds f.",
            "composed from the expression of the block",
            Gaussian(
                name=r"v_{l+1}",
                claim=lambda R: (R.forward, v + f),
                of=general("pre"),
                instead=general("no-norm"),
            ),
        ),
        Step(
            "So that L blocks add L f.",
            "induction over the blocks",
            Induction(
                claim=stream(1 + f * L),
                of=general("pre"),
                instead=general("sandwich"),
                name="v_L",
            ),
        ),
        Step(
            "With relu branches f = 1/2.",
            "relu halves the mean square",
            Induction(
                claim=stream(1 + L / 2),
                of=law("pre"),
                instead=law("pre", "ffn:gelu"),
                name="v_L",
            ),
        ),
    ),
    sources=(XIONG("Lemma 2", seen="text"), DEEPSCALE("forward growth of Pre-LN", "secondary")),
)
