r"""Maps of a state (norms, sublayers), their application to an argument and their Jacobians.

A *concrete* map has a `Body`: named intermediates, an output and the identities that simplify its
differential. An *abstract* map has none and its Jacobian is the node :math:`DF(u)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy as sp

from derive.calculus.let import Let, ScalarLet
from derive.calculus.tensor import Tensor, is_scalar
from derive.errors import ShapeError
from derive.symbols import latex_name

__all__ = ["Apply", "Body", "Identity", "JacobianOf", "Map", "TokenBlocks", "with_indices"]


@dataclass(frozen=True)
class Identity:
    """A named local rule: `before` equals `after`, for the reason `why`."""

    before: sp.Basic
    after: sp.Basic
    name: str
    why: str


@dataclass(frozen=True)
class Body:
    """What a map does to its argument.

    Attributes
    ----------
    lets : tuple of Let and ScalarLet
        Named intermediates, each defined by earlier ones and the argument.
    output : expression
        The result; for a map that mixes tokens, the result at token ``i``.
    identities : tuple of Identity
        The only rules that may simplify the differential.
    cuts : frozenset of str
        Names of intermediates whose differentials stay opaque until the output's line.
    """

    lets: tuple[Let | ScalarLet, ...]
    output: sp.Basic
    identities: tuple[Identity, ...] = ()
    cuts: frozenset[str] = frozenset()


def with_indices(body: Body, indices: tuple[sp.Symbol, ...], rename: str = "") -> Body:
    """Return a body whose lets carry indices, as for a norm that acts on each head's query.

    Parameters
    ----------
    body : Body
        The body; its argument carries the indices already.
    indices : tuple of symbols
        Indices to add.
    rename : str
        Appended to the names of the lets.
    """
    change: dict[sp.Basic, sp.Basic] = {}
    lets = []
    for let in body.lets:
        indexed = let.func(let.name + rename, let.definition.xreplace(change), *indices)
        change[let] = indexed
        lets.append(indexed)
    identities = []
    for identity in body.identities:
        before, after = (e.xreplace(change) for e in (identity.before, identity.after))
        named = (b for a, b in change.items() if str(a) in identity.name.split())
        name = next((f"definition of {b}" for b in named), identity.name)
        identities.append(Identity(before, after, name, f"{before} = {after}"))
    return Body(tuple(lets), body.output.xreplace(change), tuple(identities), body.cuts)


class Map(sp.Basic):
    """A map from a column vector to a column vector, applied to each token or to all tokens.

    Subclasses say what they are by `family` (used to number the names of their intermediates),
    `input_name` (how a composite argument is named), `mixes_tokens` and `body`.
    """

    family = "map"
    input_name = "z"
    mixes_tokens = False

    @property
    def name(self) -> str:
        """How the map prints."""
        return str(self.args[0])

    def __call__(self, argument: Any) -> Apply:
        """Apply the map to a column vector."""
        return Apply(self, argument)

    def output_rows(self, argument: sp.Basic) -> sp.Expr:
        """Return the length of the result."""
        return argument.shape[0]

    def body(self, argument: sp.Basic, suffix: str = "") -> Body | None:
        """Return the definition at `argument` with names ending in `suffix`; None if abstract."""
        return None

    @property
    def is_abstract(self) -> bool:
        """Whether the map has no body."""
        return type(self).body is Map.body

    def _sympystr(self, printer: Any) -> str:
        return self.name

    def _latex(self, printer: Any, **_: Any) -> str:
        return latex_name(self.name)


def _column(argument: Any, of: str) -> sp.Basic:
    argument = sp.sympify(argument)
    if not isinstance(argument, sp.Expr) or is_scalar(argument) or argument.shape[1] != 1:
        raise ShapeError(f"{of}: expected a column vector, got {argument}")
    return argument


@lru_cache(maxsize=1024)
def _body(mapping: Map, argument: sp.Basic) -> Body | None:
    return mapping.body(argument)


class Apply(Tensor):
    r"""The vector :math:`F(u)`."""

    def __new__(cls, mapping: Map, argument: Any) -> Apply:
        """Check the arguments and build the node."""
        return sp.Basic.__new__(cls, mapping, _column(argument, f"argument of {mapping.name}"))

    @property
    def mapping(self) -> Map:
        """The map."""
        return self.args[0]

    @property
    def argument(self) -> sp.Basic:
        """What it is applied to."""
        return self.args[1]

    @property
    def body(self) -> Body | None:
        """The definition of the map at the argument; None if the map is abstract."""
        return _body(self.mapping, self.argument)

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """A column as long as the map says."""
        return (self.mapping.output_rows(self.argument), sp.S.One)

    def _sympystr(self, printer: Any) -> str:
        return f"{printer._print(self.mapping)}({printer._print(self.argument)})"

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import call_latex

        return call_latex(printer._print(self.mapping), printer._print(self.argument))


class JacobianOf(Tensor):
    r"""The Jacobian :math:`DF(u)` of a map at an argument, as a node of its own."""

    def __new__(cls, mapping: Map, argument: Any) -> JacobianOf:
        """Check the arguments and build the node."""
        return sp.Basic.__new__(cls, mapping, _column(argument, f"argument of D{mapping.name}"))

    @property
    def mapping(self) -> Map:
        """The map."""
        return self.args[0]

    @property
    def argument(self) -> sp.Basic:
        """Where the Jacobian is taken."""
        return self.args[1]

    @property
    def mixes_tokens(self) -> bool:  # type: ignore[override]
        """Whether the map couples tokens."""
        return self.mapping.mixes_tokens

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Output rows by input rows."""
        return (self.mapping.output_rows(self.argument), self.argument.shape[0])

    def _sympystr(self, printer: Any) -> str:
        return f"D{printer._print(self.mapping)}({printer._print(self.argument)})"

    def _latex(self, printer: Any, **_: Any) -> str:
        from derive.calculus.printing import call_latex

        name = rf"\mathrm{{D}}{printer._print(self.mapping)}"
        return call_latex(name, printer._print(self.argument))


