"""All installed theorems: found through an entry-point group, so that others can add theirs."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import entry_points
from types import ModuleType

from derive.errors import DomainError, UnknownNameError
from derive.proof.theorem import Theorem

__all__ = ["GROUP", "collected", "find", "module_of", "theorems_in"]

GROUP = "normderive.theorems"
"""Entry points of this group are packages whose modules call their theorem ``theorem``."""


def theorems_in(package: ModuleType) -> dict[str, Theorem]:
    """Return the theorems of a package by the names of their modules."""
    found = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        theorem = getattr(importlib.import_module(module.name), "theorem", None)
        if isinstance(theorem, Theorem):
            found[module.name] = theorem
    return found


@lru_cache(maxsize=1)
def _located() -> dict[str, tuple[Theorem, str]]:
    found: dict[str, tuple[Theorem, str]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        for module, theorem in theorems_in(entry.load()).items():
            if theorem.id in found:
                raise DomainError(
                    f"{theorem.id}: two theorems have this id, in {found[theorem.id][1]} and in "
                    f"{module}"
                )
            found[theorem.id] = theorem, module
    return found


def collected() -> dict[str, Theorem]:
    """Return all installed theorems by their ids, in the order of areas and names.

    Raises
    ------
    DomainError
        If two theorems have one id.
    """
    return {id_: theorem for id_, (theorem, _) in _located().items()}


def module_of(theorem: Theorem) -> str:
    """Return the name of the module that a theorem was found in."""
    return _located()[theorem.id][1]


def find(ids: Iterable[str]) -> list[Theorem]:
    """Return theorems by their ids, in the order given.

    Raises
    ------
    UnknownNameError
        If there is none of that id; the message names the nearest.
    """
    known = collected()
    found = []
    for id_ in ids:
        if id_ not in known:
            near = difflib.get_close_matches(id_, known, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else "see `derive claims`"
            raise UnknownNameError(f"claim: expected the id of a claim, got {id_!r}; {hint}")
        found.append(known[id_])
    return found
