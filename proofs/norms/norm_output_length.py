r"""How long the output of a norm can be: at most sqrt(d) max|g| + |b|, whatever comes in.

|xhat|^2 = d (1 - eps/s^2) <= d
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from derive.calculus.atoms import Inner
from derive.proof import AtMost, Bound, Identity, MaxAbs, SpectralNorm, Step, Theorem, Verdict
from derive.symbols import d, eps
from proofs.setting import bias, derived, gain, norm, output, r, s, x

__all__ = ["theorem"]


def _length(kind: str, root: sp.Basic) -> list[Any]:
    """Return the fact |xhat| <= sqrt(d), by d - |xhat|^2 = d eps/root^2."""
    xhat = SpectralNorm(derived("xhat", norm(kind)()))
    return [AtMost(xhat, sp.sqrt(d), d * eps / root**2, power=2)]


theorem = Theorem(
    id="norm-output-length",
    area="norms",
    title="The length of what a norm returns",
    statement=(
        r"$|LN(x)| \le \sqrt d\,\lVert\gamma\rVert_\infty + |\beta|$ and $|RMS(x)| \le "
        r"\sqrt d\,\lVert\gamma\rVert_\infty$ for every $x$ and $\epsilon$; before the gain, "
        r"$|\hat x|^2 = d(1 - \epsilon/s^2)$."
    ),
    verdict=Verdict.PROVED,
    steps=(
        Step(
            r"LayerNorm: $|\hat x|^2 = d(1 - \epsilon/s^2)$.",
            r"$|c|^2 = d(s^2 - \epsilon)$",
            Identity(
                claim=lambda D: (
                    Inner(derived("xhat", D), derived("xhat", D)),
                    d * (1 - eps / s**2),
                ),
                of=norm("layernorm"),
                instead=norm("rmsnorm"),
            ),
        ),
        Step(
            r"RMSNorm: $|\hat x|^2 = d(1 - \epsilon/r^2)$.",
            r"$|x|^2 = d(r^2 - \epsilon)$",
            Identity(
                claim=lambda D: (
                    Inner(derived("xhat", D), derived("xhat", D)),
                    d * (1 - eps / r**2),
                ),
                of=norm("rmsnorm"),
                instead=norm("layernorm"),
            ),
        ),
        Step(
            r"So $|LN(x)| \le \sqrt d\,\lVert\gamma\rVert_\infty + |\beta|$.",
            "triangle inequality, norm of a diagonal",
            Bound(
                claim=lambda y: (
                    SpectralNorm(y),
                    MaxAbs(gain) * sp.sqrt(d) + SpectralNorm(bias),
                ),
                of=output("layernorm"),
                instead=lambda: output("layernorm")() + x,
                facts=lambda _: _length("layernorm", s),
            ),
        ),
        Step(
            r"And $|RMS(x)| \le \sqrt d\,\lVert\gamma\rVert_\infty$.",
            "norm of a diagonal",
            Bound(
                claim=lambda y: (SpectralNorm(y), MaxAbs(gain) * sp.sqrt(d)),
                of=output("rmsnorm"),
                instead=output("layernorm"),
                facts=lambda _: _length("rmsnorm", r),
            ),
        ),
    ),
)
