"""In a ResNet the last norm is in the branch; what follows the addition is the activation."""

from __future__ import annotations

from derive.backends.extras import load_torch, load_transformers
from derive.proof import Observed, Step, Theorem, Verdict
from proofs.bibliography import HANDBOOK, HE, TRANSFORMERS

__all__ = ["theorem"]


def _kept(zeroed: bool) -> int:
    """Return how many entries of the output are relu of the input."""
    torch = load_torch()
    model = load_transformers("models.resnet.modeling_resnet")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        made = model.ResNetBasicLayer(4, 4).eval()
        if zeroed:
            made.layer[-1].normalization.weight.zero_()
            made.layer[-1].normalization.bias.zero_()
        given = torch.randn(1, 4, 3, 3)
        return int((made(given) == given.relu()).sum())


theorem = Theorem(
    id="handbook-batchnorm-resnet-convention",
    area="documents",
    title="A convention of batch-normed ResNets",
    statement="Norming after the residual addition mirrors a convention of batch-normed ResNets.",
    verdict=Verdict.REFUTED,
    steps=(
        Step(
            "A ResNet layer whose last norm is zero returns relu of its input.",
            "were the norm behind the addition, it would return zeros",
            Observed(
                claim=_kept,
                of=lambda: True,
                instead=lambda: False,
                stated="36",
                quantity="entries, its last norm zero, that are relu of the input",
            ),
        ),
    ),
    sources=(
        HANDBOOK("paragraph 4", seen="text"),
        HE("figure 2", seen="memory"),
        TRANSFORMERS("ResNetBasicLayer", seen="code"),
    ),
    holds_when="What is mirrored is that something, the activation, follows the addition.",
    fails_when=(
        "What is mirrored is the place of the norm: a ResNet's is that of "
        "res-post, inside the branch, and its skip does not cross it."
    ),
    remark=(
        "That the Transformer took the skip connection from ResNets is "
        "history and not in doubt here."
    ),
)
