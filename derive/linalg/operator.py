"""The base of the structured operators: a linear map between sequences of tokens."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import FrozenInstanceError
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator

from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg.arrays import Array, as_array, as_count

__all__ = ["Operator"]


class Operator(LinearOperator):
    r"""A real linear map from ``n`` tokens of width ``cols`` to ``n`` tokens of width ``rows``.

    The state is stacked token-major: entry ``c`` of token ``j`` is component ``j * cols + c`` of
    a flat vector, so the matrix has blocks

    .. math:: J_{(i, r), (j, c)} = \partial y_{i, r} / \partial x_{j, c} .

    Arithmetic is double precision. ``A @ B``, ``A + B``, ``A - B``, ``-A``, ``c * A``, ``A / c``,
    ``A ** k``, ``A.T`` and ``A.H`` build structured operators again and form no matrix; with an
    array, ``A @ x`` applies the operator. An operator is frozen once built. It keeps views of
    the arrays it was given, not copies.

    Parameters
    ----------
    tokens : int
        Number of tokens n, at least 1.
    rows, cols : int
        Output and input width of a token, at least 1.
    tokenwise : bool
        Whether the operator is block diagonal over tokens.

    Attributes
    ----------
    tokens, rows, cols, tokenwise
        As above.
    shape : tuple of int
        ``(tokens * rows, tokens * cols)``.

    Raises
    ------
    DomainError
        If a count is not a positive integer.

    Notes
    -----
    A subclass sets its own attributes, then calls this constructor, which freezes it. It
    implements ``_apply`` and ``_transposed``; ``materialise`` then applies it to the identity
    unless a structured rule is registered.

    Source: ``scipy.sparse.linalg.LinearOperator``, whose interface this keeps.
    """

    tokens: int
    rows: int
    cols: int
    tokenwise: bool
    shape: tuple[int, int]

    def __init__(self, tokens: int, rows: int, cols: int, *, tokenwise: bool) -> None:
        self.tokens = as_count("tokens", tokens)
        self.rows = as_count("rows", rows)
        self.cols = as_count("cols", cols)
        self.tokenwise = tokenwise
        super().__init__(np.dtype(np.float64), (self.tokens * self.rows, self.tokens * self.cols))
        self._frozen = True

    def __setattr__(self, name: str, value: object) -> None:
        if "_frozen" in self.__dict__:
            raise FrozenInstanceError(
                f"{type(self).__name__} is frozen: expected no assignment, got one to {name!r}"
            )
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(
            f"{type(self).__name__} is frozen: expected no deletion, got one of {name!r}"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(tokens={self.tokens}, rows={self.rows}, cols={self.cols})"

    @abstractmethod
    def _apply(self, x: Array) -> Array:
        """Map ``x`` of shape (n, cols, k) to a fresh array of shape (n, rows, k).

        A tokenwise operator also takes a leading axis of 1, a state shared by all tokens, and
        may then answer with a leading axis of 1.
        """
        raise NotImplementedError

    @property
    @abstractmethod
    def _transposed(self) -> Operator:
        """The structured transpose."""
        raise NotImplementedError

    def _apply_transposed(self, x: Array) -> Array:
        """Map ``x`` of shape (n, rows, k) by the transpose, as ``_apply`` does by the operator."""
        return self._transposed._apply(x)

    def _altered(self, tokens: int, rows: int, cols: int, **attributes: Any) -> Self:
        """Return a copy with other attributes; what was checked once is not checked again."""
        copy = object.__new__(type(self))
        fields = copy.__dict__
        fields.update(self.__dict__)
        for cached in ("_transposed", "_work"):
            fields.pop(cached, None)
        shape = (tokens * rows, tokens * cols)
        fields.update(attributes, tokens=tokens, rows=rows, cols=cols, shape=shape)
        return copy

    @property
    def _work(self) -> int:
        """Multiply-adds of ``_apply`` for one token and one column."""
        return self.rows * self.cols

    # -- the interface of LinearOperator ------------------------------------------------------

    def _matmat(self, X: Array) -> Array:
        columns = X.shape[1]
        stacked = np.asarray(X).reshape(self.tokens, self.cols, columns)
        return self._apply(stacked).reshape(self.shape[0], columns)

    def _matvec(self, x: Array) -> Array:
        return self._matmat(x.reshape(-1, 1))

    def _rmatmat(self, X: Array) -> Array:
        columns = X.shape[1]
        stacked = np.asarray(X).reshape(self.tokens, self.rows, columns)
        return self._apply_transposed(stacked).reshape(self.shape[1], columns)

    def _rmatvec(self, x: Array) -> Array:
        return self._rmatmat(x.reshape(-1, 1))

    def _adjoint(self) -> Operator:
        return self._transposed

    def _transpose(self) -> Operator:
        return self._transposed

    def matvec(self, x: npt.ArrayLike) -> Array:
        """Return ``J x`` for ``x`` of shape (n * cols,) or (n * cols, 1).

        Raises
        ------
        ShapeError
            If ``x`` has another shape.
        """
        return super().matvec(_operand("x", x, self.shape[1], vector=True))

    def rmatvec(self, x: npt.ArrayLike) -> Array:
        """Return ``J^T x`` for ``x`` of shape (n * rows,) or (n * rows, 1).

        Raises
        ------
        ShapeError
            If ``x`` has another shape.
        """
        return super().rmatvec(_operand("x", x, self.shape[0], vector=True))

    def matmat(self, X: npt.ArrayLike) -> Array:
        """Return ``J X`` for ``X`` of shape (n * cols, k).

        Raises
        ------
        ShapeError
            If ``X`` has another shape.
        """
        return super().matmat(_operand("X", X, self.shape[1], vector=False))

    def rmatmat(self, X: npt.ArrayLike) -> Array:
        """Return ``J^T X`` for ``X`` of shape (n * rows, k).

        Raises
        ------
        ShapeError
            If ``X`` has another shape.
        """
        return super().rmatmat(_operand("X", X, self.shape[0], vector=False))

    # -- algebra ------------------------------------------------------------------------------

    def dot(self, x: Any) -> Any:
        """Return the product with an operator, a scalar, or an array of one or two axes.

        Raises
        ------
        ShapeError
            If the shapes do not fit together.
        """
        if isinstance(x, Operator):
            return _product(self, x)
        if isinstance(x, LinearOperator):
            return super().dot(x)
        if np.isscalar(x):
            return self._times(x)
        return self.matvec(x) if np.ndim(x) == 1 else self.matmat(x)

    def _rdot(self, x: Any) -> Any:
        if isinstance(x, LinearOperator):
            return super()._rdot(x)
        x = np.asarray(x)
        return self.rmatvec(x) if x.ndim == 1 else self.rmatmat(x.T).T

    def __rmul__(self, x: Any) -> Any:
        return self._times(x) if np.isscalar(x) else self._rdot(x)

    def __truediv__(self, other: Any) -> Operator:
        if np.isscalar(other) and other == 0:
            raise DomainError(f"divisor: expected a nonzero number, got {other!r}")
        return self._times(other, inverse=True)

    def __neg__(self) -> Operator:
        return self._times(-1.0)

    def __add__(self, x: Any) -> Any:
        if isinstance(x, Operator):
            from derive.linalg.composition import Sum

            return Sum(self, x)
        return super().__add__(x)

    def __sub__(self, x: Any) -> Any:
        return self.__add__(-x) if isinstance(x, LinearOperator) else NotImplemented

    def __pow__(self, p: int) -> Operator:
        power = as_count("exponent", p, least=0)
        if self.rows != self.cols:
            raise ShapeError(
                f"exponent: expected a square operator under it, got shape {self.shape}"
            )
        from derive.linalg.tokenwise import Identity

        return _product(Identity(self.tokens, self.rows), *([self] * power))

    def _times(self, factor: Any, *, inverse: bool = False) -> Operator:
        from derive.linalg.tokenwise import Scaling

        if not np.isscalar(factor) or isinstance(factor, str | bytes):
            raise UnknownNodeError(
                f"scalar factor: expected a real number, got {type(factor).__name__}"
            )
        value = as_array("scalar factor", np.asarray([factor]), 1)
        return _product(Scaling(1.0 / value if inverse else value, self.tokens, self.rows), self)


def _product(*factors: Operator) -> Operator:
    """Return the chain of ``factors``, or its only factor."""
    from derive.linalg.composition import Chain
    from derive.linalg.tokenwise import Identity

    chain = Chain(*factors)
    if not chain.factors:
        return Identity(chain.tokens, chain.rows)
    return chain.factors[0] if len(chain.factors) == 1 else chain


def _operand(name: str, x: npt.ArrayLike, size: int, *, vector: bool) -> Any:
    """Check the array that an operator is applied to."""
    if issparse(x):
        raise UnknownNodeError(f"{name}: expected a dense array, got {type(x).__name__}")
    array = np.asarray(x)
    fits = (
        array.shape in ((size,), (size, 1))
        if vector
        else (array.ndim == 2 and array.shape[0] == size)
    )
    if not fits:
        wanted = f"({size},) or ({size}, 1)" if vector else f"({size}, k)"
        raise ShapeError(f"{name}: expected shape {wanted}, got {array.shape}")
    return array
