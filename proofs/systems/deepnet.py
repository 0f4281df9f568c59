"""DeepNet in its authors' code: post-norm with the skip times alpha = (2N)^(1/4)."""

from __future__ import annotations

from derive.backends.zoo import build_zoo
from derive.proof import Observed, Step, Theorem, Verdict
from proofs.bibliography import DEEPNET
from proofs.systems._shared import POST, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-deepnet",
    area="systems",
    title="DeepNet",
    statement=(
        r"In its authors' code DeepNet is $N(\alpha x + F(x))$ with $\alpha = (2N)^{1/4}$ for an "
        r"encoder of $N$ layers."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer(
            "A layer of torchscale with DeepNorm is post-norm with a scaled skip.",
            "torchscale-deepnorm",
            "h = N1(alpha*x + A(x)); N2(alpha*h + F(h))",
            POST,
        ),
        Step(
            r"For six layers its constant is $12^{1/4} = 1.86121$.",
            "the layer of the package",
            Observed(
                claim=lambda name: float(build_zoo(name).weights.get("alpha", 1)),
                of=lambda: "torchscale-deepnorm",
                instead=lambda: "torchscale-pre",
                stated="1.86121",
                quantity="what the skip is multiplied by, six layers",
            ),
        ),
    ),
    sources=(DEEPNET("its layer in torchscale", seen="code"),),
    remark="A post-norm placement that is made for depth; the constants are in deepnorm-constants.",
)
