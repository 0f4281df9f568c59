"""The expansion of a residual product over paths, grouped by the number of branches they take."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from derive.errors import DomainError
from derive.linalg.arrays import Array, as_count
from derive.linalg.composition import Sum
from derive.linalg.contraction import Contraction
from derive.linalg.factors import Factor, as_branches, width_in
from derive.linalg.operator import Operator
from derive.linalg.tokenwise import Dense, Identity

__all__ = ["first_order", "path_sums"]


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
    # Axis 1 counts the branches taken, so that one product serves all lengths.
    sums = np.zeros((width, longest + 1, width))
    sums[:, 0, :] = np.eye(width)
    for place, branch in enumerate(checked):
        reach = min(place + 1, longest)
        if not reach:
            break
        shorter = sums[:, :reach, :].reshape(width, reach * width)
        with np.errstate(over="ignore", invalid="ignore"):
            longer = branch @ shorter
            sums[:, 1 : reach + 1, :] += longer.reshape(width, reach, width)
    if not np.isfinite(sums).all():
        raise DomainError("branches: expected path sums within double precision, got an overflow")
    return [np.ascontiguousarray(sums[:, k, :]) for k in range(longest + 1)]


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
