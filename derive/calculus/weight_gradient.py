r"""The differential of a block in its weights, by the calculus that gives its Jacobian.

Where the Jacobian holds the weights fixed and moves the state, here a weight moves too. The
differential of a matrix stands inside a word, :math:`d(AWv) = A\,dW\,v + A\,W\,dv`, so that with a
cotangent :math:`g` at the output

.. math:: \langle g, A\,dW\,v\rangle = \langle (A^\top g)\,v^\top, dW\rangle ,

and the gradient of :math:`\langle g, B\rangle` in :math:`W` is the sum of
:math:`(A^\top g)\,v^\top` over the places where W stands and over the tokens.

Source: Magnus and Neudecker, *Matrix Differential Calculus*, chapter 9 (identification of the
gradient of a scalar function of a matrix).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import sympy as sp

from derive.calculus.atoms import Matrix, State, Vector
from derive.calculus.derivation import derivation
from derive.calculus.differential import Differentiator, Form, Term, collect, sum_inside
from derive.calculus.let import Let
from derive.calculus.maps import Apply, JacobianOf
from derive.calculus.naming import Named, name_intermediates
from derive.calculus.steps import body_differential, of_argument, read_jacobian
from derive.calculus.tokens import At
from derive.errors import UnknownNameError, UnknownNodeError

__all__ = ["Local", "WeightDifferential", "weight_differential", "weight_name"]


def weight_name(leaf: sp.Basic) -> str:
    """Return the name of a weight, of a member of a family of weights or of a scalar; else ''."""
    if isinstance(leaf, At):
        leaf = leaf.family
    if isinstance(leaf, sp.Indexed):
        return str(leaf.base)
    return leaf.name if isinstance(leaf, Vector | Matrix | sp.Symbol) else ""


@dataclass(frozen=True)
class Local:
    r"""The differential of one quantity of a block in those before it and in the weights.

    Attributes
    ----------
    quantity : expression
        A named intermediate, the output of a map, or the block's own output.
    jacobians : tuple of (expression, expression)
        Earlier quantities (or the state) that it depends on, each with the Jacobian in it.
    terms : tuple of Term
        ``coefficient dW right`` for every weight, to be summed over ``over`` and over tokens; at
        output token ``i`` where `mixes_tokens`.
    mixes_tokens : bool
        Whether the quantity is the output of a map that couples tokens.
    """

    quantity: sp.Basic
    jacobians: tuple[tuple[sp.Basic, sp.Basic], ...]
    terms: tuple[Term, ...]
    mixes_tokens: bool = False

    def __str__(self) -> str:
        from derive.calculus.printing import text

        return text(Form(self.terms).expr())


@dataclass(frozen=True)
class WeightDifferential:
    """The differential of a block in its weights, quantity by quantity.

    Attributes
    ----------
    block, state : expression
        The block and its variable.
    locals : tuple of Local
        In order of evaluation; the last one is the block's output.
    """

    block: sp.Basic
    state: State
    locals: tuple[Local, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The weights that the block depends on, sorted."""
        return tuple(sorted({weight_name(t.atom) for part in self.locals for t in part.terms}))


def weight_differential(
    block: sp.Basic, state: State, weights: Iterable[str]
) -> WeightDifferential:
    r"""Derive the differential of a block in some of its weights.

    Parameters
    ----------
    block : expression
        The block.
    state : State
        Its variable.
    weights : iterable of str
        Names of the weights that vary: matrices, vectors, families of them over heads or experts
        (``W_Q`` stands for all heads), scalars such as ``alpha``.

    Returns
    -------
    WeightDifferential

    Raises
    ------
    ShapeError
        If `block` is not a column vector or `state` is not a state.
    UnknownNameError
        If the block holds no weight of that name.
    UnknownNodeError
        If a node that depends on a weight has no rule.

    Examples
    --------
    >>> import derive
    >>> x = derive.state("x")
    >>> found = weight_differential(derive.FFN("relu")(x), x, ["W_1", "W_2"])
    >>> print(found.locals[0])
    dW_2 relu(a) + W_2 diag(relu'(a)) dW_1 x
    """
    wanted = frozenset(weights)
    found = _weight_differential(derivation(block, state).block, state, wanted)
    unknown = wanted - set(found.names)
    if unknown:
        raise UnknownNameError(
            f"weights: expected weights of the block ({', '.join(found.names) or 'none found'}), "
            f"got {', '.join(sorted(unknown))}"
        )
    return found


@lru_cache(maxsize=256)
def _weight_differential(
    block: sp.Basic, state: State, weights: frozenset[str]
) -> WeightDifferential:
    return WeightDifferential(block, state, tuple(_Locals(block, state, weights)))


class _Locals:
    """The quantities of a block, each with its own differential."""

    def __init__(self, block: sp.Basic, state: State, weights: frozenset[str]) -> None:
        self.named: Named = name_intermediates(block)
        self.state = state
        self.weights = weights

    def __iter__(self) -> Iterator[Local]:
        for node in self.named.order:
            if isinstance(node, Apply):
                yield self._application(node)
            else:
                yield self._local(node, node.definition)
        if not self.named.order or self.named.output != self.named.order[-1]:
            yield self._local(self.named.output, self.named.output)

    def _is_weight(self, expr: sp.Basic) -> bool:
        return weight_name(expr) in self.weights

    def _is_atom(self, expr: sp.Basic) -> bool:
        return expr == self.state or isinstance(expr, Apply | Let) or self._is_weight(expr)

    def _local(self, quantity: sp.Basic, definition: sp.Basic) -> Local:
        form = collect(Differentiator(self._is_atom)(definition))
        own, terms = _split(form, lambda atom: not self._is_weight(atom))
        return Local(quantity, tuple((t.atom, t.coefficient) for t in own.terms), terms.terms)

    def _application(self, node: Apply) -> Local:
        argument = node.argument
        body = self.named.body(node)
        if body is None:
            return Local(node, ((argument, JacobianOf(node.mapping, argument)),), ())
        if not self._is_atom(argument) and not Differentiator(self._is_atom).is_constant(argument):
            raise UnknownNodeError(f"differential: cannot name the argument of {node}")
        form, _ = body_differential(node.mapping, argument, body, self._is_weight)
        own, terms = _split(form, lambda atom: of_argument(atom, argument))
        jacobian = read_jacobian(node.mapping, argument, own)
        return Local(
            node, ((argument, jacobian),), sum_inside(terms).terms, node.mapping.mixes_tokens
        )


def _split(form: Form, belongs: Callable[[sp.Basic], bool]) -> tuple[Form, Form]:
    """Return the terms whose atom belongs, and the others."""
    inside = tuple(t for t in form.terms if belongs(t.atom))
    return Form(inside), Form(tuple(t for t in form.terms if not belongs(t.atom)))
