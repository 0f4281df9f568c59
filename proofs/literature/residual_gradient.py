r"""ResiDual's lower bound of the gradient, and the post-norm decay that it is held against."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import RESIDUAL
from proofs.depth.skip_path_weight import theorem as skip
from proofs.variants.residual_second_stream import theorem as second

__all__ = ["theorem"]

theorem = Theorem(
    id="residual-gradient",
    area="literature",
    title="ResiDual has a lower bound of its gradient where post-norm's vanishes",
    statement=(
        "The gradient of post-norm at depth k below the output vanishes exponentially, and the "
        "second stream of ResiDual bounds it from below."
    ),
    verdict=Verdict.OPEN,
    uses=(skip, second),
    steps=(
        Step(
            "The abstract announces a lower bound on the gradient and says that post-norm has a "
            "vanishing one.",
            "taken from the source",
            Cited(
                what="a lower bound on the gradient, by the second stream",
                cite=RESIDUAL("abstract", seen="text"),
            ),
        ),
        Step(
            r"The theorem is recalled as $O\bigl((1/2)^{(N-k)/2}e^{\sqrt{N-k}}\bigr)$ for "
            r"post-norm.",
            "taken from the source",
            Cited(
                what=r"a bound of order $(1/2)^{(N-k)/2}e^{\sqrt{N-k}}$",
                cite=RESIDUAL("theorem on gradients", seen="memory"),
            ),
        ),
    ),
    remark=(
        "An upper bound does not show that a gradient vanishes. At initialisation "
        "$(1/2)^{(N-k)/2}$ "
        "is the weight of the skip path at branches of unit mean square; the whole gradient of "
        "relu branches keeps its mean square. The second stream does pass its gradient on "
        "unchanged, "
        "which is proved here. The text of the theorem was not found."
    ),
)
