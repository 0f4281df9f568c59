r"""Random weights for a block, by the names and shapes that its expression asks for.

Matrices are :math:`\mathcal N(0, \text{std}^2/\text{fan-in})`, gains and residual weights 1,
biases 0: the usual initialisation, stated here because depth laws depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from derive import symbols
from derive.calculus.atoms import Matrix, Vector
from derive.calculus.maps import Apply, Map
from derive.calculus.pointwise import Activation
from derive.calculus.tokens import At
from derive.errors import DomainError, ShapeError, WeightError

RANGES = {"h": symbols.H, "g": symbols.G, "e": symbols.X, "t": symbols.M}
"""The dimension that the index of a weight runs over, by its first letter; tokens otherwise."""

__all__ = ["initial_weights", "layer_seed", "parameters", "random_state"]


def parameters(block: sp.Basic) -> dict[str, tuple[Any, ...]]:
    """Return the weights that a block needs: name to symbolic shape, index axes in front.

    Parameters
    ----------
    block : expression
        A block; the bodies of its maps are looked into.

    Returns
    -------
    dict from str to tuple of sympy.Expr
        For example ``{"gain": (d,), "W_1": (f, d), "W_Q": (H, d_h, d)}``.
    """
    return dict(_parameters(block))


@lru_cache(maxsize=256)
def _parameters(block: sp.Basic) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    found: dict[str, tuple[Any, ...]] = {}
    for node in _nodes(block):
        if isinstance(node, At) and isinstance(node.family, Vector | Matrix):
            axis = RANGES.get(str(node.position)[:1], symbols.n)
            found[node.family.name] = (axis, *_shape(node.family))
        elif isinstance(node, Vector | Matrix):
            found.setdefault(node.name, _shape(node))
    return tuple(found.items())


def _shape(node: Vector | Matrix) -> tuple[Any, ...]:
    return node.shape if isinstance(node, Matrix) else node.shape[:1]


def _nodes(expr: sp.Basic, seen: set[sp.Basic] | None = None) -> Iterator[sp.Basic]:
    """Yield every node once, bodies of maps included, families of indexed weights not."""
    seen = set() if seen is None else seen
    if expr in seen or isinstance(expr, Map | Activation):
        return
    seen.add(expr)
    yield expr
    if isinstance(expr, At) and isinstance(expr.family, Vector | Matrix):
        return
    if isinstance(expr, sp.IndexedBase):  # the mask; its label is no scalar of the block
        return
    if isinstance(expr, Apply):
        body = expr.body
        if body is not None:
            yield from _nodes(body.output, seen)
    for arg in expr.args:
        yield from _nodes(arg, seen)


def initial_weights(
    block: sp.Basic,
    *,
    width: int,
    hidden: int | None = None,
    heads: int = 4,
    tokens: int = 1,
    groups: int = 1,
    experts: int = 4,
    std: float = 1.0,
    eps: float = 1e-5,
    seed: int = 0,
    values: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    r"""Draw weights for one copy of a block.

    Parameters
    ----------
    block : expression
        The block.
    width : int
        Features ``d``, at least 2.
    hidden : int, optional
        Hidden width ``f``, ``4 d`` by default.
    heads : int
        Attention heads; must divide `width`.
    tokens : int
        Number of tokens ``n``.
    groups : int
        Groups ``G`` of a group norm; must divide `width`.
    experts : int
        Experts ``X`` of a mixture.
    std : float
        Matrices have entries :math:`\mathcal N(0, \text{std}^2/\text{fan-in})`; fan-in is the
        number of columns, for the output projection of attention ``heads * d_h``.
    eps : float
        Value of the symbol ``eps``.
    seed : int
        Seed.
    values : mapping, optional
        Values of other scalar symbols, such as ``alpha``; for a weight of the block, such as
        ``lam``, the value of all its entries, or an array of its shape.

    Returns
    -------
    dict from str to array or float

    Raises
    ------
    DomainError
        If a size is out of range.
    WeightError
        If the block has a scalar symbol without a value.
    ShapeError
        If an array among `values` does not fit its weight.
    """
    counts = (
        ("width", width, 2),
        ("tokens", tokens, 1),
        ("heads", heads, 1),
        ("groups", groups, 1),
    )
    for name, size, least in (*counts, ("hidden", hidden, 1), ("experts", experts, 1)):
        if size is not None and size < least:
            raise DomainError(f"{name}: expected at least {least}, got {size}")
    needed = parameters(block)
    if any(symbols.G in shape for shape in needed.values()) and width % groups:
        raise DomainError(f"groups: expected a divisor of the width {width}, got {groups}")
    if any(symbols.H in shape for shape in needed.values()) and width % heads:
        raise DomainError(f"heads: expected a divisor of the width {width}, got {heads}")
    sizes = {
        symbols.d: width,
        symbols.f: 4 * width if hidden is None else hidden,
        symbols.H: heads,
        symbols.d_h: max(width // heads, 1),
        symbols.n: tokens,
        symbols.G: groups,
        symbols.M: tokens,
        symbols.X: experts,
    }
    rng = np.random.default_rng(seed)
    weights: dict[str, Any] = {"eps": float(eps), **(values or {})}
    for name, shape in _shapes(block, tuple(sizes.items())):
        drawn = _draw(name, shape, rng, std)  # in any case: a value moves no other weight
        weights[name] = _filled(name, weights[name], shape) if name in weights else drawn
    missing = {s.name for s in _scalars(block)} - set(weights)
    if missing:
        raise WeightError(
            f"values: no value for the scalar {', '.join(sorted(missing))}; give one, as in "
            f"values={{{min(missing)!r}: 1.0}} (on the command line --value {min(missing)}=1)"
        )
    return weights


@lru_cache(maxsize=256)
def _shapes(
    block: sp.Basic, sizes: tuple[tuple[Any, int], ...]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the weights in alphabetical order, with the sizes of their axes."""
    known = dict(sizes)
    needed = sorted(parameters(block).items())
    return tuple((name, tuple(_size(name, s, known) for s in shape)) for name, shape in needed)


