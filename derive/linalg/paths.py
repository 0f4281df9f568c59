"""The expansion of a residual product over paths, grouped by the number of branches they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from derive.errors import DomainError, ShapeError, UnknownNodeError
from derive.linalg.arrays import Array, as_count
from derive.linalg.by_length import NOTHING, ByLength, apply_to_stack
from derive.linalg.composition import Sum
from derive.linalg.contraction import Contraction
from derive.linalg.factors import Factor, as_branches, as_factor, width_in
from derive.linalg.operator import Operator
from derive.linalg.scaled import LOG_2, ScaledMatrix
from derive.linalg.tokenwise import Dense, Identity

__all__ = ["Label", "Layer", "as_layers", "first_order", "graded_path_sums", "path_sums"]

Label: TypeAlias = tuple[str, ...]
"""The branches that a term of a layer goes through, the first applied first; ``()`` is the skip."""

Layer: TypeAlias = Mapping[Label, Factor]
"""A layer's Jacobian as a sum of terms, each under the branches that it goes through."""

# Room for the sums of all lengths; a step holds about four times as much.
_MAX_BYTES = 2**30


def path_sums(
    branches: Iterable[Factor], max_length: int | None = None, *, size: int | None = None
) -> list[Array]:
    r"""Return the sums over all paths that take k branches, for k = 0..K.

    .. math:: \prod_{l=L-1}^{0} (I + A_l) = \sum_{k=0}^{L} S_k, \qquad
        S_k = \sum_{l_1 < \dots < l_k} A_{l_k} \cdots A_{l_1}

    by the recurrence :math:`S_k \leftarrow S_k + A_l S_{k-1}` over the layers: K L products in
    place of the :math:`\binom{L}{k}` of the definition.

    Parameters
    ----------
    branches : iterable of Operator or ndarray
        ``[A_0, ..., A_{L-1}]``, square, the first applied first.
    max_length : int, optional
        K, 0 to L; all lengths unless given. At K = L the sums add up to the product.
    size : int, optional
        The width that an empty list stands for.

    Returns
    -------
    list of ndarray, K + 1 arrays of shape (size, size)

    Raises
    ------
    ShapeError
        If a branch is not square or of another size, or the list is empty without ``size``.
    DomainError
        If ``max_length`` is outside 0..L, or a sum overflows.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If a branch is neither an Operator nor an ndarray.

    Notes
    -----
    Source: Veit, Wilber and Belongie, Residual networks behave like ensembles of relatively
    shallow networks, NeurIPS 2016, equation (6), for the paths.

    Examples
    --------
    >>> import numpy as np
    >>> [float(s[0, 0]) for s in path_sums([np.eye(1), 2 * np.eye(1), 3 * np.eye(1)])]
    [1.0, 6.0, 11.0, 6.0]
    """
    checked = as_branches(branches)
    width = width_in("branches", checked, size)
    longest = len(checked) if max_length is None else as_count("max_length", max_length, least=0)
    if longest > len(checked):
        raise DomainError(f"max_length: expected 0 to {len(checked)} branches, got {max_length}")
    skip = Identity(1, width)
    scaled = graded_path_sums([{(): skip, ("A",): a} for a in checked], longest, size=width)
    try:
        return [total.value() for total in scaled]
    except DomainError:
        raise DomainError(
            "branches: expected path sums within double precision, got an overflow; "
            "use graded_path_sums, which keeps them in log scale"
        ) from None


