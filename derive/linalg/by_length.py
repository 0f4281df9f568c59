"""One matrix for every path length, each with an exponent of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from derive.errors import DomainError
from derive.linalg.arrays import Array
from derive.linalg.factors import Factor
from derive.linalg.tokenwise import Identity

__all__ = ["NOTHING", "Apply", "ByLength", "apply_to_stack"]

NOTHING = -(2**40)
"""The exponent of a zero matrix."""

Apply: TypeAlias = Callable[[Factor, Array], Array]


class ByLength:
    """Matrices by path length, each a mantissa and an exponent of two: ``stack[k] 2**e[k]``."""

    def __init__(self, stack: Array, exponents: Array) -> None:
        self.stack = stack
        self.exponents = exponents

    def after(self, terms: list[tuple[int, Factor]], longest: int, apply: Apply) -> ByLength:
        """Return the matrices after one more layer, given as (degree, factor)."""
        top = max(degree for degree, _ in terms)
        count = min(len(self.stack) + top, longest + 1)
        target = np.full(count, NOTHING)
        images = []
        for degree, factor in terms:
            reach = min(len(self.stack), count - degree)
            if reach <= 0:
                continue
            image = apply(factor, self.stack[:reach])
            peak = np.abs(image).max(axis=(1, 2))
            if not np.isfinite(peak).all():
                raise DomainError(
                    "layers: expected products within double precision, got an overflow within "
                    "one layer"
                )
            shift = np.where(peak > 0, np.frexp(peak)[1], 0)
            size = np.where(peak > 0, self.exponents[:reach] + shift, NOTHING)
            target[degree : degree + reach] = np.maximum(target[degree : degree + reach], size)
            images.append((degree, reach, image))
        stack = np.zeros((count, *self.stack.shape[1:]))
        for degree, reach, image in images:
            # In two steps: a shift may be more than one power of two can hold.
            down = self.exponents[:reach] - target[degree : degree + reach]
            down = np.clip(down, -3000, 3000).astype(np.int32)[:, None, None]
            half = down // 2
            stack[degree : degree + reach] += np.ldexp(np.ldexp(image, half), down - half)
        return ByLength(stack, target)


def apply_to_stack(factor: Factor, stack: Array) -> Array:
    """Return ``factor @ stack[k]`` for every k, by one product."""
    if isinstance(factor, Identity):
        return stack
    count, rows, columns = stack.shape
    with np.errstate(over="ignore", invalid="ignore"):
        flat = factor @ stack.transpose(1, 0, 2).reshape(rows, count * columns)
    return flat.reshape(-1, count, columns).transpose(1, 0, 2)
