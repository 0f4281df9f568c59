r"""Singular spectra of the products at every depth, in one sweep.

From the input, :math:`dx_l/dx_0 = J_{l-1}\cdots J_0`, and to the output,
:math:`dx_L/dx_l = J_{L-1}\cdots J_l`, for every l. A QR factorisation at every layer carries the
product as :math:`Q_l\,D\,T`, with the rows of T about as long as one another and D apart as powers
of two, so that the next depth costs one layer, not l of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dgejsv

from derive.errors import DomainError
from derive.linalg.arrays import Array, as_count
from derive.linalg.factors import Factor, as_factors, width_in
from derive.linalg.graded import graded_log_values, image_frame, scaled_rows, times_rows
from derive.linalg.materialise import materialise, token_blocks
from derive.linalg.operator import Operator
from derive.linalg.products import FORM_LIMIT
from derive.linalg.scaled import LOG_2, split_exponent
from derive.linalg.spectrum import log_singular_values

__all__ = ["METHODS", "Side", "Spectrum", "alignments", "product_spectra"]

Side = Literal["input", "output"]

METHODS = ("svd", "jacobi", "two passes")
"""How the values of one product were found, from the cheapest to the surest."""

_EPS = float(np.finfo(np.float64).eps)
_SVD_FLOOR = 1e-4  # above it an SVD knows each value to about eps/1e-4 = 2e-12
_SURE = 1e7  # condition of T up to which the graded values are taken: 1e7 eps = 2e-9
_DOUBLE_RANGE = 1000  # powers of two between the rows that still fit into doubles
_GAP = 1e-8  # relative gap below which a leading vector is not determined
_CACHE_BYTES = 2**30


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


def product_spectra(
    factors: Iterable[Factor],
    places: Sequence[int] | None = None,
    *,
    side: Side = "input",
    size: int | None = None,
    rank_tol: float | None = None,
    form_limit: int = FORM_LIMIT,
) -> list[Spectrum]:
    r"""Return the singular spectra of the products at the given depths.

    .. math:: \text{input: } J_{l-1}\cdots J_0,\qquad \text{output: } J_{L-1}\cdots J_l

    Parameters
    ----------
    factors : iterable of Operator or ndarray
        ``[J_0, ..., J_{L-1}]``, the first applied first. Operators are materialised, one at a
        time; what acts on each token alone is kept as one block a token.
    places : sequence of int, optional
        The depths l, 0 to L; all of them unless said.
    side : str
        ``"input"`` or ``"output"``.
    size : int, optional
        The width of the identity that an empty list stands for.
    rank_tol : float, optional
        As for `log_singular_values`: what of a factor counts as zero.
    form_limit : int
        The largest side of a block to form.

    Returns
    -------
    list of Spectrum
        In the order of ``places``.

    Raises
    ------
    ShapeError
        If shapes do not follow one another, or the list is empty without ``size``.
    DomainError
        If a depth is outside 0..L, ``side`` or ``rank_tol`` is not one that exists, one factor
        overflows, or a block is larger than ``form_limit``.
    WeightError
        If an array is not real and finite.
    UnknownNodeError
        If a factor is neither an Operator nor an ndarray.

    Notes
    -----
    Accuracy: as for `log_singular_values`. The first frame is that of the right singular vectors
    of the whole product, so that the fast directions come first at every depth. A graded product
    :math:`D T` gives each value to about machine epsilon times the condition of T; where that
    condition is above 1e7 the value is computed afresh from the factors in two passes.

    Sources: Demmel and Veselic (1992), Drmac and Veselic (2008), as for `log_singular_values`;
    LAPACK's ``dgejsv``, whose scaled condition estimate is the check.

    Examples
    --------
    >>> import numpy as np
    >>> spectra = product_spectra([np.diag([2.0, 0.5])] * 3)
    >>> [round(float(s.log_condition / np.log(4.0)), 12) for s in spectra]
    [0.0, 1.0, 2.0, 3.0]
    >>> [s.numerical_rank(0.1) for s in spectra]
    [2, 2, 1, 1]
    """
    checked = as_factors("factors", factors)
    width = width_in("factors", checked, size)
    if side not in ("input", "output"):
        raise DomainError(f"side: expected 'input' or 'output', got {side!r}")
    if rank_tol is not None and not (isinstance(rank_tol, int | float) and 0 <= rank_tol < 1):
        raise DomainError(f"rank_tol: expected None or a number in [0, 1), got {rank_tol!r}")
    depth = len(checked)
    wanted = list(range(depth + 1)) if places is None else [_place(p, depth) for p in places]
    steps = {p: p if side == "input" else depth - p for p in wanted}
    outer = width if side == "input" or not checked else checked[-1].shape[0]
    found = {0: _identity(outer)}
    if any(steps.values()):
        formed = _Formed(checked, side, form_limit)
        for step, spectrum in _sweep(formed, max(steps.values()), rank_tol, set(steps.values())):
            found[step] = spectrum if side == "input" else _transposed(spectrum)
    return [found[steps[p]] for p in wanted]


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


def _place(place: int, depth: int) -> int:
    checked = as_count("places", place, least=0)
    if checked > depth:
        raise DomainError(f"places: expected 0 to {depth}, got {place}")
    return checked


def _identity(width: int) -> Spectrum:
    vector = np.full(width, np.nan if width > 1 else 1.0)
    return Spectrum(np.zeros(width), (width, width), vector, vector, METHODS[0])


def _transposed(found: Spectrum) -> Spectrum:
    return Spectrum(found.log_values, found.shape[::-1], found.right, found.left, found.method)


class _Formed:
    """The factors as stacks of blocks (tokens or 1, rows, cols), in the order of the sweep."""

    def __init__(self, factors: tuple[Factor, ...], side: Side, limit: int) -> None:
        self.factors = factors if side == "input" else factors[::-1]
        self.turned = side == "output"
        tokens = {f.tokens if isinstance(f, Operator) and f.tokenwise else 0 for f in factors}
        self.tokenwise = len(tokens) == 1 and 0 not in tokens
        self.tokens = tokens.pop() if self.tokenwise else 1
        largest = max(max(f.shape) for f in factors) // self.tokens
        if largest > limit:
            raise DomainError(
                f"factors: expected blocks of at most {limit} rows and columns to take every "
                f"singular value of, got {largest}; take the largest ones by top_triplets, or "
                "raise form_limit"
            )
        room = sum(math.prod(f.shape) for f in factors) * 8 // self.tokens
        self._kept: dict[int, Array] | None = {} if room <= _CACHE_BYTES else None

    def __getitem__(self, step: int) -> Array:
        if self._kept is not None and step in self._kept:
            return self._kept[step]
        factor = self.factors[step]
        if self.tokenwise:
            assert isinstance(factor, Operator)
            blocks = token_blocks(factor)
        else:
            blocks = materialise(factor)[None]
        blocks = blocks.transpose(0, 2, 1) if self.turned else blocks
        if self._kept is not None:
            self._kept[step] = blocks
        return blocks

    def token(self, token: int, steps: int) -> list[Array]:
        """Return the first factors of one block of the product."""
        return [self[step][token] for step in range(steps)]


def _sweep(
    formed: _Formed, steps: int, rank_tol: float | None, listed: set[int]
) -> Iterator[tuple[int, Spectrum]]:
    """Yield the listed products, each from the one before it."""
    whole = formed[0]
    for step in range(1, steps):
        whole = formed[step] @ split_exponent(whole)[0]
    parts = [_Graded(np.linalg.svd(block)[2].T) for block in split_exponent(whole)[0]]
    for step in range(1, steps + 1):
        for part, block in zip(parts, formed[step - 1], strict=True):
            part.advance(block, rank_tol)
        if step in listed:
            found = []
            for token, part in enumerate(parts):
                spectrum = part.spectrum()
                if spectrum is None:
                    values = log_singular_values(formed.token(token, step), rank_tol=rank_tol)
                    spectrum = part.with_values(values)
                found.append(spectrum)
            yield step, _merged(found)


def _merged(found: list[Spectrum]) -> Spectrum:
    """Return the spectrum of the block-diagonal matrix with these blocks."""
    if len(found) == 1:
        return found[0]
    values = np.sort(np.concatenate([s.log_values for s in found]))[::-1]
    rows, cols = found[0].shape
    leader = int(np.argmax([s.log_norm for s in found]))
    simple = _simple(values)

    def embedded(vector: Array) -> Array:
        whole = np.full((len(found), len(vector)), 0.0 if simple else np.nan)
        if simple:
            whole[leader] = vector
        return whole.ravel()

    return Spectrum(
        values,
        (len(found) * rows, len(found) * cols),
        embedded(found[leader].left),
        embedded(found[leader].right),
        METHODS[max(METHODS.index(s.method) for s in found)],
    )


def _simple(log_values: Array) -> bool:
    """Whether the largest value is well apart from the next."""
    if not math.isfinite(log_values[0]):
        return False
    return len(log_values) == 1 or bool(log_values[0] - log_values[1] > _GAP)


class _Graded:
    """One block of the product as ``frame @ diag(2**exponents) @ rows @ start.T``."""

    def __init__(self, start: Array) -> None:
        self.start = self.frame = start
        self.rows, self.exponents = scaled_rows(np.eye(len(start)))
        self.exponent = 0
        self.outputs = len(start)

    def advance(self, matrix: Array, rank_tol: float | None) -> None:
        tol = _EPS * max(matrix.shape) if rank_tol is None else rank_tol
        self.outputs = len(matrix)
        if not len(self.rows):
            return
        mantissa, shift = split_exponent(matrix)
        floor = tol * float(np.linalg.norm(mantissa))
        self.frame, triangle = image_frame(mantissa @ self.frame, floor)
        self.exponent += shift
        if len(triangle):
            self.rows, self.exponents = times_rows(triangle, self.rows, self.exponents)
        else:
            self.rows = self.rows[:0]

    def spectrum(self) -> Spectrum | None:
        """Return the spectrum, or None where the grading does not let its values be sure."""
        if not len(self.rows):
            return self.with_values(np.empty(0))
        top = int(self.exponents.max())
        scale = (top + self.exponent) * LOG_2
        spread = top - int(self.exponents.min())
        if spread > _DOUBLE_RANGE:
            values, condition = graded_log_values(self.rows, self.exponents - top)
            return None if condition > _SURE else self.with_values(scale + values, METHODS[1])
        graded = np.ldexp(self.rows, (self.exponents - top)[:, None])
        if spread < -math.log2(_SVD_FLOOR):
            left, values, right = scipy.linalg.svd(graded, full_matrices=False)
            if values[-1] > _SVD_FLOOR * values[0]:
                return self._found(scale + np.log(values), left[:, 0], right[0], METHODS[0])
        values, right, left, work, _, info = dgejsv(
            np.asfortranarray(graded.T), joba=1, jobu=0, jobv=0, jobr=0, jobt=0, jobp=0
        )
        if info or work[2] > _SURE or not values.all():
            return None
        scale += math.log(work[0]) - math.log(work[1])
        return self._found(scale + np.log(values), left[:, 0], right[:, 0], METHODS[1])

    def with_values(self, values: Array, method: str = METHODS[2]) -> Spectrum:
        """Return the spectrum with values found elsewhere, the vectors from the leading rows."""
        if not len(self.rows):
            nothing = np.empty(0)
            return self._found(values, nothing, nothing, METHODS[0])
        shifts = np.maximum(self.exponents - self.exponents.max(), -_DOUBLE_RANGE)
        left, _, right = scipy.linalg.svd(np.ldexp(self.rows, shifts[:, None]), full_matrices=False)
        return self._found(values, left[:, 0], right[0], method)

    def _found(self, values: Array, left: Array, right: Array, method: str) -> Spectrum:
        cols = len(self.start)
        logs = np.full(min(self.outputs, cols), -np.inf)
        logs[: len(values)] = values
        simple = _simple(logs)
        return Spectrum(
            logs,
            (self.outputs, cols),
            self.frame @ left if simple else np.full(self.outputs, np.nan),
            self.start @ right if simple else np.full(cols, np.nan),
            method,
        )