def graded_path_sums(
    layers: Iterable[Layer], max_length: int | None = None, *, size: int | None = None
) -> list[ScaledMatrix]:
    r"""Return the sums over all paths of k branches for layers with any skip part, in log scale.

    .. math:: \prod_{l=L-1}^{0} \sum_j z^j B_{l,j} = \sum_k z^k S_k

    A layer is a sum of terms, one for each set of branches that a path may take in it;
    :math:`B_{l,j}` is the sum of its terms through j branches, :math:`B_{l,0}` the skip part. For
    :math:`I + A_l` these are I and :math:`A_l`; for :math:`J_N (I + J_F)` they are :math:`J_N` and
    :math:`J_N J_F`; a layer of attention and feed-forward has terms of two branches as well. By the
    recurrence :math:`S_k \leftarrow \sum_j B_{l,j} S_{k-j}`: K L products in place of
    :math:`2^L` paths. Every :math:`S_k` has an exponent of its own, so that none overflows.

    Parameters
    ----------
    layers : iterable of mappings from Label to Operator or ndarray
        The first applied first; every term square and of one size.
    max_length : int, optional
        K; the longest path there is unless given.
    size : int, optional
        The width that an empty list stands for.

    Returns
    -------
    list of ScaledMatrix, K + 1 of shape (size, size)

    Raises
    ------
    ShapeError
        If a term is not square or of another size, a layer has no term, or the list is empty
        without ``size``.
    DomainError
        If ``max_length`` is out of range, one layer overflows by itself, or K + 1 matrices take
        more than 1 GiB.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If a term is neither an Operator nor an ndarray, or a label is not a tuple.

    Examples
    --------
    >>> import numpy as np
    >>> layer = {(): 2 * np.eye(1), ("F",): 3 * np.eye(1)}
    >>> [float(s.value()[0, 0]) for s in graded_path_sums([layer] * 2)]
    [4.0, 12.0, 9.0]
    """
    checked = as_layers(layers)
    width = layer_width(checked, size)
    longest_there_is = sum(max(map(len, layer)) for layer in checked)
    longest = (
        longest_there_is if max_length is None else as_count("max_length", max_length, least=0)
    )
    if longest > longest_there_is:
        raise DomainError(
            f"max_length: expected 0 to {longest_there_is} branches, got {max_length}"
        )
    if (longest + 1) * width * width * 8 > _MAX_BYTES:
        raise DomainError(
            f"max_length: expected {longest + 1} matrices of shape {(width, width)} within 1 GiB; "
            "lower max_length (the order), the tokens or the width"
        )
    sums = ByLength(np.eye(width)[None], np.zeros(1, dtype=np.int64))
    for layer in checked:
        sums = sums.after(
            [(len(label), factor) for label, factor in layer.items()], longest, apply_to_stack
        )
    missing = longest + 1 - len(sums.stack)
    stack = [*sums.stack, *np.zeros((missing, width, width))]
    exponents = [*sums.exponents, *[0] * missing]
    return [
        ScaledMatrix(np.ascontiguousarray(m), (int(e) if e > NOTHING else 0) * LOG_2)
        for m, e in zip(stack, exponents, strict=True)
    ]


def as_layers(layers: Iterable[Layer]) -> list[dict[Label, Factor]]:
    """Check layers that are sums of terms.

    Raises
    ------
    UnknownNodeError, ShapeError, WeightError
        As for `graded_path_sums`.
    """
    if isinstance(layers, Mapping | Operator) or not isinstance(layers, Iterable):
        raise UnknownNodeError(
            f"layers: expected a list of layers, each a mapping from labels to factors, got "
            f"{type(layers).__name__}"
        )
    checked: list[dict[Label, Factor]] = []
    width: int | None = None
    for place, layer in enumerate(layers):
        if not isinstance(layer, Mapping):
            raise UnknownNodeError(
                f"layers[{place}]: expected a mapping from labels to factors, got "
                f"{type(layer).__name__}"
            )
        if not layer:
            raise ShapeError(f"layers[{place}]: expected at least one term, got none")
        terms: dict[Label, Factor] = {}
        for label, factor in layer.items():
            if not isinstance(label, tuple):
                raise UnknownNodeError(
                    f"layers[{place}]: expected labels that are tuples of branch names, got "
                    f"{label!r}"
                )
            terms[label] = as_factor(f"layers[{place}][{label!r}]", factor)
            width = terms[label].shape[0] if width is None else width
            if terms[label].shape != (width, width):
                raise ShapeError(
                    f"layers[{place}][{label!r}]: expected shape {(width, width)}, got "
                    f"{terms[label].shape}"
                )
        checked.append(terms)
    return checked


def layer_width(layers: list[dict[Label, Factor]], size: int | None) -> int:
    """Return the width of checked layers, or `size` where there is none."""
    return width_in("layers", tuple(next(iter(layer.values())) for layer in layers[:1]), size)


def first_order(branches: Iterable[Factor], *, size: int | None = None) -> Operator:
    r"""Return the first-order expansion of a residual product, as a lazy sum.

    .. math:: \prod_l (I + A_l) \approx S_0 + S_1 = I + \sum_l A_l

    Parameters
    ----------
    branches : iterable of Operator or ndarray
        ``[A_0, ..., A_{L-1}]``, square and of one size.
    size : int, optional
        The width that an empty list stands for.

    Returns
    -------
    Operator
        Over the tokens of the operators in the list; one token if all are arrays.

    Raises
    ------
    ShapeError
        If a branch is not square or of another size, operators do not have the same tokens, or
        the list is empty without ``size``.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If a branch is neither an Operator nor an ndarray.
    """
    checked = as_branches(branches)
    width = width_in("branches", checked, size)
    tokens = next((branch.tokens for branch in checked if isinstance(branch, Operator)), 1)
    lifted = (
        _as_operator(branch, tokens) if isinstance(branch, np.ndarray) else branch
        for branch in checked
    )
    return Sum(Identity(tokens, width // tokens), *lifted)


def _as_operator(matrix: Array, tokens: int) -> Operator:
    """Return a flat matrix as an operator that may mix all tokens."""
    if tokens == 1:
        return Dense(matrix, 1)
    width = matrix.shape[0] // tokens
    grid = matrix.reshape(tokens, width, tokens, width)
    return Contraction([[(grid, ("i", "r", "j", "c"))]], tokens, width, width)
