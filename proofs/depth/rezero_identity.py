r"""A ReZero block is the identity at initialisation, Jacobian and all, whatever its sublayer."""

from __future__ import annotations

from derive.proof import Assumption, Gaussian, Identity, Step, Theorem, Verdict
from derive.symbols import alpha
from proofs.bibliography import REZERO
from proofs.depth._shared import general, v
from proofs.setting import block_jacobian, identity

__all__ = ["theorem"]

START = Assumption("rezero-start", r"the residual weight $\alpha$ is 0", ((alpha, 0),))

theorem = Theorem(
    id="rezero-identity",
    area="depth",
    title="A ReZero block begins as the identity",
    statement=(
        r"At $\alpha = 0$ the Jacobian of $x + \alpha F(x)$ is $I$ for every sublayer and input, "
        r"so "
        "that every depth begins with the gradient unchanged."
    ),
    verdict=Verdict.PROVED,
    assumptions=(START,),
    steps=(
        Step(
            r"$J = I + \alpha\,D\!F(x) = I$.",
            "the branch is multiplied by 0",
            Identity(
                name=r"J",
                claim=lambda J: (J, identity),
                of=block_jacobian("rezero"),
                instead=block_jacobian("post"),
                assuming=(START,),
            ),
        ),
        Step(
            "The law of the toolkit says the same: the stream keeps its mean square.",
            "composed at the value at the start of training",
            Gaussian(
                name=r"v_{l+1}",
                claim=lambda R: (R.forward, v),
                of=general("rezero"),
                instead=general("no-norm"),
            ),
        ),
    ),
    sources=(REZERO("equation of the block", seen="memory"),),
)
