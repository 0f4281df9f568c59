r"""Derivations: :math:`dy = J\,dx` from a block to its factored Jacobian."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import sympy as sp

from derive.calculus.atoms import State
from derive.calculus.differential import Differential, Differentiator, Form, Term
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Apply, JacobianOf, TokenBlocks
from derive.calculus.naming import Named, name_intermediates
from derive.calculus.steps import RULES, Recorder, Step, body_jacobian
from derive.calculus.tensor import Tensor, is_scalar
from derive.errors import ShapeError, UnknownNodeError

if TYPE_CHECKING:
    from derive.calculus.certificates import Certificate

__all__ = ["Derivation", "derivation", "jacobian"]


@dataclass(frozen=True)
class Derivation:
    r"""A block, its Jacobian with respect to a state, and how the one follows from the other.

    Attributes
    ----------
    block : expression
        The block as it was written.
    state : State
        The variable.
    output : expression
        The block in terms of the named intermediates.
    jacobian : expression
        :math:`J` with :math:`dy = J\,dx`, numerator layout, factored. Where a sublayer mixes
        tokens it stands for the whole sequence: a factor without token index acts on each token
        alone, and `block` gives the token-to-token blocks.
    steps : tuple of Step
        Every rewriting, in order.
    lets : tuple of Let and ScalarLet
        The named intermediates, in order of evaluation.
    """

    block: sp.Basic
    state: State
    output: sp.Basic
    jacobian: sp.Basic
    steps: tuple[Step, ...]
    lets: tuple[Let | ScalarLet, ...]

    @cached_property
    def definitions(self) -> dict[sp.Basic, sp.Basic]:
        """What each named intermediate stands for, in order; Jacobians that mix tokens as well."""
        found = {v: v.definition for v in self.lets}
        for node in _token_blocks(self.jacobian):
            found[node] = node.args[1]
        return found

    @property
    def mixes_tokens(self) -> bool:
        """Whether a sublayer couples tokens."""
        return bool(getattr(self.jacobian, "mixes_tokens", False))

    def token_block(self, i: Any = "i", j: Any = "j") -> sp.Basic:
        r"""Return the block :math:`\partial y_i/\partial x_j` of the tokens `i` and `j`."""
        from derive.calculus.blockwise import token_block

        return token_block(self.jacobian, i, j)

    def check(self, d: int = 3, n: int = 2) -> tuple[Certificate, ...]:
        """Certify the result; see `derive.calculus.certificates.certify`."""
        from derive.calculus.certificates import certify

        return certify(self, d=d, n=n)

    def latex(self) -> str:
        """Return an aligned LaTeX derivation that compiles with amsmath."""
        from derive.render.latex import derivation_latex

        return derivation_latex(self)

    def __str__(self) -> str:
        from derive.render.text import derivation_text

        return derivation_text(self)

    def _repr_latex_(self) -> str:
        return self.latex()


def _token_blocks(expr: sp.Basic) -> list[TokenBlocks]:
    if isinstance(expr, TokenBlocks):
        return [expr]
    found: list[TokenBlocks] = []
    for arg in expr.args:
        if isinstance(arg, Tensor) and not isinstance(arg, Let):
            found += [b for b in _token_blocks(arg) if b not in found]
    return found


def derivation(block: Any, state: Any) -> Derivation:
    r"""Derive the Jacobian of a block with respect to a state, step by step.

    Parameters
    ----------
    block : expression
        A column vector built from the state with ``+``, scalar and matrix factors, norms and
        sublayers: ``N(x + F(x))``, ``x + F(N(x))``, ``alpha * x + N(F(x))``, ...
    state : State
        The variable, from `derive.state`.

    Returns
    -------
    Derivation
        With ``jacobian``, ``definitions``, ``steps``, ``latex()`` and ``check()``.

    Raises
    ------
    ShapeError
        If `block` is not a column vector or `state` is not a state.
    UnknownNodeError
        If a node that depends on the state has no rule.

    References
    ----------
    Magnus and Neudecker, *Matrix Differential Calculus*, chapter 5 (first identification theorem).
    """
    if not isinstance(state, State):
        raise ShapeError(f"state: expected a state made by derive.state, got {state!r}")
    block = sp.sympify(block)
    if not isinstance(block, sp.Expr) or is_scalar(block) or block.shape[1] != 1:
        raise ShapeError(f"block: expected a column vector, got {block}")
    return _derivation(block, state)


@lru_cache(maxsize=256)
def _derivation(block: sp.Basic, state: State) -> Derivation:
    return _Deriver(block, state).run()


def jacobian(block: Any, state: Any) -> sp.Basic:
    """Return the Jacobian of `block` with respect to `state`: ``derivation(...).jacobian``."""
    return derivation(block, state).jacobian


class _Deriver:
    """Forward through the named intermediates, then the chain rule backwards to the state."""

    def __init__(self, block: sp.Basic, state: State) -> None:
        self.block = block
        self.state = state
        self.named: Named = name_intermediates(block)
        self.steps: list[Step] = []
        self.lets: list[Let | ScalarLet] = []
        self.forms: dict[sp.Basic, Form] = {}

    def run(self) -> Derivation:
        for node in self.named.order:
            if isinstance(node, Apply):
                self.forms[node] = self._application(node)
            else:
                self.lets.append(node)
                rules: list[str] = []
                form = self._differential(node.definition, rules)
                resolved = self._backwards(node, form, rules)
                self.forms[node] = form if len(form.terms) == 1 else resolved
        output = self.named.output
        taken = {getattr(a, "name", "") for a in (self.state, *self.lets)}
        name = next(n for n in ("y", "out", "block_output") if n not in taken)
        result = output if isinstance(output, Let) else Let(name, output)
        if output in self.forms:
            form = Form((Term(sp.Identity(output.shape[0]), output),))
        else:
            form = self._differential(output, [])
        line = self._backwards(result, form, ["definition"])
        found = line.terms[0].coefficient if line.terms else self._zero(result)
        self.steps.append(
            Step(Differential(result), line.expr(), "read off", RULES["read off"], result)
        )
        return Derivation(
            block=self.block,
            state=self.state,
            output=output,
            jacobian=found,
            steps=tuple(self.steps),
            lets=tuple(self.lets),
        )

    def _zero(self, result: Let) -> sp.Basic:
        return sp.ZeroMatrix(result.shape[0], self.state.shape[0])

    def _is_atom(self, expr: sp.Basic) -> bool:
        return expr == self.state or isinstance(expr, Apply | Let)

    def _differential(self, expr: sp.Basic, rules: list[str]) -> Form:
        walk = Differentiator(self._is_atom, rules)
        form = walk(expr)
        return Form(tuple(t for t in form.terms if self._varies(t.atom)))

    def _varies(self, atom: sp.Basic) -> bool:
        return atom == self.state or bool(self.forms[atom].terms)

    def _application(self, node: Apply) -> Form:
        argument = node.argument
        if not self._is_atom(argument):
            inner = self._differential(argument, [])
            if inner.terms:
                raise UnknownNodeError(f"differential: cannot name the argument of {node}")
            return Form(())
        if not self._varies(argument):
            return Form(())
        body = self.named.body(node)
        if body is None:
            return Form((Term(JacobianOf(node.mapping, argument), argument),))
        self.lets.extend(body.lets)
        found, steps = body_jacobian(node.mapping, argument, body)
        self.steps.extend(steps)
        return Form((Term(found, argument),))

    def _backwards(self, quantity: Let, form: Form, rules: list[str]) -> Form:
        """Chain rule from a quantity to the state, last intermediate first.

        Terms in one differential are merged before it is replaced, so that the result stays a
        product of factors.
        """
        line = Recorder(quantity, form, rules, self.steps)
        for node in reversed(self.named.order):
            if node in self.forms:
                line.collect(scalars_first=False)
                line.chain(lambda atom, node=node: self.forms[atom] if atom == node else None)  # type: ignore[misc]
        line.collect(scalars_first=False)
        return line.form
