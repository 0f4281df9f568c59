"""DeepSeek-V4: four residual streams, which are mixed at every layer."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import MHC, TRANSFORMERS
from proofs.systems._shared import config, default

__all__ = ["theorem"]

theorem = Theorem(
    id="system-deepseek-v4",
    area="systems",
    title="DeepSeek-V4",
    statement=(
        "The configuration of DeepSeek-V4 has four residual streams, so that "
        "its skip path is a product of mixing matrices and no identity."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        default(
            "There are four streams.",
            "DeepseekV4Config",
            "hc_mult",
            "4",
            config("DeepseekV4Config", hc_mult=2),
        ),
        default("It has 43 layers.", "DeepseekV4Config", "num_hidden_layers", "43", "LlamaConfig"),
    ),
    sources=(
        MHC("", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark=(
        "Its layer is not compared with a derived Jacobian: its mixing matrices "
        "depend on the input."
    ),
)
