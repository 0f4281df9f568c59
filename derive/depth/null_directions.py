r"""Directions that a block's Jacobian annihilates, found in its expression and proved for every d.

Candidates are the vectors that occur in a factor of the derived Jacobian (ones, a normalised
vector); the decision procedure of `derive.calculus.normal_form` accepts or rejects each. Nothing
here knows a norm by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import sympy as sp

from derive.calculus.atoms import Diag, Inner, Ones, Reciprocal, Vector
from derive.calculus.derivation import Derivation
from derive.calculus.let import Let, ScalarLet
from derive.calculus.normal_form import equal, is_zero
from derive.calculus.tensor import Product, Sum, is_scalar, product
from derive.errors import UnknownNodeError
from derive.symbols import eps

__all__ = ["NullDirections", "WeakDirection", "null_directions"]


@dataclass(frozen=True)
class WeakDirection:
    r"""A left direction w that J takes to a multiple of eps: :math:`w^\top J = \rho`, proved.

    Attributes
    ----------
    direction : expression
        The column w.
    factor : expression
        A number per token that goes to 0 with eps: :math:`\rho` is that multiple of a row.
    row : expression
        The row :math:`\rho`, factored, with no cancellation left in it.
    """

    direction: sp.Basic
    factor: sp.Expr
    row: sp.Basic


@dataclass(frozen=True)
class NullDirections:
    r"""What is proved of the null space of a Jacobian, per token and for every d.

    Attributes
    ----------
    left : tuple of expressions
        Independent columns v with :math:`v^\top J = 0`.
    weak : tuple of WeakDirection
        Independent of them.
    nullity : int
        Dimensions that each token loses: the most that one factor of J annihilates on either side.
        More than ``len(left)`` where the factor is not the first.
    """

    left: tuple[sp.Basic, ...]
    weak: tuple[WeakDirection, ...]
    nullity: int


def null_directions(found: Derivation) -> NullDirections:
    r"""Find the directions that a derived Jacobian annihilates.

    J is read as a product of factors, or as a sum of such products. With leading diagonals
    :math:`\operatorname{diag}(g)` of constant vectors and a factor M after them, the candidates are
    :math:`w/g` for the vectors w in an M that is the identity plus outer products:
    :math:`w^\top M = 0` makes it a null direction, :math:`w^\top M = \kappa w^\top` a weak one,
    with :math:`\kappa = \epsilon/s^2` or :math:`\epsilon/s` where w is divided by s.

    Parameters
    ----------
    found : Derivation
        The block with its Jacobian.

    Returns
    -------
    NullDirections
        Proved ones only. A direction that is not among them may be null all the same.

    Notes
    -----
    The claims are those of the theorems layernorm-null-vectors, rmsnorm-null-vectors and
    post-norm-null-vectors, decided anew for the Jacobian at hand.
    """
    return _null_directions(found.jacobian)


@lru_cache(maxsize=256)
def _null_directions(jacobian: sp.Basic) -> NullDirections:
    terms = [_Word.of(t) for t in (jacobian.args if isinstance(jacobian, Sum) else (jacobian,))]
    first = terms[0]
    left: list[sp.Basic] = []
    if all(term.diagonals == first.diagonals and term.kernel is not None for term in terms):
        shared = [w for w in _vectors(first.kernel) if all(_kills(w, t.kernel) for t in terms)]
        left = [first.divided(w) for w in _independent(shared)]
    if len(terms) > 1:
        return NullDirections(tuple(left), (), len(left))
    weak = [
        (w, kappa, product([*first.scalars, kappa, w.T, *first.rest]))
        for w in _vectors(first.kernel)
        if not _kills(w, first.kernel)
        for kappa in _small_factors(w)
        if _holds(w.T * first.kernel, kappa * w.T)
    ]
    kept = _independent([w for w, *_ in weak])
    chosen = [WeakDirection(first.divided(w), *facts) for w, *facts in weak if w in kept]
    return NullDirections(tuple(left), tuple(chosen), max([len(left), *_lost(jacobian)]))


def _small_factors(vector: sp.Basic) -> list[sp.Expr]:
    """Return the multiples of eps that a vector divided by a named scalar may be taken to."""
    if not isinstance(vector, Let) or not isinstance(vector.definition, Product):
        return []
    powers = [f for f in vector.definition.args if f.is_Pow and isinstance(f.base, ScalarLet)]
    roots = [f.base for f in powers if f.exp == -1]
    return [kappa for s in roots for kappa in (eps / s**2, eps / s)]


@dataclass(frozen=True)
class _Word:
    """A product as scalars, leading diagonals of constant vectors, a factor, and the rest."""

    scalars: tuple[sp.Expr, ...]
    diagonals: tuple[sp.Basic, ...]
    kernel: sp.Basic | None
    rest: tuple[sp.Basic, ...]

    @classmethod
    def of(cls, term: sp.Basic) -> _Word:
        factors = term.args if isinstance(term, Product) else (term,)
        matrices = [f for f in factors if not is_scalar(f)]
        start = 0
        while (
            start < len(matrices)
            and isinstance(matrices[start], Diag)
            and _constant(matrices[start])
        ):
            start += 1
        kernel = matrices[start] if start < len(matrices) else None
        return cls(
            tuple(f for f in factors if is_scalar(f)),
            tuple(m.args[0] for m in matrices[:start]),
            kernel,
            tuple(matrices[start + 1 :]),
        )

    def divided(self, vector: sp.Basic) -> sp.Basic:
        """Return the vector divided by the diagonals."""
        return product([*(Diag(Reciprocal(g)) for g in self.diagonals), vector])


def _constant(diagonal: sp.Basic) -> bool:
    vector = diagonal.args[0]
    parts = vector.args if isinstance(vector, Sum) else (vector,)
    return all(isinstance(part, Vector | Ones) for part in parts)


def _lost(jacobian: sp.Basic) -> Iterator[int]:
    """Yield how many dimensions each square factor of a product loses, on one side or the other."""
    factors = jacobian.args if isinstance(jacobian, Product) else (jacobian,)
    for factor in factors:
        if not is_scalar(factor) and factor.shape == jacobian.shape:
            vectors = _vectors(factor)
            yield len(_independent([w for w in vectors if _kills(w, factor)]))
            yield len(_independent([w for w in vectors if _holds(factor * w, 0 * w)]))


def _vectors(factor: sp.Basic | None) -> tuple[sp.Basic, ...]:
    """Return the columns of a factor that is the identity plus outer products, ones first."""
    found: dict[sp.Basic, None] = {}
    for term in factor.args if isinstance(factor, Sum) else ():
        matrices = term.matrices if isinstance(term, Product) else (term,)
        if len(matrices) == 2 and matrices[0].shape[1] == 1:
            found[matrices[0]] = None
        elif not isinstance(matrices[0], sp.Identity):
            return ()
    plain = [v for v in found if isinstance(v, Ones | Let)]
    return tuple(sorted(plain, key=lambda v: (not isinstance(v, Ones), str(v))))


def _kills(vector: sp.Basic, factor: sp.Basic | None) -> bool:
    return factor is not None and _holds(vector.T * factor, 0 * vector.T)


@lru_cache(maxsize=1024)
def _holds(left: sp.Basic, right: sp.Basic) -> bool:
    """Whether two sides are proved equal; what the procedure does not decide is not."""
    try:
        return equal(left, right)
    except UnknownNodeError:
        return False


def _independent(vectors: list[sp.Basic]) -> list[sp.Basic]:
    """Keep vectors whose Gram determinant is not zero: independent at generic values."""
    kept: list[sp.Basic] = []
    for vector in vectors:
        tried = [*kept, vector]
        gram = sp.Matrix([[Inner(v, w) for w in tried] for v in tried])
        if not is_zero(sp.expand(gram.det(method="berkowitz"))):
            kept = tried
    return kept
