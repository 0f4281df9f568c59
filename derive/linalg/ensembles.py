"""Squared Frobenius norms of the blocks of many tokens that share their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from derive.errors import ShapeError, UnknownNodeError
from derive.linalg.arrays import Array
from derive.linalg.blocks import chain_of, owned_blocks, with_diagonals_joined
from derive.linalg.composition import Chain, Sum
from derive.linalg.cost import forming_work
from derive.linalg.diagonal_plus_low_rank import DiagonalPlusLowRank, diagonal_plus_low_rank
from derive.linalg.operator import Operator
from derive.linalg.restriction import blocks_in_parts
from derive.linalg.tokenwise import Dense, Diagonal, Identity, Scaling

__all__ = ["token_square_norms"]

# Entries of the blocks that are formed at one time.
_ENTRIES_IN_WORK = 2**18


def token_square_norms(op: Operator) -> Array:
    r"""Return the squared Frobenius norm of the block of each token.

    Where all tokens share the matrices W and differ by diagonals D and by a norm's Jacobian
    :math:`N_t = c_t (\mathrm{diag}(e) + U_t V_t^\top)` at the right end,

    .. math:: A_t = W_2 D_t W_1 N_t, \qquad
        \lVert A_t \rVert_F^2 = c_t^2 \left( D_t^\top G D_t
        + 2 \langle W_2 D_t W_1 E V_t, W_2 D_t W_1 U_t \rangle + \dots \right),
        \qquad G = (W_1 E^2 W_1^\top) \circ (W_2^\top W_2),

    G is formed once, and no block. A skip connection adds :math:`2 a\, \mathrm{tr} A_t + a^2 d`;
    sums of such terms, as of a gated layer, add a G for each pair. What is not of this form has
    its blocks formed, a few at one time.

    Parameters
    ----------
    op : Operator
        Block diagonal over tokens.

    Returns
    -------
    ndarray, shape (n,)

    Raises
    ------
    ShapeError
        If ``op`` mixes tokens.
    UnknownNodeError
        If ``op`` is not an Operator.

    Notes
    -----
    The sum of the terms loses digits where they cancel: relative to the largest of them, it has
    those of double precision.
    """
    if not isinstance(op, Operator):
        raise UnknownNodeError(f"op: expected an Operator, got {type(op).__name__}")
    if not op.tokenwise:
        raise ShapeError(f"op: expected an operator that is block diagonal over tokens, got {op!r}")
    form = diagonal_plus_low_rank(op)
    if form is not None:
        return np.array(np.broadcast_to(_of_form(form), op.tokens))
    ensemble = _ensemble(op) if op.tokens > 1 else None
    if ensemble is not None and ensemble.pays(op):
        return ensemble.square_norms()
    found = np.empty(op.tokens)
    for part, blocks in blocks_in_parts(op, _ENTRIES_IN_WORK):
        found[part] = np.einsum("nrc,nrc->n", blocks, blocks)
    return found


def _of_form(form: DiagonalPlusLowRank) -> Array:
    u, v, e = form.left, form.right, form.diagonal
    total = (e * e).sum(axis=1)
    if form.rank:
        grams = np.matmul(u.transpose(0, 2, 1), u) * np.matmul(v.transpose(0, 2, 1), v)
        total = total + 2 * (e * (u * v).sum(axis=2)).sum(axis=1) + grams.sum(axis=(1, 2))
    return total


@dataclass(frozen=True)
class _Ensemble:
    """The blocks a I + c_t (sum_k L_k diag(D_kt) R_k) (diag(e) + U_t V_t') of the tokens t."""

    tokens: int
    skip: float
    scale: Array  # (n or 1,)
    terms: tuple[tuple[Array, Array, Array], ...]  # L (rows, f), D (n or 1, f), R (f, cols)
    norm: DiagonalPlusLowRank  # its diagonal is shared by all tokens

    def pays(self, op: Operator) -> bool:
        """Whether G takes fewer multiply-adds than the blocks."""
        inner = max(d.shape[1] for _, d, _ in self.terms)
        pairs = len(self.terms) * (len(self.terms) + 1) // 2
        return pairs * inner**2 * (op.rows + op.cols + self.tokens) < forming_work(op)

    def square_norms(self) -> Array:
        total, traces = np.zeros(self.tokens), np.zeros(1)
        e = self.norm.diagonal[0]
        for a, (left, d, right) in enumerate(self.terms):
            for b, (other_left, other_d, other_right) in enumerate(self.terms[: a + 1]):
                gram = left.T @ other_left
                scaled = right * e
                gram *= scaled @ (scaled if a == b else other_right * e).T
                both = 1.0 if a == b else 2.0
                total = total + both * ((d @ gram) * other_d).sum(axis=1)
        if self.norm.rank:
            # |A (E + U V')|^2 = |A E|^2 + 2 <A E V, A U> + tr(U'A'A U V'V)
            u, v = self.norm.left, self.norm.right
            image = self._applied(u)
            traces = (image * v).sum(axis=(1, 2)) if self.skip else traces
            total = total + 2 * (self._applied(e[:, None] * v) * image).sum(axis=(1, 2))
            grams = np.matmul(image.transpose(0, 2, 1), image)
            total = total + (grams * np.matmul(v.transpose(0, 2, 1), v)).sum(axis=(1, 2))
        total = total * self.scale**2
        if self.skip:
            rows = self.terms[0][0].shape[0]
            for left, d, right in self.terms:
                traces = traces + d @ ((right * e) * left.T).sum(axis=1)
            total = total + 2 * self.skip * self.scale * traces + self.skip**2 * rows
        return total

    def _applied(self, columns: Array) -> Array:
        """Return sum_k L_k D_kt R_k times columns (n or 1, cols, q), as (n, rows, q)."""
        total: Array | None = None
        for left, d, right in self.terms:
            rank = columns.shape[2]
            flat = columns.transpose(0, 2, 1).reshape(-1, columns.shape[1])
            middle = (flat @ right.T).reshape(-1, rank, right.shape[0]) * d[:, None, :]
            part = (middle.reshape(-1, right.shape[0]) @ left.T).reshape(-1, rank, left.shape[0])
            total = part if total is None else total + part
        assert total is not None
        return total.transpose(0, 2, 1)


def _ensemble(op: Operator) -> _Ensemble | None:
    """Read the operator as an ensemble, or return None."""
    skip = 0.0
    rest: list[Operator] = []
    for term in op.terms if isinstance(op, Sum) else (op,):
        if isinstance(term, Identity):
            skip += 1.0
        elif isinstance(term, Scaling) and len(term.factors) == 1:
            skip += float(term.factors[0])
        else:
            rest.append(term)
    if len(rest) != 1 or not isinstance(rest[0], Chain):
        return None
    scale, factors, norm = _without_norm(rest[0])
    if not factors:
        return None
    terms = _terms(factors)
    if terms is None or (skip and op.rows != op.cols):
        return None
    return _Ensemble(op.tokens, skip, scale, terms, norm)


def _without_norm(op: Chain) -> tuple[Array, tuple[Operator, ...], DiagonalPlusLowRank]:
    """Split off the scalars of the tokens and the longest right end that shares its diagonal."""
    scale = np.ones(1)
    factors: list[Operator] = []
    for factor in op.factors:
        if isinstance(factor, Scaling):
            scale = scale * factor.factors
        else:
            factors.append(factor)
    identity = diagonal_plus_low_rank(Identity(op.tokens, op.cols))
    assert identity is not None
    norm = identity
    while factors:
        form = diagonal_plus_low_rank(factors[-1])
        if form is None or len(form.diagonal) > 1 or 4 * (form.rank + norm.rank) > op.cols:
            break
        norm = form @ norm
        factors.pop()
    return scale, tuple(factors), norm


def _terms(factors: Sequence[Operator]) -> tuple[tuple[Array, Array, Array], ...] | None:
    """Read factors as a sum of matrix times diagonal times matrix."""
    if len(factors) == 1 and isinstance(factors[0], Sum):
        parts = [_terms(t.factors if isinstance(t, Chain) else (t,)) for t in factors[0].terms]
        if any(part is None for part in parts):
            return None
        return tuple(term for part in parts if part is not None for term in part)
    diagonals = [k for k, f in enumerate(factors) if isinstance(f, Diagonal) and len(f.entries) > 1]
    if not diagonals or not all(isinstance(f, Dense | Diagonal) for f in factors):
        return None
    first, last = diagonals[0], diagonals[-1]
    middle = list(with_diagonals_joined(factors[first : last + 1]))
    if len(middle) != 1 or not 0 < first <= last < len(factors) - 1:
        return None
    left, right = chain_of(factors[:first]), chain_of(factors[last + 1 :])
    matrices = [owned_blocks(side) for side in (left, right)]
    if any(len(matrix) > 1 for matrix in matrices):
        return None
    (diagonal,) = middle
    assert isinstance(diagonal, Diagonal)
    return ((matrices[0][0], diagonal.entries, matrices[1][0]),)
