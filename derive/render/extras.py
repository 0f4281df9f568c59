"""The optional packages of the renderers, imported when a function needs them."""

from __future__ import annotations

import importlib
from typing import Any

from derive.errors import MissingExtraError

__all__ = ["load"]


def load(module: str, extra: str) -> Any:
    """Import and return a module of an optional package.

    Parameters
    ----------
    module : str
        Dotted name.
    extra : str
        The extra of ``normderive`` that installs it.

    Raises
    ------
    MissingExtraError
        If it cannot be imported; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module.partition('.')[0]} is needed here and cannot be imported ({error}); "
            f"install normderive[{extra}]"
        ) from error
