r"""The Jacobian of softmax is diag(p) - pp', for every length.

It is symmetric and kills the constant vector; the weights add up to 1. With a sink, a constant
added to the partition, the weights add up to less and the Jacobian kills nothing.
"""

from __future__ import annotations

from derive.calculus.atoms import Diag, Inner, Vector
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import alpha, n
from proofs.attention._shared import EXP, jacobian, one, softmax, z
from proofs.bibliography import KIM

__all__ = ["theorem"]

p = softmax(z)
_e = EXP(z)
_sink = 1 / (Inner(one, _e) + alpha**2) * _e

theorem = Theorem(
    id="softmax-jacobian",
    area="attention",
    title="The Jacobian of softmax",
    statement=(
        r"For $p = e^z/(\mathbf 1^\top e^z)$ in $\mathbb R^n$, "
        r"$\frac{\partial p}{\partial z} = S = \mathrm{diag}(p) - pp^\top$; $S = S^\top$, "
        r"$S\mathbf 1 = 0$ and $\mathbf 1^\top p = 1$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "The differential of the quotient gives this matrix.",
            "exp is its own derivative",
            Identity(
                claim=lambda w: (jacobian(w, z), Diag(p) - p * p.T),
                of=lambda: p,
                instead=lambda: softmax(2 * z),
            ),
        ),
        Step(
            "It is symmetric.",
            "both terms are",
            Identity(
                claim=lambda w: (jacobian(w, z), jacobian(w, z).T),
                of=lambda: p,
                instead=lambda: Diag(Vector("v", n)) * p,
            ),
        ),
        Step(
            r"It kills $\mathbf 1$: a constant added to all scores changes nothing.",
            r"$\mathrm{diag}(p)\mathbf 1 = p$ and $p^\top\mathbf 1 = 1$",
            Identity(
                claim=lambda w: (jacobian(w, z) * one, 0 * one),
                of=lambda: p,
                instead=lambda: _sink,
            ),
        ),
        Step(
            "The weights of a row add up to 1.",
            "definition",
            Identity(
                claim=lambda w: (Inner(one, w), 1),
                of=lambda: p,
                instead=lambda: _sink,
            ),
        ),
    ),
    sources=(KIM("section 3", seen="memory"),),
)
