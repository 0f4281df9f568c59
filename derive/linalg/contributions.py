r"""What all paths through one branch of a residual product add up to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from derive.errors import DomainError
from derive.linalg.arrays import Array
from derive.linalg.factors import Factor
from derive.linalg.path_shares import overlap
from derive.linalg.paths import Label, Layer, as_layers, layer_width
from derive.linalg.scaled import LOG_2, ScaledMatrix, split_exponent

__all__ = ["Contribution", "branch_contributions", "layers_product"]

# Room for the products of the first l layers, for all l.
_MAX_BYTES = 4 * 2**30


def layers_product(layers: Iterable[Layer], *, size: int | None = None) -> ScaledMatrix:
    r"""Return the product of the layers, all terms of each added: :math:`M = \sum_k S_k`.

    Raises
    ------
    ShapeError, DomainError, WeightError, UnknownNodeError
        As for `graded_path_sums`.
    """
    checked = as_layers(layers)
    (last,) = deque(_prefixes(checked, layer_width(checked, size)), maxlen=1)
    return last


def _prefixes(layers: Sequence[dict[Label, Factor]], width: int) -> Iterator[ScaledMatrix]:
    """Yield the products of the first l layers, for l = 0..L."""
    matrix, exponent = np.eye(width), 0
    yield ScaledMatrix(matrix)
    for layer in layers:
        matrix, shift = split_exponent(_whole(layer, matrix))
        exponent += shift
        yield ScaledMatrix(matrix, exponent * LOG_2)


def _whole(layer: dict[Label, Factor], matrix: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return sum((factor @ matrix for factor in layer.values()), np.zeros_like(matrix))


@dataclass(frozen=True)
class Contribution:
    r"""What all paths through one branch of one layer add up to, T.

    Attributes
    ----------
    layer : int
        The layer, counted from 0.
    branch : str
        The branch in it.
    overlap : float
        :math:`\langle T, M\rangle_F/\lVert M\rVert_F^2`.
    relative_norm : float
        :math:`\lVert T\rVert_F/\lVert M\rVert_F`: how far the product moves when the branch is
        deleted and every other Jacobian stays as it is.
    log_norm : float
        :math:`\log\lVert T\rVert_F`.
    """

    layer: int
    branch: str
    overlap: float
    relative_norm: float
    log_norm: float


def branch_contributions(layers: Iterable[Layer], *, size: int | None = None) -> list[Contribution]:
    r"""Return what the paths through each branch contribute, by one forward and one backward sweep.

    .. math:: T_{l,b} = J_{L-1}\cdots J_{l+1}\Bigl(\sum_{B\ni b}J_{l,B}\Bigr)J_{l-1}\cdots J_0

    with the terms :math:`J_{l,B}` of layer l through the branches B.

    Parameters
    ----------
    layers : iterable of mappings from Label to Operator or ndarray
        As for `graded_path_sums`; the names in the labels are the branches.
    size : int, optional
        The width that an empty list stands for.

    Returns
    -------
    list of Contribution
        Layer by layer. The overlaps add up to the effective path length of the overlap, since a
        path of k branches is counted k times.

    Raises
    ------
    DomainError
        If the products of the first l layers, for all l, take more than 4 GiB.
    ShapeError, WeightError, UnknownNodeError
        As for `graded_path_sums`.

    Notes
    -----
    Source: Veit, Wilber and Belongie 2016, section 4.1, delete a layer of a trained network and run
    it again; this is the same lesion on the linearised stack.
    """
    checked = as_layers(layers)
    width = layer_width(checked, size)
    if (len(checked) + 1) * width**2 * 8 > _MAX_BYTES:
        raise DomainError(
            f"layers: expected the {len(checked) + 1} prefixes of shape {(width, width)} within "
            "4 GiB; use fewer layers or tokens, or a smaller width"
        )
    prefixes = list(_prefixes(checked, width))
    whole = prefixes[-1]
    log_whole = whole.log_norm("fro")
    suffix, exponent = np.eye(width), 0
    found: list[Contribution] = []
    for place in range(len(checked) - 1, -1, -1):
        layer, prefix = checked[place], prefixes[place]
        here = []
        for name in dict.fromkeys(b for label in layer for b in label):
            through = {label: factor for label, factor in layer.items() if name in label}
            middle = _whole(through, prefix.matrix)
            part = ScaledMatrix(suffix @ middle, prefix.log_scale + exponent * LOG_2)
            log_norm = part.log_norm("fro")
            with np.errstate(over="ignore", invalid="ignore"):
                relative = float(np.exp(np.subtract(log_norm, log_whole)))
            here.append(Contribution(place, name, overlap(part, whole), relative, log_norm))
        found = here + found
        suffix, shift = split_exponent(_from_the_left(suffix, layer))
        exponent += shift
    return found


def _from_the_left(matrix: Array, layer: dict[Label, Factor]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return sum((factor.T @ matrix.T for factor in layer.values()), np.zeros_like(matrix)).T
