r"""A factor of which more is known than its rounded entries: exact and nearly null directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg.arrays import Array, as_array, as_count
from derive.linalg.blocks import shared_blocks
from derive.linalg.factors import Factor, as_factor
from derive.linalg.materialise import materialise, token_blocks
from derive.linalg.operator import Operator

__all__ = ["Complement", "Deflatable", "DeflatedFactor", "as_deflated", "factor_blocks", "without"]


class DeflatedFactor:
    r"""A square factor J with left directions that it annihilates, or nearly.

    For every token i, with v a column of `null` and w one of `weak`,

    .. math:: v_i^\top J = 0, \qquad w_i^\top J = \rho_i

    where the rows :math:`\rho_i` are known apart from J, to the relative precision of a double:
    :math:`w_i^\top J` computed from the entries of J has the rounding errors of J itself.

    Parameters
    ----------
    factor : Operator or ndarray
        J; an array counts as one token.
    null : array_like, shape (n, d, r), optional
        Left null vectors of each token, linearly independent.
    weak : array_like, shape (n, d, q), optional
        Left directions that J nearly annihilates, independent of them.
    weak_rows : sequence of q Operators or ndarrays, optional
        The rows :math:`\rho`, each a map from the state to one component a token.
    nullity : int, optional
        How many dimensions each token loses under J: r by default, and more where the vectors are
        not known.

    Attributes
    ----------
    factor, null, weak, weak_rows, nullity
        As above; the arrays checked, without directions where there are none.

    Raises
    ------
    ShapeError
        If J is not square, or shapes do not fit.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If J or a row is neither an Operator nor an ndarray.
    DomainError
        If `nullity` is not an integer from r to d.
    """

    def __init__(
        self,
        factor: Factor,
        null: npt.ArrayLike | None = None,
        weak: npt.ArrayLike | None = None,
        weak_rows: Sequence[Factor] = (),
        nullity: int | None = None,
    ) -> None:
        self.factor = as_factor("factor", factor)
        if self.factor.shape[0] != self.factor.shape[1]:
            raise ShapeError(f"factor: expected a square matrix, got shape {self.factor.shape}")
        self.null = self._directions("null", null)
        self.weak = self._directions("weak", weak)
        self.weak_rows = tuple(as_factor(f"weak_rows[{k}]", r) for k, r in enumerate(weak_rows))
        if len(self.weak_rows) != self.weak.shape[2]:
            raise ShapeError(
                f"weak_rows: expected one for each of {self.weak.shape[2]} directions, got "
                f"{len(self.weak_rows)}"
            )
        for k, row in enumerate(self.weak_rows):
            if row.shape != (self.tokens, self.factor.shape[1]):
                raise ShapeError(
                    f"weak_rows[{k}]: expected shape {(self.tokens, self.factor.shape[1])}, got "
                    f"{row.shape}"
                )
        known = self.null.shape[2]
        self.nullity = known if nullity is None else as_count("nullity", nullity, least=known)
        if max(self.nullity, known + len(self.weak_rows)) > self.width:
            raise DomainError(
                f"nullity: expected at most {self.width}, the width, got {self.nullity} with "
                f"{known} null and {len(self.weak_rows)} weak directions"
            )

    @property
    def tokens(self) -> int:
        """Number of tokens n; 1 for an array."""
        return self.factor.tokens if isinstance(self.factor, Operator) else 1

    @property
    def width(self) -> int:
        """Components d of a token."""
        return int(self.factor.shape[0]) // self.tokens

    @property
    def tokenwise(self) -> bool:
        """Whether J is block diagonal over more than one token."""
        return isinstance(self.factor, Operator) and self.factor.tokenwise and self.tokens > 1

    @property
    def graded(self) -> bool:
        """Whether left directions are known."""
        return bool(self.null.shape[2] + self.weak.shape[2])

    def _directions(self, name: str, value: npt.ArrayLike | None) -> Array:
        if value is None:
            return np.zeros((self.tokens, self.width, 0))
        array = as_array(name, value, 3)
        if array.shape[:2] != (self.tokens, self.width):
            raise ShapeError(
                f"{name}: expected shape ({self.tokens}, {self.width}, directions), got "
                f"{array.shape}"
            )
        return array


Deflatable: TypeAlias = Factor | DeflatedFactor


def as_deflated(name: str, item: object) -> DeflatedFactor:
    """Return a factor with what is known of its null directions.

    Raises
    ------
    ShapeError, WeightError, UnknownNodeError
        As for `DeflatedFactor`; the message has `name`.
    """
    if isinstance(item, DeflatedFactor):
        return item
    factor = as_factor(name, item)
    if factor.shape[0] != factor.shape[1]:
        raise ShapeError(f"{name}: expected a square matrix, got shape {factor.shape}")
    return DeflatedFactor(factor)


def factor_blocks(factor: Factor, groups: int) -> Array:
    """Return a matrix as one block, or the blocks of its tokens: ``(groups, rows, cols)``."""
    if isinstance(factor, Operator) and factor.tokens == 1 and factor.tokenwise:
        return shared_blocks(factor)
    if groups == 1:
        return materialise(factor)[None]
    if not isinstance(factor, Operator):
        raise UnknownNodeError(f"factor: expected an Operator, got {type(factor).__name__}")
    return token_blocks(factor)


def without(null: Array, image: Array) -> Array:
    """Return an image (t * d, m) without its components along null directions (t, d, r)."""
    single = null.shape[2] == 1
    basis = null / np.linalg.norm(null, axis=1)[:, None] if single else np.linalg.qr(null)[0]
    by_token = image.reshape(len(null), -1, image.shape[1])
    return (by_token - basis @ (basis.transpose(0, 2, 1) @ by_token)).reshape(image.shape)


@dataclass(frozen=True, eq=False)
class Complement:
    r"""Coordinates of the complement of left null directions, with the weak directions last.

    `basis` (t, d, d - r) is orthonormal for each of t tokens; its last q columns span what the
    weak directions add, and `turn` (t, q, q) takes the rows :math:`\rho` to theirs.
    """

    basis: Array
    turn: Array

    @classmethod
    def of(cls, null: Array, weak: Array) -> Complement:
        """Return the coordinates by a QR factorisation of the directions (t, d, r) and (t, d, q).

        With W = N a + V T, where N spans the null directions, V'J = T^-T W'J.
        """
        r, q = null.shape[2], weak.shape[2]
        known = np.concatenate([null, weak], axis=2)
        scale = np.linalg.norm(known, axis=1, keepdims=True)
        whole, triangle = np.linalg.qr(known / scale, mode="complete")
        basis = np.concatenate([whole[:, :, r + q :], whole[:, :, r : r + q]], axis=2)
        turn = np.linalg.inv(triangle[:, r : r + q, r:]).transpose(0, 2, 1)
        return cls(basis, turn / scale[:, :, r:])

    def compress(self, image: Array, rows: Array) -> Array:
        """Return ``basis' image``, its weak rows replaced by those known apart and put last.

        `image` is (t * d, m), `rows` (t * q, m).
        """
        tokens, _, size = self.basis.shape
        weak, columns = self.turn.shape[1], image.shape[1]
        inside = self.basis.transpose(0, 2, 1) @ image.reshape(tokens, -1, columns)
        body = inside[:, : size - weak].reshape(-1, columns)
        if not weak:
            return body
        turned = self.turn @ rows.reshape(tokens, weak, columns)
        return np.concatenate([body, turned.reshape(-1, columns)])

    def expand(self, frame: Array) -> Array:
        """Return the vectors (t * d, m) that have these coordinates."""
        tokens, _, size = self.basis.shape
        weak, columns = self.turn.shape[1], frame.shape[1]
        parts = np.split(frame, [tokens * (size - weak)])
        inside = [part.reshape(tokens, -1, columns) for part in parts]
        return (self.basis @ np.concatenate(inside, axis=1)).reshape(-1, columns)
