r"""ReZero, Fixup and SkipInit at 0: every block is the identity at the start of training.

Where the branch is multiplied by alpha = 0, or its last matrix is 0, the Jacobian is I.
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Matrix
from derive.proof import Assumption, Identity, Step, Theorem, Verdict
from derive.symbols import alpha, d, f
from proofs.bibliography import FIXUP, REZERO, SKIPINIT
from proofs.setting import block_jacobian, identity

__all__ = ["theorem"]

W_2 = Matrix("W_2", d, f)
ALPHA_ZERO = Assumption("alpha-zero", r"$\alpha = 0$", ((alpha, sp.S.Zero),))
LAST_ZERO = Assumption(
    "last-zero", "the last matrix of each branch is 0", ((W_2, sp.ZeroMatrix(d, f)),)
)

theorem = Theorem(
    id="identity-at-start",
    area="variants",
    title="ReZero and Fixup start as the identity",
    statement=(
        r"A block $x + \alpha F(x)$ with $\alpha = 0$ has $J = I$ whatever its sublayer, and so "
        "has a block without norm whose branch ends in a matrix that is 0."
    ),
    verdict=Verdict.PROVED,
    assumptions=(ALPHA_ZERO, LAST_ZERO),
    steps=(
        Step(
            "ReZero, and SkipInit with the scale 0.",
            "the branch is multiplied by 0",
            Identity(
                claim=lambda J: (J, identity),
                of=block_jacobian("rezero"),
                instead=block_jacobian("no-norm"),
                assuming=(ALPHA_ZERO,),
            ),
        ),
        Step(
            "Fixup: the last matrix of a feed-forward branch is 0.",
            "every path through the branch ends in it",
            Identity(
                claim=lambda J: (J, identity),
                of=block_jacobian("no-norm", sublayer="ffn"),
                instead=block_jacobian("no-norm"),
                assuming=(LAST_ZERO,),
            ),
        ),
    ),
    sources=(
        REZERO("the block's equation", seen="memory"),
        SKIPINIT("SkipInit", seen="memory"),
        FIXUP("the rules of initialisation", seen="memory"),
    ),
    remark=(
        "Post-norm has no such start: with a branch of 0 its Jacobian is that of the norm, whose "
        "null vectors stay."
    ),
)
