r"""The derived closed form against autodiff of a block that nobody here wrote.

The closed form is derived from the layer's expression and lowered with the module's own weights;
the reference is reverse-mode autodiff of the module itself, in float64 throughout. The two share
the weights and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import sympy as sp

from derive import symbols
from derive.backends import RealBlock, build, float64_throughout, read_block
from derive.backends import stack as build_stack
from derive.backends import state as random_state
from derive.backends.autodiff import jacobian as reference_jacobian
from derive.backends.zoo import ZOO, build_zoo
from derive.blocks.attention import Attention
from derive.blocks.build import layer, state
from derive.blocks.norms import norm
from derive.blocks.sublayers import FFN, GatedFFN
from derive.depth import Stack
from derive.errors import DomainError
from derive.linalg import materialise

__all__ = [
    "TOLERANCE",
    "Check",
    "check",
    "check_block",
    "closed_form",
    "closed_jacobian",
    "not_checked",
    "relative_error",
]

TOLERANCE = 1e-12
"""Largest relative error that counts as agreement.

A stack of twelve float64 layers loses a few hundred units in the last place (2e-16 each); a wrong
term in a formula shows at 1e-3 or more. See the mutation tests.
"""


@dataclass(frozen=True)
class Check:
    r"""One comparison.

    Attributes
    ----------
    system : str
        Name of the system.
    placement, norm : str
        What the layer was recognised as.
    max_rel_error : float
        :math:`\max|J_{closed}-J_{autodiff}| / \max|J_{autodiff}|`.
    dtype : str
        The lowest precision that any operation of the reference returned.
    ok : bool
        Whether the error is at most the tolerance and the reference ran in float64.
    layers, tokens, width : int
        Size of what was compared.
    tolerance : float
        The tolerance.
    promoted : int
        How many requests of the module for a lower precision were answered in float64.
    note : str
        What else a reader of the row must know.
    """

    system: str
    placement: str
    norm: str
    max_rel_error: float
    dtype: str
    ok: bool
    layers: int
    tokens: int
    width: int
    tolerance: float
    promoted: int
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return asdict(self)


def not_checked(system: str, reason: str) -> dict[str, Any]:
    """Return the row of a system that cannot be built: the reason as its note, the rest None."""
    return {**dict.fromkeys(f.name for f in fields(Check)), "system": system, "note": reason}


def closed_form(real: RealBlock, placement: str | None = None) -> sp.Basic:
    """Return the expression of a real layer, its norms with the layer's own eps.

    Parameters
    ----------
    real : RealBlock
        The layer.
    placement : str, optional
        Another placement than the layer's own, to see the comparison fail.

    Returns
    -------
    expression
        In the state ``derive.state("x")``.
    """
    if real.expression is not None and placement is None:
        return real.expression
    biased = "bias_1" in real.weights
    first, second = (
        norm(real.norm, label=k + 1, eps=sp.Float(real.eps[k], 17), bias=biased) for k in range(2)
    )
    attention = Attention(rotary="R" in real.weights, bias=True, masked=True, scale=symbols.scale)
    feed_forward = (GatedFFN if real.gated else FFN)(real.activation, bias=True)
    return layer(placement or real.placement, (first, second), attention, feed_forward)


def closed_jacobian(
    blocks: RealBlock | Sequence[RealBlock],
    x: np.ndarray,
    *,
    placement: str | None = None,
    mutate: Callable[[sp.Basic], sp.Basic] | None = None,
) -> np.ndarray:
    r"""Return the closed-form Jacobian of one layer or of a stack, materialised.

    Parameters
    ----------
    blocks : RealBlock or sequence of RealBlock
        The layers, in order of application.
    x : array (n, d)
        Input.
    placement : str, optional
        Another placement than the layers' own.
    mutate : callable, optional
        Changes the derived Jacobian before it is lowered, to see the comparison fail.

    Returns
    -------
    array (n d, n d)
    """
    layers = [blocks] if isinstance(blocks, RealBlock) else list(blocks)
    stack = Stack(
        [closed_form(b, placement) for b in layers], state("x"), [b.weights for b in layers]
    )
    if mutate is None:
        operators = stack.jacobians(x)
    else:
        change = mutate
        operators = stack._operators(x, lambda found: change(found.jacobian))
    out = np.eye(np.size(x))
    for operator in operators:
        out = materialise(operator) @ out
    return out


def relative_error(found: np.ndarray, reference: np.ndarray) -> float:
    r"""Return :math:`\max|A-B|/\max|B|`; infinite where anything is not finite."""
    if found.shape != reference.shape or not np.isfinite(found).all():
        return float("inf")
    largest = float(np.abs(reference).max())
    return float(np.abs(found - reference).max()) / (largest or 1.0)


def check_block(
    blocks: RealBlock | Sequence[RealBlock],
    x: np.ndarray,
    *,
    tolerance: float | None = None,
    placement: str | None = None,
    mutate: Callable[[sp.Basic], sp.Basic] | None = None,
) -> Check:
    """Compare closed form and autodiff of real layers at `x`.

    Parameters
    ----------
    blocks : RealBlock or sequence of RealBlock
        One layer, or the layers of a stack.
    x : array (n, d)
        Input.
    tolerance : float, optional
        Largest relative error that is accepted; by default what the layer allows, 1e-12 or more.
    placement, mutate
        Make the closed form wrong on purpose; see `closed_jacobian`.

    Returns
    -------
    Check
    """
    layers = [blocks] if isinstance(blocks, RealBlock) else list(blocks)
    with float64_throughout() as report:
        reference = reference_jacobian(blocks, x)
    found = closed_jacobian(layers, x, placement=placement, mutate=mutate)
    error = relative_error(found, reference)
    first = layers[0]
    tolerance = first.tolerance if tolerance is None else tolerance
    return Check(
        system=first.system,
        placement=placement or first.placement,
        norm=first.norm,
        max_rel_error=error,
        dtype=report.dtype,
        ok=bool(error <= tolerance and report.dtype == "float64"),
        layers=len(layers),
        tokens=int(np.shape(x)[0]),
        width=int(np.shape(x)[1]),
        tolerance=tolerance,
        promoted=report.promoted,
        note=first.note,
    )


def check(
    system: Any,
    *,
    layers: int = 1,
    tokens: int = 4,
    width: int = 16,
    heads: int = 4,
    seed: int = 0,
    tolerance: float = TOLERANCE,
) -> Check:
    """Check one system, or a module of your own.

    Parameters
    ----------
    system : str or torch.nn.Module
        One of `derive.backends.SYSTEMS` (built small, with random weights, gains and biases), or a
        module of a class that can be read; its own weights are used. A further layer of
        `derive.backends.zoo` is built at its own size.
    layers : int
        Number of layers of a built system.
    tokens, width, heads : int
        Size of a built system; a module brings its own width.
    seed : int
        Seed of weights and input.
    tolerance : float
        Largest relative error that is accepted.

    Returns
    -------
    Check

    Raises
    ------
    UnknownNameError
        If the system or the module's class is not known.
    MissingExtraError
        If torch or transformers is not installed.
    DomainError
        If `layers` is below 1.
    """
    if layers < 1:
        raise DomainError(f"layers: expected at least 1, got {layers}")
    if not isinstance(system, str):
        real = read_block(system, tokens=tokens)
        return check_block(real, random_state(real, seed=seed + 1), tolerance=tolerance)
    if system in ZOO:
        blocks = [build_zoo(system, seed + layer) for layer in range(layers)]
        return check_block(blocks, random_state(blocks[0], seed=seed + 1))
    sizes = {"width": width, "heads": heads, "tokens": tokens, "seed": seed}
    blocks = build_stack(system, layers, **sizes) if layers > 1 else [build(system, **sizes)]
    return check_block(blocks, random_state(blocks[0], seed=seed + 1), tolerance=tolerance)