class TokenBlocks(Tensor):
    r"""A Jacobian that couples tokens, with its token-to-token block :math:`[DA(z)]_{ij}`.

    ``args = (name, block, i, j)``: `name` is the node it prints as, `block` the block from input
    token ``j`` to output token ``i``; KroneckerDelta(i, j) marks what acts within one token.
    """

    mixes_tokens = True

    def __new__(cls, name: JacobianOf, block: sp.Basic, i: sp.Symbol, j: sp.Symbol) -> TokenBlocks:
        """Check the arguments and build the node."""
        if block.shape != name.shape:
            raise ShapeError(f"block: expected shape {name.shape}, got {block.shape}")
        return sp.Basic.__new__(cls, name, block, i, j)

    @property
    def shape(self) -> tuple[sp.Expr, sp.Expr]:
        """Shape of one token-to-token block."""
        return self.args[0].shape

    @property
    def label(self) -> JacobianOf:
        """The node it prints as."""
        return self.args[0]

    def block(self, i: Any, j: Any) -> sp.Basic:
        """Return the block from input token `j` to output token `i`."""
        if (i, j) == self.args[2:]:
            return self.args[1]
        fresh_i, fresh_j = sp.Dummy(integer=True), sp.Dummy(integer=True)
        renamed = self.args[1].xreplace({self.args[2]: fresh_i, self.args[3]: fresh_j})
        return renamed.xreplace({fresh_i: sp.sympify(i), fresh_j: sp.sympify(j)})

    def _sympystr(self, printer: Any) -> str:
        return printer._print(self.label)

    def _latex(self, printer: Any, **_: Any) -> str:
        return printer._print(self.label)
