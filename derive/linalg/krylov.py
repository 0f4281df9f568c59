r"""Block Krylov iteration for the largest singular triplets of a product that is never formed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from derive.errors import DomainError
from derive.linalg.arrays import Array
from derive.linalg.factors import Factor, apply_transposed
from derive.linalg.scaled import LOG_2, split_exponent

__all__ = ["applied", "applied_transposed", "block_krylov"]

_EPS = float(np.finfo(np.float64).eps)
_EXTRA = 2  # columns of a block beyond those wanted


def applied(factors: Iterable[Factor], x: Array) -> tuple[Array, int]:
    """Return the product times the columns of ``x`` as a mantissa and an exponent of two."""
    exponent = 0
    for factor in factors:
        x, shift = split_exponent(factor @ x)
        exponent += shift
    return x, exponent


def applied_transposed(factors: tuple[Factor, ...], x: Array) -> tuple[Array, int]:
    """Return the transposed product times the columns of ``x``, likewise."""
    exponent = 0
    for factor in reversed(factors):
        x, shift = split_exponent(apply_transposed(factor, x))
        exponent += shift
    return x, exponent


def block_krylov(
    factors: tuple[Factor, ...], count: int, tol: float, max_steps: int
) -> tuple[Array, Array, Array]:
    """Return the largest triplets of the product by block Krylov iteration, never forming it."""
    cols = factors[0].shape[1]
    start = np.random.default_rng(0).standard_normal((cols, min(count + _EXTRA, cols)))
    block = np.linalg.qr(start)[0]
    basis, images, grams = block[:, :0], np.empty((factors[-1].shape[0], 0)), block[:, :0]
    reference = 0
    worst = math.inf
    for step in range(max_steps):
        image, exponent = applied(factors, block)
        gram, back = applied_transposed(factors, image)
        if not step:
            reference = exponent  # M is divided by 2**reference, about its size
        basis = np.hstack([basis, block])
        images = np.hstack([images, np.ldexp(image, exponent - reference)])
        gram = np.ldexp(gram, exponent + back - 2 * reference)
        grams = np.hstack([grams, gram])
        left, values, turn = np.linalg.svd(images, full_matrices=False)
        left, values, right = left[:, :count], values[:count], turn[:count].T
        vectors = basis @ right
        if not values.all():
            worst = 0.0 if not values[0] else math.inf
        else:  # M'u - s v, with M'u from the stored M'M v
            error = grams @ right / values - vectors * values
            worst = float(np.linalg.norm(error, axis=0).max() / values[0])
        block = _orthogonal(gram, basis)
        if worst <= tol / 2 or not block.shape[1]:
            logs = np.full(count, -np.inf)
            np.log(values, out=logs, where=values > 0)
            return logs + reference * LOG_2, left, vectors
    raise DomainError(
        f"max_steps: expected residuals up to {tol:.1e} within {max_steps} block Krylov steps, got "
        f"{worst:.1e}; raise max_steps or tol"
    )


def _orthogonal(block: Array, basis: Array) -> Array:
    """Return an orthonormal basis of what the block adds to the basis."""
    size = np.linalg.norm(block, axis=0)
    block = block[:, size > 0] / size[size > 0]
    for _ in range(2):
        block = block - basis @ (basis.T @ block)
    frame, values, _ = np.linalg.svd(block, full_matrices=False)
    frame = frame[:, values > _EPS * len(basis)]
    return frame[:, : len(basis) - basis.shape[1]]
