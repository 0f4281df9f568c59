r"""Token-to-token blocks: which token each factor of a sequence Jacobian belongs to.

A Jacobian without token indices stands for the whole sequence. Its block from input token ``j`` to
output token ``i`` is read from left to right: factors before an operator that mixes tokens belong
to its output token, factors after it to its input token; where nothing mixes, the block is zero
off the diagonal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sympy as sp

from derive.calculus.atoms import State
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply, JacobianOf, TokenBlocks
from derive.calculus.tensor import Product, Sum, Tensor, Transposed, is_scalar, product, total
from derive.calculus.tokens import At, index, index_sum
from derive.errors import UnknownNodeError
from derive.symbols import n

__all__ = ["at_token", "token_block"]


@lru_cache(maxsize=4096)
def at_token(expr: sp.Basic, token: sp.Basic) -> sp.Basic:
    """Return the member of a per-token expression that belongs to `token`."""
    if isinstance(expr, State):
        return At(expr, token)
    if isinstance(expr, At | TokenBlocks):
        return expr
    if isinstance(expr, Let | ScalarLet):  # with a head or group index only, it lacks its token
        inner = at_token(expr.definition, token)
        if inner == expr.definition:
            return expr
        return expr.func(expr.name, inner, *expr.indices, token)
    if isinstance(expr, Apply):
        if expr.mapping.mixes_tokens:
            return At(expr, token)
        return Apply(expr.mapping, at_token(expr.argument, token))
    if isinstance(expr, JacobianOf):
        return JacobianOf(expr.mapping, at_token(expr.argument, token))
    if not expr.args or not isinstance(expr, sp.Expr):
        return expr
    args = [at_token(a, token) if isinstance(a, sp.Expr) else a for a in expr.args]
    return expr if all(a is b for a, b in zip(args, expr.args, strict=True)) else expr.func(*args)


def token_block(expr: sp.Basic, i: Any = "i", j: Any = "j") -> sp.Basic:
    r"""Return the block :math:`\partial y_i/\partial x_j` of a sequence Jacobian.

    Parameters
    ----------
    expr : expression
        A Jacobian without token indices.
    i, j : str, symbol or int
        Output token and input token.

    Returns
    -------
    expression
        Of the shape of one block; ``KroneckerDelta(i, j)`` marks what acts within a token.

    Raises
    ------
    UnknownNodeError
        If an operator that mixes tokens is abstract: its blocks are not known.
    """
    i = index(i) if isinstance(i, str) else sp.sympify(i)
    j = index(j) if isinstance(j, str) else sp.sympify(j)
    return _block(expr, i, j, iter(range(1, 1000)))


def _block(expr: sp.Basic, i: sp.Basic, j: sp.Basic, fresh: Any) -> sp.Basic:
    if not getattr(expr, "mixes_tokens", False):
        return product([sp.KroneckerDelta(i, j), at_token(expr, i)])
    if isinstance(expr, TokenBlocks):
        return _indexed_definition(expr, i, j)
    if isinstance(expr, Transposed):
        return Transposed(_block(expr.args[0], j, i, fresh))
    if isinstance(expr, Sum):
        return total([_block(t, i, j, fresh) for t in expr.args])
    if not isinstance(expr, Product):
        raise UnknownNodeError(f"token block: {expr} mixes tokens and its blocks are not known")
    mixing = [k for k, a in enumerate(expr.args) if getattr(a, "mixes_tokens", False)]
    parts: list[sp.Basic] = []
    bounds: list[sp.Symbol] = []
    token, start = i, 0
    for count, k in enumerate(mixing):
        parts += [at_token(a, token) for a in expr.args[start:k]]
        target = j
        if count < len(mixing) - 1:
            target = index(f"l_{next(fresh)}")
            bounds.append(target)
        parts.append(_block(expr.args[k], token, target, fresh))
        token, start = target, k + 1
    parts += [at_token(a, token) for a in expr.args[start:]]
    word = product(parts)
    for bound in reversed(bounds):
        word = index_sum(word, bound, n)
    return word


def _indexed_definition(node: TokenBlocks, i: sp.Basic, j: sp.Basic) -> sp.Basic:
    """Blocks of a concrete map, with the members of its argument family named by token."""
    block = node.block(i, j)
    argument = node.label.argument
    if isinstance(argument, Let) and not argument.indices:
        block = _name_members(block, argument)
    return block


def _name_members(expr: sp.Basic, family: Let) -> sp.Basic:
    if isinstance(expr, At) and expr.family == family:
        return at_token(family, expr.position)
    if not expr.args:
        return expr
    args = [_name_members(a, family) for a in expr.args]
    if all(a is b for a, b in zip(args, expr.args, strict=True)):
        return expr
    return expr.func(*args)


def contains_mixing(expr: sp.Basic) -> bool:
    """Whether any operator inside mixes tokens."""
    if getattr(expr, "mixes_tokens", False):
        return True
    return any(contains_mixing(a) for a in expr.args if isinstance(a, Tensor) or is_scalar(a))
