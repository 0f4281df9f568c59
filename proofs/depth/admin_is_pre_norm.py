r"""Admin's profiled skip weights make a post-norm stack weigh its branches as pre-norm does.

omega_(l+1)^2 is the mean square of omega_l x + F: it grows by f a block, like a pre-norm stream.
Behind the norm branch l has the share f/(omega_l^2 + f), which is pre-norm's f/v_l.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.proof import Gaussian, Induction, Step, Theorem, Verdict
from derive.symbols import L
from proofs.bibliography import ADMIN
from proofs.depth._shared import WIDE, Recursion, a, b, f, general
from proofs.depth.post_norm_gain import theorem as gain
from proofs.depth.pre_norm_variance import theorem as variance

__all__ = ["theorem"]


def _profile(R: Recursion) -> tuple[Any, Any, Any]:
    """Claim the square of the weight of block L + 1, from that of the block before."""
    summed = R.at(1).forward
    return 1 + f * L, sp.S.One, lambda y, k: summed.subs(a, sp.sqrt(y))


def _share(R: Recursion) -> tuple[Any, Any]:
    stream = 1 + f * (L - 1)
    return f * R.at(1).branch.subs(a, sp.sqrt(stream)), f / (1 + f * L)


theorem = Theorem(
    id="admin-is-pre-norm",
    area="depth",
    title="Admin weighs its branches as pre-norm does",
    statement=(
        r"With $\omega_1 = 1$ and $\omega_{l+1}^2$ the mean square of $\omega_l x_l + F_l(x_l)$, "
        r"$\omega_l^2 = 1 + (l-1)f$, and branch $l$ of $N(\omega_l x_l + F_l(x_l))$ has the share "
        r"$f/v_l$, $v_l = 1 + lf$, as in a pre-norm stack."
    ),
    verdict=Verdict.PROVED,
    assumptions=(WIDE,),
    uses=(gain, variance),
    steps=(
        Step(
            r"$\omega_{L+1}^2 = 1 + Lf$.",
            "each profile adds the mean square of one branch",
            Induction(
                claim=_profile,
                of=general("omega*x + F(x)", omega=a),
                instead=general("N(omega*x + F(x))", omega=a),
                name=r"\omega_{L+1}^2",
            ),
        ),
        Step(
            r"Branch $L$ has the share $f/(1 + Lf)$.",
            r"the norm divides by $\omega_L^2 + f$",
            Gaussian(
                claim=_share,
                of=general("N(omega*x + F(x))", omega=a),
                instead=general("omega*x + F(x)", omega=a),
            ),
        ),
        Step(
            "With relu branches its gradient law is 1, like that of every post-norm stack.",
            "b = f",
            Gaussian(
                name=r"G",
                claim=lambda R: (R.at(1).gradient.subs(b, f), sp.S.One),
                of=general("N(omega*x + F(x))", omega=a),
                instead=general("omega*x + F(x)", omega=a),
            ),
        ),
    ),
    sources=(ADMIN("profiling, transformer_layer.py", seen="code"),),
)
