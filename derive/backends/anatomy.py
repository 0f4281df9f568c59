"""What a block is made of, checked before it is read: its parts, hooks and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from derive.errors import UnknownNodeError

__all__ = ["check_anatomy", "check_untouched", "qualified_name", "refuse"]

_DROPOUT = "torch.nn.modules.dropout.Dropout"
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Hooks that transformers itself leaves on a model's layers; they only record.
_RECORDING_HOOKS = {"transformers.utils.output_capturing"}


def qualified_name(module: Any) -> str:
    """Return the dotted name of a module's class, its package included."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


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
    found = {path: qualified_name(m) for path, m in module.named_modules() if path}
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


def check_untouched(module: Any) -> None:
    """Refuse what changes a module's map without changing its class: hooks, a replaced forward.

    Raises
    ------
    UnknownNodeError
        Naming the part and what was found on it.
    """
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
