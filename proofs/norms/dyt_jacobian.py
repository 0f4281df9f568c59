r"""DyT is point-wise: J = a diag(g) diag(tanh'(a x)), diagonal, at most |a| max|g| in size.

tanh' = 1 - tanh^2 = 4 e^(2t)/(e^(2t) + 1)^2 lies between 0 and 1.
"""

from __future__ import annotations

import sympy as sp

from derive.blocks.activations import activation
from derive.calculus.atoms import Diag
from derive.calculus.pointwise import Pointwise
from derive.proof import Bound, Entries, Identity, MaxAbs, SpectralNorm, Step, Theorem, Verdict
from proofs.bibliography import DYT
from proofs.setting import derived, gain, jacobian, norm, x

__all__ = ["theorem"]

a, t = sp.symbols("a t", real=True)
tanh = activation("tanh")


def _slopes() -> list[Entries]:
    """Return the fact |tanh'| <= 1 at the vector that the derivation names v."""
    return [Entries(Pointwise(tanh, 1, derived("v", norm("dyt")())), sp.S.One)]


theorem = Theorem(
    id="dyt-jacobian",
    area="norms",
    title="The Jacobian of DyT",
    statement=(
        r"$N(x) = \gamma\odot\tanh(ax) + \beta$ has the diagonal Jacobian "
        r"$a\,\mathrm{diag}(\gamma)\,\mathrm{diag}(1 - \tanh^2(ax))$, of norm at most "
        r"$|a|\,\lVert\gamma\rVert_\infty$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"The Jacobian is $a\,\mathrm{diag}(\gamma)\,\mathrm{diag}(\tanh'(ax))$.",
            "chain rule, entry by entry",
            Identity(
                claim=lambda J: (J, a * Diag(gain) * Diag(Pointwise(tanh, 1, a * x))),
                of=jacobian("dyt"),
                instead=jacobian("rmsnorm"),
            ),
        ),
        Step(
            r"$\tanh' = 1 - \tanh^2$.",
            "quotient rule, written in exponentials",
            Identity(
                claim=lambda f: (sp.diff(f(t).rewrite(sp.exp), t), 1 - f(t) ** 2),
                of=lambda: sp.tanh,
                instead=lambda: sp.sinh,
            ),
        ),
        Step(
            r"$\lVert J\rVert_2 \le |a|\,\lVert\gamma\rVert_\infty$ at every input.",
            r"$0 < \tanh' \le 1$",
            Bound(
                claim=lambda J: (SpectralNorm(J), sp.Abs(a) * MaxAbs(gain)),
                of=jacobian("dyt"),
                instead=lambda: jacobian("dyt")() + jacobian("rmsnorm")(),
                facts=lambda _: _slopes(),
            ),
        ),
    ),
    sources=(DYT("the definition of the layer", seen="memory"),),
)
