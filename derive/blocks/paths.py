r"""The paths of a Jacobian that mixes tokens: through the value, the key, the query, the gate."""

from __future__ import annotations

import sympy as sp

from derive.calculus.atoms import Matrix
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import TokenBlocks
from derive.calculus.tensor import Sum
from derive.calculus.tokens import TOKENS

__all__ = ["paths"]

_PATHS = {"W_V": "value path", "W_K": "key path", "W_Q": "query path", "W_G": "gate path"}


def paths(node: TokenBlocks) -> tuple[tuple[sp.Basic, str], ...]:
    """Return the terms of a token-to-token block, each with the name of its path.

    Parameters
    ----------
    node : TokenBlocks
        The Jacobian of an attention, found in ``derivation(...).definitions``.

    Returns
    -------
    tuple of (expression, str)
        A path is named after the projection that it enters through; the name is empty where there
        is none.
    """
    block = node.block(*TOKENS[:2])
    terms = block.args if isinstance(block, Sum) else (block,)
    return tuple((term, _path(term)) for term in terms)


def _path(term: sp.Basic) -> str:
    stems = {"_".join(name.split("_")[:2]) for name in _outermost(term)}  # W_Q_1 is a W_Q
    found = [label for stem, label in _PATHS.items() if stem in stems]
    return found[0] if len(found) == 1 else ""


def _outermost(term: sp.Basic) -> set[str]:
    """Names of the matrices that occur outside the definitions of named quantities."""
    if isinstance(term, Let | ScalarLet):
        return set()
    own = {term.name} if isinstance(term, Matrix) else set()
    return own.union(*(_outermost(arg) for arg in term.args))
