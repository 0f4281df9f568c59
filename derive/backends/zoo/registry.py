"""The registry of real layers that the closed form is checked against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from derive.backends.extras import load_torch, load_transformers
from derive.backends.real_block import RealBlock
from derive.errors import MissingExtraError, UnknownNameError

__all__ = ["NOT_BUILT", "ZOO", "Builder", "ZooSystem", "build_zoo", "register"]

Builder = Callable[[int], RealBlock]
"""Takes a seed and returns a tiny layer with random weights and random gains, in float64."""


@dataclass(frozen=True)
class ZooSystem:
    """One real layer.

    Attributes
    ----------
    name : str
        How it is asked for, for example ``"gemma2"``.
    build : callable
        Builds and reads it.
    source : str
        Package and class, for example ``"transformers GemmaDecoderLayer"``.
    order : int
        1 to 3: how far it is from the plain placements.
    """

    name: str
    build: Builder
    source: str
    order: int


ZOO: dict[str, ZooSystem] = {}


def register(name: str, source: str, order: int) -> Callable[[Builder], Builder]:
    """Register, as a decorator, the builder of a layer."""

    def keep(build: Builder) -> Builder:
        ZOO[name] = ZooSystem(name, build, source, order)
        return build

    return keep


def build_zoo(name: str, seed: int = 0) -> RealBlock:
    """Build a layer of the zoo.

    Raises
    ------
    UnknownNameError
        If there is none of that name; the message lists those there are.
    MissingExtraError
        If torch or transformers is missing.
    """
    if name not in ZOO:
        raise UnknownNameError(f"system: expected one of {', '.join(ZOO)}, got {name!r}")
    with _quiet():
        return ZOO[name].build(seed)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from commenting on tiny configurations; its level is put back."""
    load_torch()
    try:
        logging = load_transformers("utils.logging")
    except MissingExtraError:  # the layers of torch.nn do without it
        yield
        return
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


NOT_BUILT: dict[str, str] = {
    "deepseek-v4": "hyper-connections with input-dependent matrices over several streams: the "
    "closed form of `derive.blocks.build.streams` has constant matrices",
}
"""Layers that are not checked, each with the reason."""
