r"""What relu does to a normal variable: it halves the mean square, and so it does to gradients.

E relu(z)^2 = E relu'(z)^2 = 1/2, half of all z being positive. For variance q the first is q/2;
the moment theory of the toolkit uses the same.
"""

from __future__ import annotations

import sympy as sp

from derive.blocks.activations import activation
from derive.calculus.pointwise import Activation
from derive.laws import DualKernel, dual_kernel
from derive.proof import Expectation, Gaussian, Step, Theorem, Verdict
from proofs.bibliography import CHO_SAUL, XIONG

__all__ = ["theorem"]

z = sp.Symbol("z", real=True)
q = sp.Symbol("q", positive=True)


def _mean(phi: Activation, order: int, variance: sp.Expr = sp.S.One) -> sp.Expr:
    return Expectation(phi.derivative(order)(sp.sqrt(variance) * z) ** 2, z)


def _kernel(K: DualKernel) -> tuple[sp.Expr, sp.Expr]:
    return K.value(q), _mean(activation("relu"), 0, q)


theorem = Theorem(
    id="relu-moments",
    area="depth",
    title="The second moments of relu and of its derivative",
    statement=(
        r"For $z$ standard normal, $\mathbb E\,\mathrm{relu}(\sqrt q z)^2 = q/2$ and "
        r"$\mathbb E\,\mathrm{relu}'(z)^2 = 1/2$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"The mean square is half the variance.",
            "relu is the identity on one half and 0 on the other",
            Gaussian(
                claim=lambda phi: (_mean(phi, 0, q), q / 2),
                of=lambda: activation("relu"),
                instead=lambda: activation("gelu"),
            ),
        ),
        Step(
            r"The derivative has mean square one half.",
            "it is 1 on one half and 0 on the other",
            Gaussian(
                claim=lambda phi: (_mean(phi, 1), sp.S.Half),
                of=lambda: activation("relu"),
                instead=lambda: activation("relu2"),
            ),
        ),
        Step(
            "The dual kernel that the depth laws are composed of is this expectation.",
            "Cho and Saul's kernel at correlation 1",
            Gaussian(
                claim=_kernel,
                of=lambda: dual_kernel("relu"),
                instead=lambda: dual_kernel("gelu"),
            ),
        ),
    ),
    sources=(XIONG("Lemma 1", seen="text"), CHO_SAUL("section 2", seen="memory")),
)
