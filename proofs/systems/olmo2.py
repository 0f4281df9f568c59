"""OLMo 2 and EXAONE 4: the norm is behind the sublayer, inside the branch."""

from __future__ import annotations

from derive.proof import Theorem, Verdict
from proofs.bibliography import OLMO2, TRANSFORMERS
from proofs.systems._shared import PRE, RES_POST, default, layer

__all__ = ["theorem"]

theorem = Theorem(
    id="system-olmo2",
    area="systems",
    title="OLMo 2 and EXAONE 4",
    statement=(
        "OLMo 2 and EXAONE 4 are neither pre-norm nor post-norm: $x + N(F(x))$, "
        "with no norm in front of a sublayer."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        layer("A layer of OLMo 2 norms what its sublayers return.", "olmo2", RES_POST, PRE),
        layer("So does a layer of EXAONE 4.", "exaone4", RES_POST, PRE),
        default(
            "OLMo 2 has 32 layers by default.",
            "Olmo2Config",
            "num_hidden_layers",
            "32",
            "BertConfig",
        ),
    ),
    sources=(
        OLMO2("section 3.2", seen="memory"),
        TRANSFORMERS("its layer and its configuration", seen="code"),
    ),
)
