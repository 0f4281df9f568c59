"""The optional packages of the backends, imported when a function needs them."""

from __future__ import annotations

import importlib
from typing import Any

from derive.errors import MissingExtraError

__all__ = ["load_torch", "load_transformers"]


def load_torch() -> Any:
    """Import and return ``torch``.

    Raises
    ------
    MissingExtraError
        When torch is not installed; the message names the extra.
    """
    return _load("torch", "torch")


def load_transformers(submodule: str = "") -> Any:
    """Import and return ``transformers``, or one of its submodules.

    Parameters
    ----------
    submodule : str
        A dotted name below ``transformers``, such as ``"models.bert.modeling_bert"``.

    Raises
    ------
    MissingExtraError
        When transformers (or torch below it) is not installed; the message names the extra.
    """
    load_torch()
    return _load(f"transformers.{submodule}" if submodule else "transformers", "transformers")


def _load(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{name.partition('.')[0]} is needed here and cannot be imported ({error}); "
            f"install normderive[{extra}]"
        ) from error
