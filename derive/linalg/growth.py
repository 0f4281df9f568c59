r"""Singular spectra of the products at every depth, in one sweep.

From the input, :math:`dx_l/dx_0 = J_{l-1}\cdots J_0`, and to the output,
:math:`dx_L/dx_l = J_{L-1}\cdots J_l`, for every l. A QR factorisation at every layer carries the
product as :math:`Q_l\,D\,T`, with the rows of T about as long as one another and D apart as powers
of two, so that the next depth costs one layer, not l of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

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
from derive.linalg.singular import METHODS, Side, Spectrum, block_diagonal, identity, simple
from derive.linalg.spectrum import log_singular_values

__all__ = ["product_spectra"]

_EPS = float(np.finfo(np.float64).eps)
_SVD_FLOOR = 1e-4  # above it an SVD knows each value to about eps/1e-4 = 2e-12
_SURE = 1e7  # condition of T up to which the graded values are taken: 1e7 eps = 2e-9
_DOUBLE_RANGE = 1000  # powers of two between the rows that still fit into doubles
_CACHE_BYTES = 2**30


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
    found = {0: identity(outer)}
    if any(steps.values()):
        formed = _Formed(checked, side, form_limit)
        for step, spectrum in _sweep(formed, max(steps.values()), rank_tol, set(steps.values())):
            found[step] = spectrum if side == "input" else spectrum.T
    return [found[steps[p]] for p in wanted]


def _place(place: int, depth: int) -> int:
    checked = as_count("places", place, least=0)
    if checked > depth:
        raise DomainError(f"places: expected 0 to {depth}, got {place}")
    return checked


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
            yield step, block_diagonal(found)


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
        alone = simple(logs)
        return Spectrum(
            logs,
            (self.outputs, cols),
            self.frame @ left if alone else np.full(self.outputs, np.nan),
            self.start @ right if alone else np.full(cols, np.nan),
            method,
        )
