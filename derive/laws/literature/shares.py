r"""What each block of a stack adds, the gradient that comes to it, and what the skip keeps.

The sublayer of the block is replaced by a stream of its own, whose moments are those of its output;
the composition of `derive.laws.meanfield` then gives the gradient at it, and at the state without
the sublayer: the pure identity path.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from derive.calculus.atoms import State
from derive.errors import UnknownNodeError
from derive.laws.components import Moments, Setting
from derive.laws.initial import scheme, sizes
from derive.laws.law import DepthLaw
from derive.laws.meanfield import BlockMoments
from derive.symbols import d

__all__ = ["Share", "identity_path", "shares"]

ZERO = Moments(0.0, 0.0)


class Share(NamedTuple):
    r"""The branch of one block; gradients are in units of :math:`\mathbb E|g_L|^2/d`.

    Attributes
    ----------
    output : Moments
        Of the sublayer's output F.
    gradient : Moments
        Of the gradient at that output.
    skip : float
        Share of the mean square of the gradient that the block passes on without its sublayer.
    """

    output: Moments
    gradient: Moments
    skip: float


def shares(law: DepthLaw, layers: int, **options: Any) -> list[Share]:
    """Return the share of every block of a stack with one sublayer a block.

    Parameters
    ----------
    law : DepthLaw
        The law; one stream.
    layers : int
        L.
    **options
        As for `DepthLaw.predict`.

    Raises
    ------
    UnknownNodeError
        If a block does not have exactly one sublayer and one stream.
    """
    predicted = law.predict(layers, **options)
    width = options.get("width") or 1024
    at = sizes(width, options.get("hidden"), layers)
    setting = Setting(scheme(law.init), law.tokens, law.memory, at)
    found = []
    for number in range(1, layers + 1):
        blocks = law.blocks_of(number, layers)
        scalars = law.scalars_of(number, layers)
        signal, arriving = predicted.forward[number - 1], predicted.gradient[number]
        state = {("x", "x"): signal}
        whole = BlockMoments(blocks, state, setting, scalars) if len(blocks) == 1 else None
        if whole is None or len(whole.branches) != 1:
            raise UnknownNodeError(
                f"shares: expected one stream and one sublayer a block, got {law.placement}"
            )
        ((branch, (_, made)),) = whole.branches.items()
        cut = State("branch", d)
        apart = BlockMoments(
            {"x": blocks["x"].xreplace({branch: cut}), "branch": cut},
            {**state, ("branch", "branch"): made, ("x", "branch"): ZERO, ("branch", "x"): ZERO},
            setting,
            scalars,
        )
        names = ("x", "branch")
        flow = {(a, b): arriving if a == b == "x" else ZERO for a in names for b in names}
        back = apart.backward(flow)
        found.append(
            Share(
                Moments(*map(float, made)),
                Moments(*map(float, back["branch", "branch"])),
                float(back["x", "x"].v / arriving.v),
            )
        )
    return found


def identity_path(found: list[Share]) -> float:
    """Return the mean square of a gradient that takes no branch: the product of the skips."""
    return math.prod(share.skip for share in found)