def _filled(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of the weight's shape from the value given for it."""
    try:
        return np.array(np.broadcast_to(np.asarray(value, dtype=float), shape))
    except ValueError:
        raise ShapeError(
            f"values: expected a number or an array of shape {shape} for the weight {name}, "
            f"got shape {np.shape(value)}"
        ) from None


def _size(name: str, symbol: Any, sizes: Mapping[Any, int]) -> int:
    size = sp.sympify(symbol).subs(sizes)
    if not size.is_Integer:
        raise DomainError(f"weight {name}: no size is known for its dimension {size}")
    return int(size)


def _draw(name: str, shape: tuple[int, ...], rng: np.random.Generator, std: float) -> np.ndarray:
    stem = name.split("_")[0]
    if stem in ("gain", "lam", "omega", "w"):
        return np.ones(shape)
    if stem in ("bias", "b", "m"):
        return np.zeros(shape)
    if stem == "mem":  # the memory is an input, not a map
        return rng.normal(size=shape)
    if stem == "E":  # the rows of the identity that select each group
        return np.eye(shape[-1]).reshape(shape)
    if stem == "R":
        return _rotations(*shape[:2])
    fan_in = shape[0] * shape[-1] if name == "W_O" else shape[-1]
    drawn = rng.standard_normal(shape)
    drawn *= std / np.sqrt(fan_in)
    return drawn


def _rotations(tokens: int, width: int) -> np.ndarray:
    """Rotary matrices of base 10000 in the half-split convention; an odd last feature stays."""
    half = width // 2
    angles = np.arange(tokens)[:, None] * 10000.0 ** (-np.arange(half) / max(half, 1))
    out = np.tile(np.eye(width), (tokens, 1, 1))
    k = np.arange(half)
    out[:, k, k] = out[:, k + half, k + half] = np.cos(angles)
    out[:, k + half, k] = np.sin(angles)
    out[:, k, k + half] = -np.sin(angles)
    return out


@lru_cache(maxsize=256)
def _scalars(block: sp.Basic) -> frozenset[sp.Symbol]:
    known = {symbols.d, symbols.f, symbols.H, symbols.d_h, symbols.n, symbols.eps}
    free: set[sp.Basic] = set()
    for node in _nodes(block):
        if isinstance(node, sp.Symbol) and not node.is_integer:
            free.add(node)
    return frozenset(s for s in free if isinstance(s, sp.Symbol)) - known


def layer_seed(seed: int, layer: int) -> int:
    """Return the seed of a layer's weights; it does not depend on how many layers follow."""
    return int(np.random.SeedSequence((seed, layer)).generate_state(1)[0])


def random_state(width: int, tokens: int = 1, seed: int = 0) -> np.ndarray:
    """Return a state of independent standard normal features, ``(tokens, width)``."""
    return np.random.default_rng(seed).normal(size=(tokens, width))
