"""Reading a framework's module into a `RealBlock`: a registry of readers by class name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from derive.backends.anatomy import check_untouched, qualified_name
from derive.backends.autodiff import check_weights
from derive.backends.extras import load_torch
from derive.backends.real_block import RealBlock
from derive.errors import DomainError, ShapeError, UnknownNameError, UnknownNodeError

__all__ = ["Reader", "known_modules", "read_block", "register_reader"]

BoolArray: TypeAlias = npt.NDArray[np.bool_]
Reader: TypeAlias = Callable[[Any, int, "BoolArray | None"], RealBlock]
"""From a float64 module in eval mode, the number of tokens and the mask (None: the block's own)."""

_READERS: dict[str, Reader] = {}


def read_block(
    module: Any,
    x: npt.ArrayLike | None = None,
    tokens: int | None = None,
    *,
    mask: npt.ArrayLike | None = None,
) -> RealBlock:
    """Recognise a module by its class and read its weights.

    The block holds a float64 copy of the module on the CPU, in eval mode and with frozen
    parameters; the module given is left as it came. A block with rotary positions is read at
    positions 0..n-1.

    Parameters
    ----------
    module : torch.nn.Module
        One of `known_modules()`: ``torch.nn.TransformerEncoderLayer``, ``BertLayer``,
        ``GPT2Block``, ``LlamaDecoderLayer``, or a class added by `register_reader`.
    x : array_like, (n, d) or (1, n, d), optional
        An input whose shape fixes the number of tokens.
    tokens : int, optional
        Number n of tokens, when `x` is not given; 4 by default.
    mask : array_like of bool, (n, n), optional
        True where query i may attend to key j. By default causal for GPT-2, Llama and a BERT
        layer with ``is_decoder``, and everything otherwise.

    Returns
    -------
    RealBlock

    Raises
    ------
    UnknownNodeError
        When no reader is registered for the class, or the module has a part or a setting that a
        `RealBlock` cannot represent; the message names it.
    ShapeError
        When `x`, `tokens` or `mask` do not fit the module or each other.
    DomainError
        When a row of `mask` allows no key.
    WeightError
        When a parameter is not finite.
    MissingExtraError
        When torch is not installed.
    """
    torch = load_torch()
    reader = _reader_of(module)
    n = _tokens(x, tokens)
    allowed = None if mask is None else _checked_mask(mask, n)
    check_weights(module)
    check_untouched(module)
    with torch.inference_mode(False), torch.no_grad():
        private = copy.deepcopy(module).to(device="cpu", dtype=torch.float64)
        block = reader(private.eval().requires_grad_(False), n, allowed)
    if x is not None and np.shape(x)[-1] != block.width:
        raise ShapeError(
            f"argument x: expected width {block.width}, that of the {type(module).__name__}, "
            f"got shape {tuple(np.shape(x))}"
        )
    return block


def register_reader(qualified_name: str) -> Callable[[Reader], Reader]:
    """Register, as a decorator, the reader of a class.

    Parameters
    ----------
    qualified_name : str
        ``f"{cls.__module__}.{cls.__qualname__}"``; the class itself need not be imported.

    Raises
    ------
    UnknownNameError
        When the name has no dot, so that it cannot name a class of a module.
    """
    if "." not in qualified_name:
        raise UnknownNameError(
            f"argument qualified_name: expected 'package.module.Class', got {qualified_name!r}"
        )

    def register(reader: Reader) -> Reader:
        _READERS[qualified_name] = reader
        return reader

    return register


def known_modules() -> tuple[str, ...]:
    """Return the qualified names of the classes that `read_block` recognises, sorted."""
    return tuple(sorted(_READERS))


def _reader_of(module: Any) -> Reader:
    # The readers of the frameworks register themselves; they import no framework to do so.
    from derive.backends import huggingface, torch_nn  # noqa: F401

    name = qualified_name(module)
    if name in _READERS:
        return _READERS[name]
    bases = [f"{base.__module__}.{base.__qualname__}" for base in type(module).__mro__[1:]]
    kin = next((base for base in bases if base in _READERS), None)
    hint = f" (a subclass of {kin}, which may compute something else)" if kin else ""
    raise UnknownNodeError(
        f"argument module: expected one of {', '.join(known_modules())}; got {name}{hint}"
    )


def _tokens(x: npt.ArrayLike | None, tokens: int | None) -> int:
    shape = None if x is None else tuple(np.shape(x))
    if shape is not None:
        if len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] != 1) or 0 in shape:
            raise ShapeError(f"argument x: expected shape (n, d) or (1, n, d), got {shape}")
        if tokens is not None and tokens != shape[-2]:
            raise ShapeError(
                f"argument tokens: expected {shape[-2]}, the number of tokens of x, got {tokens}"
            )
        return int(shape[-2])
    n = 4 if tokens is None else tokens
    if n < 1:
        raise ShapeError(f"argument tokens: expected at least 1, got {n}")
    return n


def _checked_mask(mask: npt.ArrayLike, n: int) -> BoolArray:
    allowed = np.array(mask)
    if allowed.dtype != np.bool_ or allowed.shape != (n, n):
        raise ShapeError(
            f"argument mask: expected bool of shape ({n}, {n}), True where query i may attend to "
            f"key j, got {allowed.dtype} of shape {allowed.shape}"
        )
    empty = np.flatnonzero(~allowed.any(axis=1))
    if empty.size:
        raise DomainError(
            f"argument mask: expected at least one key for every query, row {empty[0]} allows none"
        )
    return allowed
