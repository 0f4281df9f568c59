r"""A key bias does nothing; a value bias adds a constant; a query bias does act.

A key bias b adds q'b to every score of a row, and softmax does not see a constant. A value bias b
adds b (1'p) = b to the output.
"""

from __future__ import annotations

import derive
from derive.calculus.atoms import Inner, Vector
from derive.calculus.let import let
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d_h, scale
from proofs.attention._shared import K0, V0, jacobian, one, q0, softmax, spread
from proofs.attention.softmax_jacobian import theorem as softmax_jacobian

__all__ = ["theorem"]

b = derive.state("b", d_h)
v_b = Vector("v_b", d_h)
KEY = softmax(let("z", scale * (K0 * q0 + Inner(b, q0) * one)))
QUERY = softmax(let("z", scale * (K0 * (q0 + b))))
p = softmax(let("z", scale * (K0 * q0)))

theorem = Theorem(
    id="attention-biases",
    area="attention",
    title="The biases of attention",
    statement=(
        r"The output of attention does not depend on the bias of its keys; a bias of its values "
        r"adds that bias to the output; a bias of its queries acts through $\lambda V^\top SK$."
    ),
    verdict=Verdict.PROVED,
    uses=(softmax_jacobian,),
    steps=(
        Step(
            "The derivative of the output in a key bias is 0, at every key bias.",
            r"$S\mathbf 1 = 0$",
            Identity(
                claim=lambda w: (jacobian(V0.T * w, b), 0 * (V0.T * K0)),
                of=lambda: KEY,
                instead=lambda: QUERY,
            ),
        ),
        Step(
            r"With values $V + \mathbf 1v_b^\top$ the output is $V^\top p + v_b$.",
            "the weights add up to 1",
            Identity(
                claim=lambda w: ((V0 + one * v_b.T).T * w, V0.T * w + v_b),
                of=lambda: p,
                instead=lambda: 2 * p,
            ),
        ),
        Step(
            r"The derivative of the output in a query bias is $\lambda V^\top SK$.",
            "chain rule",
            Identity(
                claim=lambda w: (jacobian(V0.T * w, b), scale * V0.T * spread(QUERY) * K0),
                of=lambda: QUERY,
                instead=lambda: 2 * QUERY,
            ),
        ),
    ),
)
