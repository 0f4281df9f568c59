"""Which stacks end in a norm: the pre-norm ones do, the post-norm ones do not."""

from __future__ import annotations

from derive.backends.extras import load_torch, load_transformers
from derive.proof import Observed, Step, Theorem, Verdict
from proofs.bibliography import TRANSFORMERS

__all__ = ["theorem"]

_SIZES = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
_TOKENS = {"vocab_size": 9, "bos_token_id": 0, "eos_token_id": 0}
_SMALL = {
    "GPT2": {"n_embd": 8, "n_head": 2, "n_layer": 1, **_TOKENS},
    "Llama": {**_SIZES, "intermediate_size": 8, "vocab_size": 9},
    "OPT": {**_SIZES, "ffn_dim": 8, "word_embed_proj_dim": 8, "vocab_size": 9},
    "ViT": {**_SIZES, "intermediate_size": 8},
    "Mistral": {**_SIZES, "intermediate_size": 8, "num_key_value_heads": 2, "vocab_size": 9},
    "Bert": {**_SIZES, "intermediate_size": 8, "vocab_size": 9},
    "OpenAIGPT": {"n_embd": 8, "n_head": 2, "n_layer": 1, **_TOKENS},
}
_PRE, _POST = ("GPT2", "Llama", "OPT", "ViT", "Mistral"), ("Bert", "OpenAIGPT")


def _ending(names: tuple[str, ...]) -> int:
    """Return how many models have a norm that is in no layer and not in the embeddings."""
    package = load_transformers()
    with load_torch().random.fork_rng(devices=[]):
        made = [
            getattr(package, f"{n}Model")(getattr(package, f"{n}Config")(**_SMALL[n]))
            for n in names
        ]
    return sum(any(map(_is_final_norm, *zip(*m.named_modules(), strict=True))) for m in made)


def _is_final_norm(path: str, part: object) -> bool:
    """Whether a module is a norm; those of a layer have its number in their path."""
    inside = any(name.isdigit() or name == "embeddings" for name in path.split("."))
    return type(part).__name__.endswith("Norm") and not inside


theorem = Theorem(
    id="system-final-norms",
    area="systems",
    title="Norms at the end of a stack",
    statement=(
        "Pre-norm models end in a norm behind their last layer; post-norm models need none and "
        "have none."
    ),
    verdict=Verdict.SUPPORTED,
    steps=(
        Step(
            "GPT-2, Llama, OPT, ViT and Mistral all have one.",
            "the modules of the models",
            Observed(
                claim=_ending,
                of=lambda: _PRE,
                instead=lambda: _PRE[:1] + _POST,
                stated="5",
                quantity="models that end in a norm, of five that are pre-norm",
            ),
        ),
        Step(
            "BERT and GPT-1 have none.",
            "the modules of the models",
            Observed(
                claim=_ending,
                of=lambda: _POST,
                instead=lambda: _PRE[:2],
                stated="0",
                quantity="models that end in a norm, of two that are post-norm",
            ),
        ),
    ),
    sources=(TRANSFORMERS("the models named", seen="code"),),
    remark="So the gradient of the loss crosses a norm in pre-norm too; see course-clean-path.",
)
