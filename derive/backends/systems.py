"""Ready-made real blocks, one per system: tiny, float64, random weights and gains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from derive.backends import huggingface, torch_nn
from derive.backends.extras import load_torch
from derive.backends.reading import read_block
from derive.backends.real_block import RealBlock
from derive.errors import DomainError, ShapeError, UnknownNameError

__all__ = ["SYSTEMS", "build", "stack", "state"]

# width, heads, layer, tokens -> a fresh module
_BUILDERS: dict[str, Callable[[int, int, int, int], Any]] = {
    "torch-post": lambda d, h, layer, n: torch_nn.encoder_layer(d, h, norm_first=False),
    "torch-pre": lambda d, h, layer, n: torch_nn.encoder_layer(d, h, norm_first=True),
    "bert": lambda d, h, layer, n: huggingface.bert_layer(d, h),
    "gpt2": lambda d, h, layer, n: huggingface.gpt2_block(d, h, layer),
    "llama": lambda d, h, layer, n: huggingface.llama_layer(d, h, layer, n),
}
SYSTEMS: tuple[str, ...] = tuple(_BUILDERS)
"""Names that `build` and `stack` know."""


def build(
    system: str,
    *,
    width: int = 16,
    heads: int = 4,
    tokens: int = 4,
    seed: int = 0,
    layer: int = 0,
) -> RealBlock:
    """Build a small block of a framework, with random weights, gains and biases.

    Matrices are N(0, 1 / fan_in), gains uniform on [0.5, 1.5], biases N(0, 0.1^2), drawn by NumPy
    from (`seed`, `layer`); eps is the framework's default, dropout 0. GPT-2 and Llama get a causal
    mask, Llama shares each key and value head between two query heads. The FFN is relu for
    ``torch-post``, gelu for ``torch-pre`` and ``bert``, gelu_tanh for ``gpt2``, gated silu for
    ``llama``.

    Parameters
    ----------
    system : str
        One of `SYSTEMS`.
    width, heads, tokens : int
        d, H and n; H divides d.
    seed : int
        Seed of the weights, at least 0.
    layer : int
        Position of the block in its stack, from 0; another layer has other weights.

    Returns
    -------
    RealBlock

    Raises
    ------
    UnknownNameError
        When `system` is not known; the message lists those that are.
    ShapeError
        When a size is below 1, `heads` does not divide `width`, or a head of Llama is odd.
    DomainError
        When `seed` or `layer` is negative.
    MissingExtraError
        When torch, or transformers for its systems, is not installed.
    """
    if system not in _BUILDERS:
        raise UnknownNameError(
            f"argument system: expected one of {', '.join(SYSTEMS)}, got {system!r}"
        )
    for name, size in (("width", width), ("heads", heads), ("tokens", tokens)):
        if size < 1:
            raise ShapeError(f"argument {name}: expected at least 1, got {size}")
    if width % heads:
        raise ShapeError(f"argument heads: expected a divisor of width={width}, got {heads}")
    for name, value in (("seed", seed), ("layer", layer)):
        if value < 0:
            raise DomainError(f"argument {name}: expected at least 0, got {value}")
    torch = load_torch()
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        module = _BUILDERS[system](width, heads, layer, tokens).to(torch.float64)
        _randomise(module, np.random.default_rng([seed, layer]))
        return read_block(module, tokens=tokens)


def stack(
    system: str,
    layers: int,
    *,
    width: int = 16,
    heads: int = 4,
    tokens: int = 4,
    seed: int = 0,
) -> list[RealBlock]:
    """Build the blocks of a stack, layer 0 first, each with weights of its own.

    Parameters
    ----------
    system : str
        One of `SYSTEMS`.
    layers : int
        Number of blocks, at least 1.
    width, heads, tokens, seed
        As for `build`.

    Raises
    ------
    DomainError
        When `layers` is below 1.
    UnknownNameError, ShapeError, MissingExtraError
        As for `build`.
    """
    if layers < 1:
        raise DomainError(f"argument layers: expected at least 1, got {layers}")
    return [
        build(system, width=width, heads=heads, tokens=tokens, seed=seed, layer=layer)
        for layer in range(layers)
    ]


def state(block: RealBlock, seed: int = 1) -> npt.NDArray[np.float64]:
    """Draw a random input of a block, (n, d), entries N(0, 1).

    Raises
    ------
    DomainError
        When `seed` is negative.
    """
    if seed < 0:
        raise DomainError(f"argument seed: expected at least 0, got {seed}")
    return np.random.default_rng(seed).standard_normal((block.tokens, block.width))


def _randomise(module: Any, rng: np.random.Generator) -> None:
    """Overwrite every parameter of a fresh module; gains are told by the module they sit in."""
    torch = load_torch()
    for part in module.modules():
        kind = type(part).__name__
        for name, parameter in part.named_parameters(recurse=False):
            shape = tuple(parameter.shape)
            if len(shape) == 2:
                # Conv1D stores W as (in, out), a linear layer as (out, in).
                fan_in = shape[0] if kind == "Conv1D" else shape[1]
                values = rng.standard_normal(shape) / np.sqrt(fan_in)
            elif kind.endswith("Norm") and name == "weight":
                values = rng.uniform(0.5, 1.5, shape)
            else:
                values = 0.1 * rng.standard_normal(shape)
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(values))
