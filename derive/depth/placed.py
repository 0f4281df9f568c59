"""A stack from the name of a placement: of a block, a layer, with streams, or mixed by depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from derive import symbols
from derive.blocks.build import block, state, streams
from derive.blocks.placements import MIXES, PLACEMENTS, STREAMS, all_placements, canonical
from derive.calculus.derivation import Derivation
from derive.depth.stack import Stack
from derive.depth.streams import StreamStack
from derive.errors import DomainError, UnknownNameError
from derive.initialise import initial_weights, layer_seed

__all__ = ["PlacedLayers", "placed_layers", "placed_stack", "starting_scalars"]


def starting_scalars(placement: str, number: int, blocks: int) -> dict[str, float]:
    r"""Return the scalars of a placement at the start of training.

    For example DeepNorm's :math:`\alpha = L^{1/4}` (L blocks are L/2 layers of two sublayers) or
    the :math:`\beta = 1/\sqrt l` of LayerNorm Scaling.

    Parameters
    ----------
    placement : str
        Name of a placement; an equation has none.
    number : int
        l, the number of the block, from 1.
    blocks : int
        L, the number of blocks of the stack.
    """
    entry = PLACEMENTS.get(canonical(placement)) or STREAMS.get(canonical(placement))
    at = {symbols.l: number, symbols.L: blocks}
    declared = {} if entry is None else entry.scalars
    return {name: float(sp.sympify(value).subs(at)) for name, value in declared.items()}


def placed_stack(
    placement: str,
    layers: int,
    *,
    width: int,
    norm: Any = "layernorm",
    sublayer: Any = "ffn",
    seed: int = 0,
    values: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> Stack:
    """Return a stack of a placement, with random weights.

    Parameters
    ----------
    placement : str
        A placement of any kind (see ``derive list placements``), or an equation.
    layers : int
        L, the number of blocks, at least 0.
    width : int
        Features d.
    norm, sublayer
        As for `derive.block`.
    seed : int
        Seed; the weights of layer ``l`` do not depend on how many layers follow it.
    values : mapping, optional
        Values of scalars in place of `starting_scalars`.
    **sizes
        Further arguments of `derive.initialise.initial_weights`.

    Raises
    ------
    UnknownNameError, ParseError
        If the placement is neither known nor an equation.
    DomainError
        If `layers` is negative or a size is out of range.
    WeightError
        If a scalar has no value.
    """
    found = placed_layers(
        placement,
        layers,
        width=width,
        norm=norm,
        sublayer=sublayer,
        seed=seed,
        values=values,
        **sizes,
    )
    if found.streams:
        return StreamStack(found.streams, tuple(found.weights))
    return Stack(list(found.blocks), state("x"), tuple(found.weights))


@dataclass(frozen=True, eq=False)
class PlacedLayers:
    """The layers of a placement, for a stack or for a stream of layers.

    Attributes
    ----------
    blocks : tuple of expressions
        The block of each layer; empty where there are several streams.
    streams : mapping
        The block matrix of every layer as for `StreamStack`; empty where there is one stream.
    weights : iterator of mappings
        The weights of each layer, drawn when they are asked for.
    """

    blocks: tuple[sp.Basic, ...]
    streams: Mapping[tuple[str, str], Derivation]
    weights: Iterator[dict[str, Any]]


def placed_layers(
    placement: str,
    layers: int,
    *,
    width: int,
    norm: Any = "layernorm",
    sublayer: Any = "ffn",
    seed: int = 0,
    values: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> PlacedLayers:
    """Return the layers of a stack one after the other: what `placed_stack` puts together.

    Parameters
    ----------
    placement, layers, width, norm, sublayer, seed, values, **sizes
        As for `placed_stack`.

    Raises
    ------
    UnknownNameError, ParseError, DomainError
        As for `placed_stack`; what is wrong with the weights shows when they are drawn.
    """
    if layers < 0:
        raise DomainError(f"layers: expected at least 0, got {layers}")
    key = canonical(placement)
    x = state("x")
    names = MIXES[key].layout(layers) if key in MIXES else (placement,) * layers
    many = streams(key, norm, sublayer) if key in STREAMS else {}
    try:
        single = {} if many else {name: block(name, norm, sublayer, x) for name in set(names)}
        if not names and not many and key not in MIXES:
            block(placement, norm, sublayer, x)  # a name that is wrong is wrong at every depth
    except UnknownNameError as error:
        if placement not in str(error):
            raise
        known = ", ".join(all_placements())
        raise UnknownNameError(
            f"placement: expected one of {known} or a block such as 'x + F(N(x))', "
            f"got {placement!r}"
        ) from None

    def draw() -> Iterator[dict[str, Any]]:
        for number, name in enumerate(names, 1):
            scalars = starting_scalars(name, number, layers)
            own = {"l": number, "L": layers, **scalars, **(values or {})}
            drawn: dict[str, Any] = {}
            for expr in [found.block for found in many.values()] if many else [single[name]]:
                fresh = initial_weights(
                    expr, width=width, seed=layer_seed(seed, number - 1), values=own, **sizes
                )
                drawn = {**fresh, **drawn}  # what two streams share is drawn once
            yield drawn

    blocks = () if many else tuple(single[name] for name in names)
    return PlacedLayers(blocks, many, draw())
