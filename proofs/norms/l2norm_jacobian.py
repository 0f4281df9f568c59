r"""Division by the length: its Jacobian, and that it is a projection divided by the length.

N(x) = x/|x|,   J = (I - xx'/|x|^2)/|x|,   (|x| J)^2 = |x| J,   tr(|x| J) = d - 1
"""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Inner
from derive.calculus.trace import Trace
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d
from proofs.bibliography import NGPT
from proofs.setting import identity, jacobian, x

__all__ = ["theorem"]

length = sp.sqrt(Inner(x, x))

theorem = Theorem(
    id="l2norm-jacobian",
    area="norms",
    title="The Jacobian of division by the length",
    statement=(
        r"$N(x) = x/|x|$ has the Jacobian $\frac1{|x|}\bigl(I - \frac{xx^\top}{|x|^2}\bigr)$, "
        r"a projection of rank $d - 1$ divided by the length."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"The Jacobian is $\frac1{|x|}\bigl(I - \frac{xx^\top}{|x|^2}\bigr)$.",
            "quotient rule",
            Identity(
                claim=lambda J: (J, 1 / length * (identity - x * x.T / Inner(x, x))),
                of=jacobian("l2norm"),
                instead=jacobian("rmsnorm"),
            ),
        ),
        Step(
            r"$(|x|J)^2 = |x|J$: a projection.",
            "the unit vector has length 1",
            Identity(
                claim=lambda J: (length**2 * J * J, length * J),
                of=jacobian("l2norm"),
                instead=jacobian("rmsnorm"),
            ),
        ),
        Step(
            r"$\mathrm{tr}(|x|J) = d - 1$, which is the rank of a projection.",
            "the trace of an outer product is an inner product",
            Identity(
                claim=lambda J: (Trace(length * J), d - 1),
                of=jacobian("l2norm"),
                instead=jacobian("rmsnorm"),
            ),
        ),
    ),
    sources=(NGPT("the norm of this model", seen="memory"),),
)
