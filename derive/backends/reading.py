"""Reading a framework's module into a `RealBlock`: a registry of readers by class name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from derive.backends.autodiff import check_weights
from derive.backends.extras import load_torch
from derive.backends.real_block import RealBlock
from derive.errors import DomainError, ShapeError, UnknownNameError, UnknownNodeError

__all__ = [
    "Reader",
    "additive_mask",
    "array",
    "causal_mask",
    "check_anatomy",
    "heads_of",
    "is_causal",
    "known_modules",
    "linear",
    "norm_affine",
    "read_block",
    "refuse",
    "register_reader",
]

BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Reader: TypeAlias = Callable[[Any, int, "BoolArray | None"], RealBlock]
"""From a float64 module in eval mode, the number of tokens and the mask (None: the block's own)."""

_READERS: dict[str, Reader] = {}
_DROPOUT = "torch.nn.modules.dropout.Dropout"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Hooks that transformers itself leaves on a model's layers; they only record.
_RECORDING_HOOKS = {"transformers.utils.output_capturing"}


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
    _check_untouched(module)
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


def array(tensor: Any) -> FloatArray:
    """Return a tensor's values as a new float64 array."""
    values: FloatArray = np.array(tensor.detach().cpu().double().numpy(), dtype=np.float64)
    return values


def linear(layer: Any, *, transposed: bool = False) -> tuple[FloatArray, FloatArray]:
    """Return W (out, in) and b (out,) of ``y = W x + b``; b is 0 where the layer has none.

    ``transposed`` is for layers that store W as (in, out), such as the ``Conv1D`` of GPT-2.
    """
    weight = array(layer.weight)
    weight = np.ascontiguousarray(weight.T) if transposed else weight
    bias = np.zeros(weight.shape[0]) if layer.bias is None else array(layer.bias)
    return weight, bias


def norm_affine(norm: Any, index: int, *, bias: bool = True) -> dict[str, FloatArray]:
    """Return gain (and bias) of a norm as ``gain_<index>``, ``bias_<index>``.

    A norm without gain multiplies by 1 and one without bias adds 0.
    """
    gain = getattr(norm, "weight", None)
    shift = getattr(norm, "bias", None)
    width = norm.normalized_shape[-1] if gain is None else gain.shape[0]
    weights = {f"gain_{index}": np.ones(width) if gain is None else array(gain)}
    if bias:
        weights[f"bias_{index}"] = np.zeros(width) if shift is None else array(shift)
    return weights


def heads_of(
    *,
    query: tuple[FloatArray, FloatArray],
    key: tuple[FloatArray, FloatArray],
    value: tuple[FloatArray, FloatArray],
    out: tuple[FloatArray, FloatArray],
    heads: int,
    groups: int = 1,
) -> dict[str, FloatArray]:
    """Split projections into heads: rows of W_Q, W_K, W_V, columns of W_O, in contiguous runs.

    Parameters
    ----------
    query, key, value, out : tuple of ndarray
        (W, b) of each projection; W is (H dh, d) for the query, (H dh / groups, d) for key and
        value, (d, H dh) for the output.
    heads : int
        Number H of query heads.
    groups : int
        How many query heads share a key and value head; head h uses number ``h // groups``.

    Raises
    ------
    ShapeError
        When the rows do not divide into the heads.
    """
    rows, width = query[0].shape
    weights: dict[str, FloatArray] = {}
    for letter, (matrix, bias), count in (
        ("Q", query, heads),
        ("K", key, heads // groups),
        ("V", value, heads // groups),
    ):
        if matrix.shape != (rows * count // heads, width) or rows % heads or heads % groups:
            raise ShapeError(
                f"W_{letter}: expected shape ({rows * count // heads}, {width}) for {count} heads, "
                f"got {matrix.shape}"
            )
        repeats = heads // count
        weights[f"W_{letter}"] = np.repeat(matrix.reshape(count, -1, width), repeats, axis=0)
        weights[f"b_{letter}"] = np.repeat(bias.reshape(count, -1), repeats, axis=0)
    matrix, bias = out
    weights["W_O"] = np.ascontiguousarray(
        matrix.reshape(matrix.shape[0], heads, rows // heads).transpose(1, 0, 2)
    )
    weights["b_O"] = bias
    return weights


def causal_mask(tokens: int) -> BoolArray:
    """Return the (n, n) mask in which query i may attend to the keys j <= i."""
    return np.tri(tokens, dtype=np.bool_)


def is_causal(mask: BoolArray | None, own: bool) -> bool:
    """Say whether no query attends to a later key; `own` is the answer without a mask."""
    return own if mask is None else not np.triu(mask, 1).any()


def additive_mask(mask: BoolArray) -> Any:
    """Return a mask as a float64 tensor (n, n): 0 where allowed, else the lowest float."""
    torch = load_torch()
    lowest = float(np.finfo(np.float64).min)
    return torch.tensor(np.where(mask, 0.0, lowest), dtype=torch.float64)


def check_anatomy(module: Any, anatomy: Mapping[str, str], activations: Iterable[str]) -> None:
    """Check that a module has the submodules its reader reads, each of the expected class.

    An adapter, a replaced norm, a parametrised weight or a cross-attention changes the map; it
    must not be read over. Dropout is allowed anywhere, since the block runs in eval mode.

    Parameters
    ----------
    module : torch.nn.Module
        The block.
    anatomy : mapping of str to str
        Qualified class name by dotted path.
    activations : iterable of str
        Paths of activation modules, which are judged by their values instead.

    Raises
    ------
    UnknownNodeError
        Naming the path, the class expected there and the class found.
    """
    found = {path: _qualified(m) for path, m in module.named_modules() if path}
    free = set(activations)
    for path, name in found.items():
        if path in free or any(path.startswith(f"{root}.") for root in free):
            continue
        if name != _DROPOUT and anatomy.get(path) != name:
            expected = anatomy.get(path, "no such part")
            raise UnknownNodeError(
                f"{type(module).__name__}: part {path!r}: expected {expected}, got {name}; "
                "the reader cannot represent it"
            )
    for path, name in anatomy.items():
        if found.get(path) != name:
            raise UnknownNodeError(
                f"{type(module).__name__}: part {path!r}: expected {name}, "
                f"got {found.get(path, 'none')}"
            )


def refuse(module: Any, setting: str, expected: str, value: Any) -> UnknownNodeError:
    """Return the error for a setting that a `RealBlock` cannot represent."""
    return UnknownNodeError(
        f"{type(module).__name__}: setting {setting}: expected {expected}, got {value!r}; "
        "a block with it cannot be represented"
    )


def _qualified(module: Any) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _reader_of(module: Any) -> Reader:
    # The readers of the frameworks register themselves; they import no framework to do so.
    from derive.backends import huggingface, torch_nn  # noqa: F401

    name = _qualified(module)
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


def _check_untouched(module: Any) -> None:
    """Refuse what changes a module's map without changing its class: hooks, a replaced forward."""
    for path, m in module.named_modules():
        where = f"{type(module).__name__}: part {path!r}" if path else type(module).__name__
        replaced = vars(m).get("forward")
        # Recording may leave the class's own forward behind as an attribute; that is no change.
        if replaced is not None and getattr(replaced, "__func__", None) is not type(m).forward:
            raise UnknownNodeError(
                f"{where}: expected the class's own forward, got one replaced on the instance"
            )
        for kind in _HOOKS:
            for hook in getattr(m, kind, {}).values():
                if getattr(hook, "__module__", None) not in _RECORDING_HOOKS:
                    raise UnknownNodeError(
                        f"{where}: expected no hooks, got {hook!r} among its {kind[1:]}; "
                        "a hook may change what the module computes, remove it first"
                    )
