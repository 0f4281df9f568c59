"""OPT: pre-norm with one switch, and post-norm without it."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import OPT, TRANSFORMERS
from proofs.systems._shared import POST, PRE, config, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-opt",
    area="systems",
    title="OPT",
    statement=(
        "OPT is pre-norm by default; with its switch for that off, as the 350M "
        "model has it, it is post-norm."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer with the default is pre-norm.", "opt", PRE, POST),
        layer("With the switch off it is post-norm.", "opt-350m", POST, PRE),
        default(
            "The switch is on by default.",
            "OPTConfig",
            "do_layer_norm_before",
            "1",
            config("OPTConfig", do_layer_norm_before=False),
        ),
        Step(
            "The 350M model has it off, at 24 layers.",
            "Zhang and others, 2022, its published configuration",
            Cited(
                "OPT-350m norms after the addition and has 24 layers.",
                OPT("its published configuration", seen="memory"),
            ),
        ),
    ),
    sources=(
        OPT("table 1", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark="A language model of 2022 with 24 post-norm layers.",
)
