"""OPT: pre-norm with one switch, and post-norm without it."""

from __future__ import annotations

from derive.proof import Cited, Step, Theorem, Verdict
from proofs.bibliography import METASEQ, OPT, TRANSFORMERS
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
            "The 350M model has it off, as its authors noticed later.",
            "The developers of metaseq, 2022",
            Cited(
                "The 350M model seems to have been trained without norms in front.",
                METASEQ("the description", seen="text"),
            ),
        ),
    ),
    sources=(
        OPT("table 1", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
    remark="A language model of 2022 that is post-norm, by accident as it seems. Its 24 layers are "
    "recalled, not seen.",
)
