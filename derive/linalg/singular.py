r"""The singular spectrum of one product: its values as logarithms, and what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from derive.errors import DomainError
from derive.linalg.arrays import Array

__all__ = ["METHODS", "Side", "Spectrum", "alignments", "block_diagonal", "identity", "simple"]

Side = Literal["input", "output"]

METHODS = ("svd", "jacobi", "two passes")
"""How the values of one product were found, from the cheapest to the surest."""

_EPS = float(np.finfo(np.float64).eps)
_GAP = 1e-8  # relative gap below which a leading vector is not determined


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""The singular spectrum of one product, as natural logarithms.

    Attributes
    ----------
    log_values : array
        Logs of all singular values, largest first; exact null directions give -inf.
    shape : tuple of int
        Rows and columns of the product.
    left, right : array
        The leading singular vectors; NaN where the largest value is not simple (its relative gap
        to the next is below 1e-8), so that no vector is the leading one.
    method : str
        One of `METHODS`. ``svd``: of the rescaled product, where its smallest value is above 1e-4
        times the largest; ``jacobi``: preconditioned one-sided Jacobi of the graded product, where
        its scaled condition permits; ``two passes``: `log_singular_values` on the factors.
    """

    log_values: Array
    shape: tuple[int, int]
    left: Array
    right: Array
    method: str

    @property
    def log_norm(self) -> float:
        r""":math:`\log\sigma_1`, the log of the spectral norm."""
        return float(self.log_values[0])

    @property
    def log_frobenius(self) -> float:
        r""":math:`\frac12\log\sum_k\sigma_k^2`, the log of the Frobenius norm."""
        relative = self._relative()
        return (
            self.log_norm + 0.5 * math.log(float(np.sum(relative**2)))
            if relative.any()
            else (-math.inf)
        )

    @property
    def log_condition(self) -> float:
        r""":math:`\log\sigma_1-\log\sigma_{\min}`; inf if the product is singular."""
        smallest = float(self.log_values[-1])
        return self.log_norm - smallest if math.isfinite(smallest) else math.inf

    def numerical_rank(self, tol: float | None = None) -> int:
        r"""Return the number of singular values above ``tol`` times the largest.

        Parameters
        ----------
        tol : float, optional
            Machine epsilon times the larger side unless said.

        Raises
        ------
        DomainError
            If ``tol`` is not in [0, 1).

        Notes
        -----
        Source: Golub and Van Loan, Matrix Computations, 4th ed., section 5.4.1. The default is
        that of NumPy's ``matrix_rank``; here the values themselves are not noise below it.
        """
        chosen = _EPS * max(self.shape) if tol is None else tol
        if not (isinstance(chosen, int | float) and 0 <= chosen < 1):
            raise DomainError(f"tol: expected a number in [0, 1), got {tol!r}")
        if not math.isfinite(self.log_norm):
            return 0
        floor = self.log_norm + math.log(chosen) if chosen else -math.inf
        return int(np.count_nonzero(self.log_values > floor))

    @property
    def effective_rank(self) -> float:
        r""":math:`\exp H(p)` with :math:`p_k=\sigma_k/\sum_j\sigma_j`; 0 for the zero matrix.

        Source: Roy and Vetterli, The effective rank: a measure of effective dimensionality,
        EUSIPCO 2007, definition 1.
        """
        relative = self._relative()
        if not relative.any():
            return 0.0
        share = relative / relative.sum()
        share = share[share > 0]
        return math.exp(-float(np.sum(share * np.log(share))))

    @property
    def participation_ratio(self) -> float:
        r""":math:`(\sum_k\sigma_k^2)^2/\sum_k\sigma_k^4`; 0 for the zero matrix.

        How many directions share the squared Frobenius norm; at most the effective rank of the
        squared values. Source: Bell and Dean, Atomic vibrations in vitreous silica, Discussions of
        the Faraday Society 50 (1970), the reciprocal of their moment ratio.
        """
        relative = self._relative() ** 2
        return float(relative.sum() ** 2 / np.sum(relative**2)) if relative.any() else 0.0

    def _relative(self) -> Array:
        """Return the singular values over the largest."""
        if not math.isfinite(self.log_norm):
            return np.zeros(self.log_values.shape)
        with np.errstate(under="ignore"):
            return np.exp(self.log_values - self.log_norm)

    @property
    def T(self) -> Spectrum:
        """The spectrum of the transposed product."""
        return Spectrum(self.log_values, self.shape[::-1], self.right, self.left, self.method)


def alignments(spectra: Sequence[Spectrum], side: Side = "input") -> list[float]:
    r"""Return :math:`\lvert\cos\rvert` between leading singular vectors of successive products.

    The vectors live in the space that the products share: the right ones, at :math:`x_0`, for
    products from the input; the left ones, at :math:`x_L`, for products to the output.

    Returns
    -------
    list of float
        The first is NaN; so is what belongs to a product whose largest value is not simple.
    """
    vectors = [s.right if side == "input" else s.left for s in spectra]
    cosines = [float(np.minimum(1.0, abs(a @ b))) for a, b in pairwise(vectors)]
    return [math.nan, *cosines] if vectors else []


def identity(width: int) -> Spectrum:
    """Return the spectrum of the identity."""
    vector = np.full(width, np.nan if width > 1 else 1.0)
    return Spectrum(np.zeros(width), (width, width), vector, vector, METHODS[0])


def block_diagonal(found: list[Spectrum]) -> Spectrum:
    """Return the spectrum of the block-diagonal matrix with these blocks."""
    if len(found) == 1:
        return found[0]
    values = np.sort(np.concatenate([s.log_values for s in found]))[::-1]
    rows, cols = found[0].shape
    leader = int(np.argmax([s.log_norm for s in found]))
    alone = simple(values)

    def embedded(vector: Array) -> Array:
        whole = np.full((len(found), len(vector)), 0.0 if alone else np.nan)
        if alone:
            whole[leader] = vector
        return whole.ravel()

    return Spectrum(
        values,
        (len(found) * rows, len(found) * cols),
        embedded(found[leader].left),
        embedded(found[leader].right),
        METHODS[max(METHODS.index(s.method) for s in found)],
    )


def simple(log_values: Array) -> bool:
    """Whether the largest value is well apart from the next."""
    if not math.isfinite(log_values[0]):
        return False
    return len(log_values) == 1 or bool(log_values[0] - log_values[1] > _GAP)
