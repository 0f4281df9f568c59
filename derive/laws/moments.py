r"""What is known of a random signal of n tokens: its mean squares and mean products.

Where no token differs from another two numbers are enough. Behind a causal mask the first token
differs from the last, and the state is the n x n matrix :math:`C_{ij} = \mathbb E\,x_i\cdot x_j/d`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Moments", "TokenMoments"]

Number = Any


class Moments(NamedTuple):
    """Mean square of an entry, and mean product of the same entry at two tokens."""

    v: Number
    c: Number

    @property
    def squares(self) -> Number:
        """Return the mean square of every token: the same number for all."""
        return self.v

    def times(self, a: Number, b: Number) -> Moments:
        """Return the moments between a times one signal and b times the other."""
        return Moments(a * b * self.v, a * b * self.c)

    def plus(self, other: Moments) -> Moments:
        """Return the sum: the moments of a sum of uncorrelated signals."""
        return Moments(self.v + other.v, self.c + other.c)

    def like(self, v: Number, c: Number) -> Moments:
        """Return moments that are the same for all tokens."""
        return Moments(v, c)

    def dropped(self, keep: Number) -> Moments:
        """Return the moments behind dropout, whose masks are independent between tokens."""
        return Moments(self.v / keep, self.c) if keep != 1 else self

    def ratio(self) -> Number:
        """Return the correlation of two tokens, 0 of a signal that is 0."""
        if self.v == 0:
            return 0
        rho = self.c / self.v
        return min(1.0, max(-1.0, rho)) if isinstance(rho, float) else rho

    def mean(self) -> Moments:
        """Return the moments averaged over tokens."""
        return self


@dataclass(frozen=True, eq=False)
class TokenMoments:
    r"""The moments of tokens that differ.

    Attributes
    ----------
    matrix : array
        :math:`C_{ij} = \mathbb E\,x_i\cdot x_j/d`, ``(n, n)``.
    """

    matrix: np.ndarray

    @classmethod
    def exchangeable(cls, moments: Moments, tokens: int) -> TokenMoments:
        """Return the matrix of tokens that do not differ."""
        matrix = np.full((tokens, tokens), float(moments.c))
        np.fill_diagonal(matrix, float(moments.v))
        return cls(matrix)

    @property
    def squares(self) -> np.ndarray:
        """Return the mean square of every token."""
        return np.diagonal(self.matrix)

    @property
    def v(self) -> float:
        """Return the mean square, averaged over tokens."""
        return float(self.squares.mean())

    @property
    def c(self) -> float:
        """Return the mean product of two different tokens, averaged over pairs."""
        count = len(self.matrix)
        if count == 1:
            return self.v
        return float(self.matrix.sum() - self.squares.sum()) / (count * (count - 1))

    def times(self, a: Number, b: Number) -> TokenMoments:
        """Return the moments between a times one signal and b times the other, token by token."""
        left, right = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
        return TokenMoments(left[..., None] * right * self.matrix)

    def plus(self, other: TokenMoments) -> TokenMoments:
        """Return the sum: the moments of a sum of uncorrelated signals."""
        return TokenMoments(self.matrix + other.matrix)

    def like(self, v: Number, c: Number) -> TokenMoments:
        """Return moments that are the same for all tokens."""
        return TokenMoments.exchangeable(Moments(v, c), len(self.matrix))

    def dropped(self, keep: float) -> TokenMoments:
        """Return the moments behind dropout, whose masks are independent between tokens."""
        return TokenMoments(self.matrix + np.diag(self.squares * (1 / keep - 1)))

    def ratio(self) -> np.ndarray:
        """Return the correlations of tokens, 0 with a token that is 0."""
        root = np.sqrt(self.squares)
        unit = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        rho = np.clip(unit[:, None] * unit * self.matrix, -1.0, 1.0)
        np.fill_diagonal(rho, (root > 0).astype(float))
        return rho

    def mean(self) -> Moments:
        """Return the moments averaged over tokens."""
        return Moments(self.v, self.c)
