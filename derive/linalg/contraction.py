"""Operators that mix tokens, given as sums of products of arrays with named axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from derive.errors import ShapeError, UnknownNodeError
from derive.linalg.arrays import Array, as_array, as_count
from derive.linalg.operator import Operator
from derive.linalg.tensor import Labelled, contract, work

__all__ = ["Contraction", "Term"]

Term: TypeAlias = tuple[Labelled, ...]

_TRANSPOSED = {"i": "j", "j": "i", "r": "c", "c": "r"}


class Contraction(Operator):
    r"""A token-mixing operator written as a sum of einsum terms.

    .. math:: J_{(i, r), (j, c)} = \sum_t \sum_{\text{other labels}} \prod_f F_{t, f}

    A term is a tuple of factors ``(array, labels)``. The labels ``"i"`` (output token), ``"j"``
    (input token), ``"r"`` (output row) and ``"c"`` (input column) are reserved; every other
    label is summed. A term without ``"j"`` is block diagonal: it stands for
    :math:`\delta_{ij}` times the product. A term without ``"i"`` is the same for every output
    token. ``"r"`` and ``"c"`` occur in every term.

    The value path of attention is ``((p, ("h", "i", "j")), (Wo, ("h", "r", "a")), (Wv, ("h",
    "a", "c")))``.

    Parameters
    ----------
    terms : sequence of sequences of (array_like, sequence of str)
        The terms; labels are identifiers, one for each axis, distinct within a factor.
    tokens, rows, cols : int
        Number of tokens, output width and input width.

    Attributes
    ----------
    terms : tuple of terms, with their arrays checked
    tokenwise : bool
        Whether no term has ``"j"``.

    Raises
    ------
    ShapeError
        If there is no term, labels do not fit an array, a label has two sizes, or "r" or "c" is
        missing.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If a factor is not an (array, labels) pair.

    Notes
    -----
    Products run in the order of fewest multiply-adds, found once for given shapes and number of
    columns. Applied to a vector they pass through the vector, so that no block of size
    rows x cols is formed.

    Examples
    --------
    >>> import numpy as np
    >>> mean = Contraction([[(np.full((2, 2), 0.5), "ij"), (np.eye(3), "rc")]], 2, 3, 3)
    >>> mean @ np.array([0.0, 1.0, 2.0, 2.0, 1.0, 0.0])
    array([1., 1., 1., 1., 1., 1.])
    """

    terms: tuple[Term, ...]

    def __init__(
        self,
        terms: Sequence[Sequence[tuple[npt.ArrayLike, Sequence[str]]]],
        tokens: int,
        rows: int,
        cols: int,
    ) -> None:
        tokens = as_count("tokens", tokens)
        rows = as_count("rows", rows)
        cols = as_count("cols", cols)
        sizes = {"i": tokens, "j": tokens, "r": rows, "c": cols}
        if not terms:
            raise ShapeError("terms: expected at least one term, got none")
        self.terms = tuple(
            _checked(f"terms[{place}]", term, dict(sizes)) for place, term in enumerate(terms)
        )
        super().__init__(tokens, rows, cols, tokenwise=not any(map(mixes, self.terms)))

    def _apply(self, x: Array) -> Array:
        columns = x.shape[2]
        x = np.broadcast_to(x, (self.tokens, self.cols, columns))
        total = np.zeros((self.tokens, self.rows, columns), np.result_type(x, self.dtype))
        for term in self.terms:
            token = "j" if mixes(term) else "i"
            total += contract((*term, (x, (token, "c", "*"))), ("i", "r", "*"))
        return total

    @cached_property
    def _work(self) -> int:
        one = np.broadcast_to(0.0, (self.tokens, self.cols))
        total = sum(
            work((*term, (one, ("j" if mixes(term) else "i", "c"))), ("i", "r"))
            for term in self.terms
        )
        return -(-total // self.tokens)

    @cached_property
    def _transposed(self) -> Contraction:
        terms = tuple(_transpose(term) for term in self.terms)
        return self._altered(self.tokens, self.cols, self.rows, terms=terms)


def mixes(term: Term) -> bool:
    """Whether a term mixes tokens: whether it names an input token of its own."""
    return any("j" in labels for _, labels in term)


def _transpose(term: Term) -> Term:
    names = _TRANSPOSED if mixes(term) else _TRANSPOSED | {"i": "i"}
    return tuple((array, tuple(names.get(s, s) for s in labels)) for array, labels in term)


def _checked(
    name: str, term: Sequence[tuple[npt.ArrayLike, Sequence[str]]], sizes: dict[str, int]
) -> Term:
    """Check the factors of one term and make the output token explicit."""
    factors: list[Labelled] = []
    for place, factor in enumerate(term):
        where = f"{name}[{place}]"
        if not isinstance(factor, Sequence) or len(factor) != 2:
            raise UnknownNodeError(
                f"{where}: expected a pair (array, labels), got {type(factor).__name__}"
            )
        labels = tuple(factor[1])
        if not all(isinstance(label, str) and label.isidentifier() for label in labels):
            raise ShapeError(f"{where}: expected labels that are identifiers, got {labels}")
        if len(set(labels)) != len(labels):
            raise ShapeError(f"{where}: expected distinct labels, got {labels}")
        array = as_array(where, factor[0], range(8))
        if array.ndim != len(labels):
            raise ShapeError(
                f"{where}: expected one label for each axis of shape {array.shape}, got {labels}"
            )
        for label, size in zip(labels, array.shape, strict=True):
            if sizes.setdefault(label, size) != size:
                raise ShapeError(
                    f"{where}: expected size {sizes[label]} for label {label!r}, "
                    f"got shape {array.shape} with labels {labels}"
                )
        factors.append((array, labels))
    present = {label for _, labels in factors for label in labels}
    for label in ("r", "c"):
        if label not in present:
            raise ShapeError(
                f"{name}: expected a factor with label {label!r}, got {sorted(present)}"
            )
    if "i" not in present:
        ones = np.ones(sizes["i"])
        ones.flags.writeable = False
        factors.append((ones, ("i",)))
    return tuple(factors)
