r"""The paths of a stack: its Jacobian as a sum over which branches a path takes in every layer.

In the derived Jacobian of a layer every term says which sublayers it goes through. What goes
through none is the *skip part* of the layer: I for :math:`x + F(N(x))`, and for
:math:`N(x + F(x))`, where no identity is left, the Jacobian of the norm, since
:math:`J_N(I + J_F) = J_N + J_NJ_F`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from derive import linalg
from derive.calculus.derivation import Derivation
from derive.calculus.maps import JacobianOf
from derive.calculus.tensor import Product, Sum, is_scalar, product, total
from derive.depth.opaque import is_norm, opaque_block
from derive.depth.stack import Stack
from derive.depth.streams import StreamBlocks, StreamStack
from derive.errors import DomainError
from derive.linalg import BlockMatrix, Operator, ScaledMatrix, Zero
from derive.linalg.continuum import magnus, refinements
from derive.linalg.contributions import (
    Contribution,
    branch_contributions,
    layers_product,
)
from derive.linalg.factors import Factor
from derive.linalg.path_shares import (
    EffectiveLengths,
    effective_lengths,
    log_graded_remainder_bound,
    norm_shares,
    overlap,
    path_energies,
)
from derive.linalg.paths import Label, graded_path_sums
from derive.linalg.strong_paths import StrongPaths, strongest_paths
from derive.lower import Environment, Lowering

__all__ = [
    "PathExpansion",
    "continuum_row",
    "expansion_row",
    "layer_terms",
    "path_expansion",
    "stack_terms",
]


def layer_terms(jacobian: sp.Basic) -> dict[Label, sp.Basic]:
    r"""Split a Jacobian into its terms by the sublayers that they go through.

    .. math:: J = \sum_b J_b, \qquad
        (I + J_F)\,J_N\,(I + J_A) = J_N + J_NJ_A + J_FJ_N + J_FJ_NJ_A

    Parameters
    ----------
    jacobian : expression
        A derived Jacobian in which sublayers are nodes DF(u), as `opaque_block` gives.

    Returns
    -------
    dict from tuple of names to expression
        The names in the order in which the sublayers act; ``()`` is the skip part and missing where
        there is none.
    """
    return dict(_terms(jacobian))


@lru_cache(maxsize=256)
def _terms(expr: sp.Basic) -> tuple[tuple[Label, sp.Basic], ...]:
    if isinstance(expr, JacobianOf) and not is_norm(expr.mapping):
        return (((expr.mapping.name,), expr),)
    found: dict[Label, sp.Basic] = {}
    if isinstance(expr, Sum):
        for term in expr.args:
            for label, part in _terms(term):
                found[label] = total([found[label], part]) if label in found else part
    elif isinstance(expr, Product):
        found[()] = sp.S.One
        for factor in reversed(expr.args):  # the last factor acts first
            parts = ((), factor) if is_scalar(factor) else None
            after: dict[Label, sp.Basic] = {}
            for label, part in _terms(factor) if parts is None else (parts,):
                for before, word in found.items():
                    joined = (*before, *label)
                    new = product([part, word])
                    after[joined] = total([after[joined], new]) if joined in after else new
            found = after
    elif not getattr(expr, "is_ZeroMatrix", False):
        found[()] = expr
    return tuple(found.items())


def stack_terms(stack: Stack, x: Any) -> list[dict[Label, Operator]]:
    """Return the terms of every layer's Jacobian along the trajectory from `x`, as operators.

    Parameters
    ----------
    stack : Stack
        The stack.
    x : array (n, d)
        Its input; the stack may have several streams.

    Returns
    -------
    list of dict from tuple of names to Operator
        What adds up to the operators of ``stack.jacobians(x)``.

    Raises
    ------
    ShapeError, WeightError, DomainError, UnknownNodeError
        As for `derive.lower.lower`.
    """
    states = stack.states(x)[:-1]
    if isinstance(stack, StreamStack):
        return [
            _stream_terms(stack, blocks, stack._named(weights, state), state[0])
            for blocks, weights, state in zip(stack.blocks, stack.weights, states, strict=True)
        ]
    return [
        _lowered_terms(stack, found, weights, state)
        for found, weights, state in zip(stack.derivations, stack.weights, states, strict=True)
    ]


def _lowered_terms(
    stack: Stack, found: Derivation, weights: Mapping[str, Any], state: np.ndarray
) -> dict[Label, Operator]:
    opaque = opaque_block(found.block, found.state)
    env = Environment(weights, state, {**opaque.maps(weights), **(stack.maps or {})})
    env.prepare(opaque.jacobian)
    lowering = Lowering(env)
    return {b: lowering(part) for b, part in layer_terms(opaque.jacobian).items()}


def _stream_terms(
    stack: StreamStack, matrix: StreamBlocks, weights: Mapping[str, Any], state: np.ndarray
) -> dict[Label, Operator]:
    """Return the terms of a layer with several streams, each a block matrix."""
    blocks = {pair: _lowered_terms(stack, found, weights, state) for pair, found in matrix.items()}
    nothing = Zero(len(state), state.shape[1], state.shape[1])
    return {
        label: BlockMatrix(
            [[blocks[a, b].get(label, nothing) for b in stack.names] for a in stack.names]
        )
        for label in dict.fromkeys(label for terms in blocks.values() for label in terms)
    }


@dataclass(frozen=True)
class PathExpansion:
    r"""The sum over paths of a stack's Jacobian M, to the lengths that were asked for.

    All logarithms are natural. Lists by length run over k = 0..K.

    Attributes
    ----------
    layers, order, longest : int
        L, K, and the largest number of branches on any path.
    log_norms, log_frobenius_norms : list of float
        Logs of the spectral and Frobenius norm of :math:`S_k`.
    overlaps : list of float
        :math:`\langle S_k, M\rangle_F/\lVert M\rVert_F^2`.
    rest_overlap : float
        What the longer paths have of it: with `overlaps` it adds up to 1.
    norm_shares : list of float
        :math:`\lVert S_k\rVert_F/\sum_{j\le K}\lVert S_j\rVert_F`, among the lengths up to K.
    log_energies : list of float
        Logs of :math:`E_k`, the sum of the squared norms of single paths.
    energy_shares : list of float
        :math:`E_k/\sum_jE_j` over all lengths, also those above K.
    effective : EffectiveLengths
        Over all lengths.
    mean_length_by_norm : float
        :math:`\sum_kk\lVert S_k\rVert_F/\sum_k\lVert S_k\rVert_F`; NaN unless K is `longest`.
    log_norm : float
        Log of the spectral norm of M.
    log_errors : list of float
        Log of :math:`\lVert M-\sum_{j\le k}S_j\rVert_2`, as it is.
    log_error_bounds : list of float
        Log of the rigorous bound on it.
    contributions : list of Contribution
        By layer and branch.
    strong : StrongPaths
        The strongest single paths.
    """

    layers: int
    order: int
    longest: int
    log_norms: list[float]
    log_frobenius_norms: list[float]
    overlaps: list[float]
    rest_overlap: float
    norm_shares: list[float]
    log_energies: list[float]
    energy_shares: list[float]
    effective: EffectiveLengths
    mean_length_by_norm: float
    log_norm: float
    log_errors: list[float]
    log_error_bounds: list[float]
    contributions: list[Contribution]
    strong: StrongPaths
    sums: list[ScaledMatrix] = field(repr=False)
    product: ScaledMatrix = field(repr=False)


def path_expansion(
    stack: Stack,
    x: Any,
    order: int | None = None,
    *,
    strong: int = 8,
    strong_length: int = 2,
    max_candidates: int = 1000,
) -> PathExpansion:
    r"""Expand the Jacobian of a stack over paths.

    .. math:: \frac{dx_L}{dx_0} = \prod_l\Bigl(P_l+\sum_bA_{l,b}\Bigr) = \sum_kS_k

    with the skip part :math:`P_l` of the derived Jacobian and its terms :math:`A_{l,b}` through
    branches. It takes O(K L) products, though there are :math:`2^L` paths and more.

    Parameters
    ----------
    stack : Stack
        The stack.
    x : array (n, d)
        Its input.
    order : int, optional
        K; the longest path there is unless given, which it may exceed.
    strong, strong_length, max_candidates : int
        As ``count``, ``max_length`` and ``max_candidates`` of
        `derive.linalg.strong_paths.strongest_paths`.

    Returns
    -------
    PathExpansion

    Raises
    ------
    DomainError
        If `order` is negative, or the sums do not fit into memory.
    ShapeError, WeightError, UnknownNodeError
        As for `derive.lower.lower`.
    """
    if order is not None and order < 0:
        raise DomainError(f"order: expected an integer >= 0, got {order}")
    size = int(stack.states(x)[0].size)
    layers = _formed(stack_terms(stack, x), size)
    longest = sum(max(map(len, layer)) for layer in layers)
    kept = longest if order is None else min(order, longest)
    sums = graded_path_sums(layers, kept, size=size)
    whole = layers_product(layers, size=size)
    energies = path_energies(layers, kept, size=size)
    effective = effective_lengths(layers, size=size)
    shares = [overlap(s, whole) for s in sums]
    by_norm = norm_shares(sums)
    norms: list[dict[Label, linalg.Operator | np.ndarray | float]] = [
        {label: linalg.spectral_norm(term) for label, term in layer.items()} for layer in layers
    ]
    return PathExpansion(
        layers=stack.layers,
        order=kept,
        longest=longest,
        log_norms=[s.log_norm() for s in sums],
        log_frobenius_norms=[s.log_norm("fro") for s in sums],
        overlaps=shares,
        rest_overlap=0.0 if kept == longest else 1.0 - math.fsum(shares),
        norm_shares=by_norm.tolist(),
        log_energies=energies.tolist(),
        energy_shares=_against(energies, effective.log_energy).tolist(),
        effective=effective,
        mean_length_by_norm=float(by_norm @ np.arange(kept + 1)) if kept == longest else math.nan,
        log_norm=whole.log_norm(),
        log_errors=_log_errors(sums, whole),
        log_error_bounds=[log_graded_remainder_bound(norms, k) for k in range(kept + 1)],
        contributions=branch_contributions(layers, size=size),
        strong=strongest_paths(
            layers, strong, strong_length, max_candidates=max_candidates, size=size
        ),
        sums=sums,
        product=whole,
    )


# What is formed at most, and the width up to which a structured skip part is formed as well.
_FORMED_BYTES = 2 * 2**30
_DENSE_WIDTH = 64


def _formed(layers: list[dict[Label, Operator]], size: int) -> list[dict[Label, Factor]]:
    """Return the layers with their branches formed: each is multiplied with matrices many times."""
    if sum(map(len, layers)) * size**2 * 8 > _FORMED_BYTES:
        return [dict(layer) for layer in layers]
    return [
        {
            label: linalg.materialise(term)
            if label or (size <= _DENSE_WIDTH and not isinstance(term, linalg.Identity))
            else term
            for label, term in layer.items()
        }
        for layer in layers
    ]


def _against(logs: np.ndarray, log_total: float) -> np.ndarray:
    if log_total == -math.inf:
        return np.full(len(logs), math.nan)
    return np.exp(logs - log_total)


def _log_errors(sums: list[ScaledMatrix], whole: ScaledMatrix) -> list[float]:
    """Return the log norm of what is left of the product after the sums up to every length.

    Below about machine epsilon times the largest summand it is rounding.
    """
    errors = []
    rest, scale = whole.matrix, whole.log_scale
    for part in sums:
        top = max(scale, part.log_scale)
        rest = rest * math.exp(scale - top) - part.matrix * math.exp(part.log_scale - top)
        scale = top
        errors.append(ScaledMatrix(rest, scale).log_norm())
    return errors


def expansion_row(found: PathExpansion) -> dict[str, Any]:
    """Return an expansion as plain lists and numbers, as `derive paths --json` prints it."""
    lengths = [
        {
            "length": k,
            "log_norm": found.log_norms[k],
            "log_frobenius_norm": found.log_frobenius_norms[k],
            "overlap": found.overlaps[k],
            "norm_share": found.norm_shares[k],
            "log_energy": found.log_energies[k],
            "energy_share": found.energy_shares[k],
            "log_error": found.log_errors[k],
            "log_error_bound": found.log_error_bounds[k],
        }
        for k in range(found.order + 1)
    ]
    return {
        "layers": found.layers,
        "order": found.order,
        "longest": found.longest,
        "log_norm": found.log_norm,
        "lengths": lengths,
        "rest_overlap": found.rest_overlap,
        "effective_length": {
            "overlap": found.effective.overlap,
            "energy": found.effective.energy,
            "norm": found.mean_length_by_norm,
        },
        "contributions": [asdict(c) for c in found.contributions],
        "strong_paths": {
            "certified": found.strong.certified,
            "examined": found.strong.examined,
            "log_rest": found.strong.log_rest,
            "paths": [
                {"branches": [list(b) for b in p.branches], "log_norm": p.log_norm}
                for p in found.strong.paths
            ],
        },
    }


def continuum_row(stack: Stack, x: Any, order: int = 4) -> dict[str, Any]:
    r"""Return how far a stack is from its continuum limit, as `derive paths --continuum` prints it.

    The branches are :math:`A_l = J_l - I` also where the skip part is not the identity; they are
    then not small, and the comparison says so.

    Parameters
    ----------
    stack : Stack
        The stack.
    x : array (n, d)
        Its input.
    order : int
        Terms of the Magnus series.

    Raises
    ------
    DomainError
        If an exponential overflows.
    ShapeError, WeightError, UnknownNodeError
        As for `derive.lower.lower`.
    """
    branches = [linalg.materialise(a) for a in stack.branches(x)]
    size = int(stack.states(x)[0].size)
    series = magnus(branches, order, size=size)
    return {
        "refinements": [asdict(r) for r in refinements(branches, size=size)],
        "magnus": {
            "norms": series.norms,
            "errors": series.errors,
            "action": series.action,
            "converges": series.converges,
        },
    }
