r"""How far one relative change of every weight moves the output of a stack.

Every matrix W becomes :math:`W + \delta E`, with E independent of all else and as large as W in
mean square. To first order in :math:`\delta` the output moves by :math:`\Delta`, and

.. math:: A_L = \frac{\mathbb E|\Delta|^2}{\delta^2\,\mathbb E|x_L|^2}

is the *update amplification*: relative to the output, so that a norm behind the stack changes
nothing. It is what Admin (Liu et al., 2020, arXiv:2004.08249) and DeepNet (Wang et al., 2022,
arXiv:2203.00555) tie instability in training to, and not the gradient ratio.

A change is carried forward by the blocks as a tangent: through the same combination of sources as
the signal, and through a sublayer's Jacobian with the moments of `derive.laws.components.backward`,
which at independent weights are those of the transposed Jacobian. Each sublayer adds its own,

.. math:: \text{FFN: } f + b\,v_z, \qquad \text{uniform attention: } 2f,

with f the mean square of its output, :math:`v_z` of its input and b the factor of its gradient:
f from the last matrix, in which it is linear, :math:`b v_z` from those before the activation, whose
change at the pre-activations is that of a tangent of mean square :math:`v_z`. A bias of the last
matrix changes with it, other biases do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from derive.blocks.attention import Attention, CrossAttention
from derive.calculus.maps import Apply
from derive.errors import DomainError, UnknownNodeError
from derive.laws.components import Moments, TokenMoments, backward
from derive.laws.law import Prediction
from derive.laws.meanfield import BlockMoments, StreamMoments
from derive.laws.mixing import averaged_tangent

__all__ = ["own_change", "tangents", "update_amplification"]


def update_amplification(found: Prediction) -> float:
    r"""Return :math:`A_L` of a law evaluated at one depth.

    Parameters
    ----------
    found : Prediction
        As from `DepthLaw.predict`.

    Raises
    ------
    DomainError
        If the output is 0.
    UnknownNodeError
        If a sublayer has no moments.

    Notes
    -----
    Source: own composition. For one relu sublayer of gain 1/2 a block it is 2L/3 for post-norm and
    :math:`2(H_{L+2} - 3/2)` for pre-norm; in order L and log L as Admin's corollaries (from
    memory).

    Examples
    --------
    >>> from derive.laws import DepthLaw
    >>> round(update_amplification(DepthLaw("post").predict(12)), 6)
    8.0
    """
    blocks = [block for block, _ in found.blocks]
    names = list(blocks[0].signals)
    still = blocks[0].state[names[0], names[0]].times(0, 0)
    flow: StreamMoments = {(a, b): still for a in names for b in names}
    for block in blocks:
        changes = {branch: own_change(block, branch) for branch in block.branches}
        flow = tangents(block, flow, changes)
    size, first = found.forward[-1].v, names[0]
    if size == 0:
        raise DomainError("layers: expected a stack whose output is not 0")
    return float(flow[first, first].v / size)


def own_change(block: BlockMoments, branch: Apply) -> Moments | TokenMoments:
    """Return the moments of what relative changes of a sublayer's own matrices do to its output."""
    argument, made = block.branches[branch]
    if isinstance(branch.mapping, Attention | CrossAttention) and block.setting.scores != "uniform":
        raise UnknownNodeError(
            f"scores: expected uniform ones, whose changes are known, got {block.setting.scores}"
        )
    z = block.between(argument, argument)
    if isinstance(branch.mapping, Attention | CrossAttention):
        return made.plus(made)
    return made.plus(backward(branch.mapping, z, z, block.setting))


def tangents(
    block: BlockMoments, flow: StreamMoments, added: Mapping[Apply, Any] | None = None
) -> StreamMoments:
    """Return the moments of tangents at the outputs of a block, from those at its inputs.

    Parameters
    ----------
    block : BlockMoments
        The block.
    flow : mapping from (str, str) to Moments
        Of each stream, and between each two.
    added : mapping from Apply to Moments, optional
        Tangents that begin at the output of a sublayer.
    """
    sources: dict[Any, Any] = {}

    def between(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> Any:
        parts = [
            (flow[s, t] if isinstance(s, str) and isinstance(t, str) else sources[s]).times(a, b)
            for s, a in left.items()
            for t, b in right.items()
            if s == t or (isinstance(s, str) and isinstance(t, str))
        ]
        return reduce(lambda first, second: first.plus(second), parts)

    for branch, (argument, _) in block.branches.items():
        z, u = block.between(argument, argument), between(argument, argument)
        attends = isinstance(branch.mapping, Attention | CrossAttention)
        carry = averaged_tangent if attends else backward
        through = carry(branch.mapping, u, z, block.setting)
        if attends:
            through = through.dropped(block.setting.keep)
        own = (added or {}).get(branch)
        sources[branch] = through if own is None else through.plus(own)
    return {
        (a, b): between(s, t) for a, s in block.signals.items() for b, t in block.signals.items()
    }
