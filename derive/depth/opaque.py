r"""A block with its maps made opaque, so that its Jacobian is written in their Jacobians.

In the Jacobian of a block every sublayer is written out, :math:`W_2\operatorname{diag}(\cdot)W_1`.
Where one asks which sublayer a term goes through, or what one kernel of an implementation computes,
the sublayer has to stay one node: :math:`DF(u)`. Its numbers still come from its own derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp
from sympy.core.symbol import Str

from derive.blocks import norms as norm_maps
from derive.blocks.attention import Attention
from derive.blocks.build import state as make_state
from derive.calculus.derivation import derivation
from derive.calculus.maps import Apply, Map
from derive.linalg import Operator
from derive.lower import AbstractMap, evaluate, lower

__all__ = ["Opaque", "OpaqueBlock", "is_norm", "opaque_block"]


class Opaque(Map):
    r"""A map known by its name and by whether it mixes tokens; its Jacobian is a node.

    Parameters
    ----------
    name : str
        How it prints.
    mixes : bool
        Whether it couples tokens, so that no token's scalar may be moved across it.
    """

    def __new__(cls, name: Any, mixes: Any = False) -> Opaque:
        """Check the arguments and build the node."""
        return sp.Basic.__new__(cls, Str(str(name)), sp.sympify(bool(mixes)))

    @property
    def mixes_tokens(self) -> bool:  # type: ignore[override]
        """Whether it couples tokens."""
        return bool(self.args[1])


def is_norm(mapping: Map) -> bool:
    """Whether a map is one of the norms of `derive.blocks.norms`; every other is a sublayer."""
    return isinstance(mapping, norm_maps._Norm)


@dataclass(frozen=True)
class OpaqueBlock:
    """A block whose concrete maps are opaque.

    Attributes
    ----------
    block : expression
        The block in opaque maps.
    jacobian : expression
        Its derived Jacobian.
    concrete : mapping from str to Map
        What each opaque map stands for.
    """

    block: sp.Basic
    jacobian: sp.Basic
    concrete: Mapping[str, Map]

    def maps(
        self,
        weights: Mapping[str, Any],
        value: Callable[[str, np.ndarray], np.ndarray] | None = None,
        slope: Callable[[str, np.ndarray], Operator] | None = None,
    ) -> dict[str, AbstractMap]:
        """Return the numbers of the opaque maps, from their own derivations.

        Parameters
        ----------
        weights : mapping
            Weights of the layer.
        value, slope : callable, optional
            What gives the value and the Jacobian of the map of a name at a state; by default
            `derive.lower.evaluate` and `derive.lower.lower`. Each is called once a state.
        """

        def one(name: str) -> AbstractMap:
            mapping = self.concrete[name]
            take_value = value or (lambda _, z: evaluate(_alone(mapping)[0], weights, z))
            take_slope = slope or (lambda _, z: lower(_alone(mapping)[1], weights, z))
            return AbstractMap(
                _once(lambda z: take_value(name, z)), _once(lambda z: take_slope(name, z))
            )

        return {name: one(name) for name in self.concrete}

    def alone(self, name: str) -> tuple[sp.Basic, sp.Basic]:
        """Return the value F(x) and the derived Jacobian DF(x) of one of the maps."""
        return _alone(self.concrete[name])


@lru_cache(maxsize=256)
def _alone(mapping: Map) -> tuple[sp.Basic, sp.Basic]:
    x = make_state("x")
    return mapping(x), derivation(mapping(x), x).jacobian


def _once(function: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    known: dict[bytes, Any] = {}

    def remembered(z: np.ndarray) -> Any:
        key = z.tobytes()
        if key not in known:
            known[key] = function(z)
        return known[key]

    return remembered


@lru_cache(maxsize=256)
def opaque_block(block: sp.Basic, state: Any, *, norms: bool = False) -> OpaqueBlock:
    """Return a block with its sublayers made opaque.

    Parameters
    ----------
    block : expression
        The block.
    state : State
        Its variable.
    norms : bool
        Whether the norms become opaque as well.

    Returns
    -------
    OpaqueBlock
        Abstract sublayers stay what they are.
    """
    names: dict[Map, str] = {}
    taken = {a.mapping.name for a in block.atoms(Apply) if a.mapping.is_abstract}

    def walk(expr: sp.Basic) -> sp.Basic:
        if not expr.has(Apply):
            return expr
        if not isinstance(expr, Apply):
            return expr.func(*map(walk, expr.args))
        mapping, argument = expr.mapping, walk(expr.argument)
        if mapping.is_abstract or (is_norm(mapping) and not norms):
            return mapping(argument)
        if mapping not in names:
            known, number = {*names.values(), *taken}, 2
            is_attention = isinstance(mapping, Attention) and mapping.name == "F"
            name = stem = "A" if is_attention else mapping.name
            while name in known:
                name, number = f"{stem}_{number}", number + 1
            names[mapping] = name
        return Opaque(names[mapping], mapping.mixes_tokens)(argument)

    opaque = walk(block)
    return OpaqueBlock(opaque, derivation(opaque, state).jacobian, {n: m for m, n in names.items()})
