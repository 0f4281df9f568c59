"""Import of packages whose own imports cannot be met beside the CPU build of torch.

timm imports torchvision and torchscale fairscale, for image transforms, checkpointing and sharding
that no forward pass of a single block calls. For the length of the import their names are bound to
empty stand-ins; anything that a stand-in were asked to compute would fail.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from derive.errors import MissingPackageError

__all__ = ["import_beside_torch"]

STAND_INS = {"timm": ("torchvision",), "torchscale": ("torchvision", "fairscale")}


class _Named(type):
    """A class whose attributes exist, each as another class of this kind."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _Named(name, (), {})
        setattr(cls, name, value)
        return value


class _StandIn(ModuleType):
    """A module whose attributes exist but do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _Named(name, (), {})
        setattr(self, name, value)
        return value


class _Finder(MetaPathFinder, Loader):
    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find what is below one of the packages."""
        if name.partition(".")[0] in self.packages:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty stand-in."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing."""


@contextmanager
def _standing_in(packages: Sequence[str]) -> Iterator[None]:
    """Bind packages that are not installed to stand-ins, and unbind them again."""
    missing = [p for p in packages if p not in sys.modules and find_spec(p) is None]
    finder = _Finder(missing)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in list(sys.modules):
            if name.partition(".")[0] in missing:
                del sys.modules[name]


def import_beside_torch(module: str) -> Any:
    """Import a module of timm or torchscale.

    Raises
    ------
    MissingPackageError
        If the package is not installed.
    """
    package = module.partition(".")[0]
    with _standing_in(STAND_INS[package]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise MissingPackageError(
                f"{package} is needed here and cannot be imported ({error}); it requires packages "
                f"without a CPU build, so install it alone: pip install --no-deps timm torchscale"
            ) from error
