r"""Certificates of a derivation: what was shown, how, and for which sizes.

``identity`` holds for every ``d`` (the decision procedure of `derive.calculus.normal_form`);
``exact(d=3)`` was shown in exact arithmetic at that size only, against dual numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy as sp

from derive import symbols
from derive.calculus.differential import Differentiator
from derive.calculus.jets import JetRing, exact_blocks, exact_jacobian
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply, JacobianOf, TokenBlocks
from derive.calculus.naming import name_intermediates
from derive.calculus.normal_form import equal, stands_for_scalars
from derive.calculus.steps import body_jacobian
from derive.calculus.tensor import product, total
from derive.errors import DomainError, UnknownNodeError

if TYPE_CHECKING:
    from derive.calculus.derivation import Derivation

__all__ = ["Certificate", "certify", "certify_exact", "certify_identity", "certify_map"]


@dataclass(frozen=True)
class Certificate:
    """One thing that was shown, or found not to hold.

    Attributes
    ----------
    kind : str
        ``identity`` (every ``d``) or ``exact(d=..., n=...)`` (these sizes only).
    claim : str
        What was compared.
    holds : bool
        The outcome.
    detail : str
        The rules that were used, the numbers of a witness; "" where the kind says it all.
    """

    kind: str
    claim: str
    holds: bool
    detail: str = ""

    def __str__(self) -> str:
        return f"[{'ok' if self.holds else 'FAILS'}] {self.kind}: {self.claim}"


def certify(derivation: Derivation, d: int = 3, n: int = 2) -> tuple[Certificate, ...]:
    """Certify a derivation.

    At symbolic ``d``, the Jacobian of each concrete map and that of the whole block are compared
    with their mechanical differentials (every name expanded, no identity used), where the decision
    procedure applies. In exact arithmetic, the whole Jacobian is compared with dual numbers at one
    small size.

    Parameters
    ----------
    derivation : Derivation
        What to certify.
    d, n : int
        Size of the exact check: features (at least 2) and tokens.

    Returns
    -------
    tuple of Certificate

    Raises
    ------
    DomainError
        If `d` is below 2 or `n` below 1.
    """
    if d < 2 or n < 1:
        raise DomainError(f"d, n: expected d >= 2 and n >= 1, got d = {d}, n = {n}")
    named = name_intermediates(derivation.block)
    found = []
    for node in named.order:
        if isinstance(node, Apply) and not node.mapping.is_abstract:
            found.append(certify_map(node))
    found.append(certify_identity(named.output, derivation.jacobian, derivation.state))
    variable = derivation.state.name
    found.append(certify_exact(derivation.block, derivation.jacobian, d=d, n=n, variable=variable))
    return tuple(c for c in found if c is not None)


def certify_map(node: Apply, claimed: sp.Basic | None = None) -> Certificate | None:
    """Compare the Jacobian of a concrete map with its mechanical differential, at symbolic ``d``.

    Parameters
    ----------
    node : Apply
        The map at an argument.
    claimed : expression, optional
        A Jacobian to be judged; by default the derived one.

    Returns
    -------
    Certificate or None
        None where the map mixes tokens: its blocks carry indices, which the procedure does not
        decide.
    """
    body = node.body
    if body is None or node.mapping.mixes_tokens:
        return None
    if claimed is None:
        claimed, _ = body_jacobian(node.mapping, node.argument, body)
    return certify_identity(node, claimed, node.argument)


def certify_identity(block: sp.Basic, claimed: sp.Basic, variable: sp.Basic) -> Certificate | None:
    """Compare a Jacobian with the mechanical differential of the block, at symbolic ``d``.

    Parameters
    ----------
    block : expression
        The block.
    claimed : expression
        Its Jacobian with respect to `variable`.
    variable : expression
        A state, or a named vector that is treated as one.

    Returns
    -------
    Certificate or None
        Of kind ``identity``; None where the procedure does not decide.
    """
    expansion = _Expansion(variable)
    try:
        holds = equal(expansion(claimed), expansion.jacobian(block))
    except UnknownNodeError:
        return None
    return Certificate("identity", f"d({block})/d{variable} = {claimed}", holds)


def _is_generic(expr: sp.Basic) -> bool:
    """Whether a named vector stays a generic atom: the argument of a map, not a normalised one."""
    return isinstance(expr, Let) and not stands_for_scalars(expr)


class _Expansion:
    """Expands the concrete maps that act on each token alone; their arguments stay generic."""

    def __init__(self, variable: sp.Basic) -> None:
        self.variable = variable
        self._memo: dict[sp.Basic, sp.Basic] = {}

    def __call__(self, expr: sp.Basic) -> sp.Basic:
        found = self._memo.get(expr)
        if found is None:
            found = self._expand(expr)
            self._memo[expr] = found
        return found

    def _expand(self, expr: sp.Basic) -> sp.Basic:
        if expr == self.variable or not expr.args or isinstance(expr, JacobianOf | TokenBlocks):
            return expr
        if isinstance(expr, Let | ScalarLet):
            return expr if _is_generic(expr) else self(expr.definition)
        if isinstance(expr, Apply):
            body = expr.body
            opaque = body is None or expr.mapping.mixes_tokens
            return expr if opaque else self(body.output)  # type: ignore[union-attr]
        return expr.func(*[self(a) if isinstance(a, sp.Expr) else a for a in expr.args])

    def jacobian(self, expr: sp.Basic) -> sp.Basic:
        """Return the Jacobian from the expanded definition, by the differential alone."""

        def is_atom(e: sp.Basic) -> bool:
            return e == self.variable or isinstance(e, Apply) or _is_generic(e)

        if expr == self.variable:
            return sp.Identity(expr.shape[0])
        if _is_generic(expr):
            return self.jacobian(expr.definition)
        parts: list[sp.Basic] = []
        for term in Differentiator(is_atom)(self(expr)).terms:
            inner: list[sp.Basic] = []
            if term.atom == self.variable:
                inner = []
            elif isinstance(term.atom, Apply):
                inner = [
                    JacobianOf(term.atom.mapping, term.atom.argument),
                    self.jacobian(term.atom.argument),
                ]
            else:
                inner = [self.jacobian(term.atom)]
            parts.append(product([term.coefficient, *inner]))
        rows, cols = expr.shape[0], self.variable.shape[0]
        return total(parts) if parts else sp.ZeroMatrix(rows, cols)


def certify_exact(
    block: sp.Basic,
    claimed: sp.Basic,
    d: int = 3,
    n: int = 2,
    seed: int = 0,
    variable: str | None = None,
) -> Certificate:
    """Compare a Jacobian with exact dual numbers at one size.

    Parameters
    ----------
    block : expression
        The block.
    claimed : expression
        Its Jacobian, as an expression without token indices.
    d, n : int
        Features and tokens.
    seed : int
        Seed of the rational values.
    variable : str, optional
        Name of the state that varies, where the block has several.

    Returns
    -------
    Certificate
        Of kind ``exact(d=..., n=...)``.
    """
    sizes = {symbols.d: d, symbols.f: d + 1, symbols.d_h: 2, symbols.H: 2, symbols.n: n}
    sizes |= {symbols.M: 2, symbols.X: 2, symbols.G: d}
    widths = (s for s in claimed.free_symbols if s.is_integer and s.is_positive)
    sizes |= {s: 2 for s in widths if s not in sizes}
    cols = int(sp.sympify(claimed.shape[1]).subs(sizes))
    tokens = n if getattr(claimed, "mixes_tokens", False) else 1
    ring = JetRing(seed)
    right = exact_jacobian(block, ring, sizes, tokens, cols, variable)
    holds = bool((right == exact_blocks(claimed, ring, sizes, tokens)).all())
    size = f"d={d}" + (f", n={n}" if tokens > 1 else "")
    return Certificate(f"exact({size})", f"d({block})/d{variable or 'x'} = {claimed}", holds)
