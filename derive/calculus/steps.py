r"""One step of a derivation, the names of the rules, and the differential of a body step by step.

The function that rewrites returns the result *and* its step, so that the printed steps cannot
disagree with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import sympy as sp

from derive.calculus.differential import (
    Differential,
    Differentiator,
    Form,
    Term,
    collect,
    rewrite,
    substitute,
    sum_inside,
)
from derive.calculus.let import Let, ScalarLet
from derive.calculus.maps import Body, Identity, JacobianOf, Map, TokenBlocks
from derive.calculus.printing import text
from derive.calculus.tensor import Transposed, is_scalar, product, total
from derive.calculus.tokens import FAMILIES, MEMORY, TOKENS, At, index_sum

__all__ = [
    "RULES",
    "Recorder",
    "Step",
    "body_differential",
    "body_jacobian",
    "of_argument",
    "read_jacobian",
]

RULES = {
    "sum": "the differential of a sum is the sum of the differentials",
    "linear map": "a constant linear map commutes with the differential",
    "product": "product rule: each factor varies in turn",
    "quotient": "quotient rule: numerator and denominator vary in turn",
    "inner product": "d(u'v) = v' du + u' dv",
    "element-wise function": "a function of each entry has a diagonal Jacobian",
    "chain": "chain rule: outer derivative times the differential of the inside",
    "substitute": "the differentials found above are put in",
    "collect": "terms in the same differential are merged",
    "definition": "y stands for the block",
    "sum inside": "what does not carry the summation index stands outside the sum",
    "read off": "dy = J dx holds for every dx, so J is the Jacobian",
}


@dataclass(frozen=True)
class Step:
    """One rewriting: `before` became `after` by the rule named `rule`.

    Attributes
    ----------
    before, after : expression
        SymPy expressions in differentials.
    rule : str
        Name of the rule (several, separated by commas, where one line used several).
    why : str
        Why the rule applies.
    of : expression
        The quantity whose differential the step belongs to.
    """

    before: sp.Basic
    after: sp.Basic
    rule: str
    why: str
    of: sp.Basic

    def __str__(self) -> str:
        return f"{text(self.before)} = {text(self.after)}    [{self.rule}]"


class Recorder:
    """Rewrites one differential and records each change as a `Step`."""

    def __init__(self, of: sp.Basic, form: Form, rules: Iterable[str], steps: list[Step]) -> None:
        self.of = of
        self.form = form
        self.steps = steps
        self.last = Differential(of)
        self._recorded: Form | None = None
        names = list(rules) or ["linear map"]
        self._record(form, ", ".join(names), "; ".join(RULES[r] for r in names))

    def _record(self, form: Form, rule: str, why: str) -> None:
        if form == self._recorded:
            return
        after = form.expr()
        self.form = self._recorded = form
        if after != self.last:
            self.steps.append(Step(self.last, after, rule, why, self.of))
            self.last = after

    def substitute(self, known: Callable[[sp.Basic], Form | None], why: str = "") -> bool:
        """Put in known differentials; return whether any occurred."""
        form, replaced = substitute(self.form, known)
        names = ", ".join(str(Differential(r)) for r in replaced)
        self._record(form, "substitute", why or f"{RULES['substitute']}: {names}")
        return bool(replaced)

    def chain(self, known: Callable[[sp.Basic], Form | None]) -> bool:
        """Put in the Jacobians of maps; return whether any occurred."""
        form, replaced = substitute(self.form, known, scalars_first=False)
        self._record(form, "chain", RULES["chain"])
        return bool(replaced)

    def simplify(self, identities: Iterable[Identity]) -> None:
        """Apply the named local identities, each as a step of its own."""
        for identity in identities:
            rules = _instances(identity)
            self._record(
                self.form.map(lambda c, rules=rules: rewrite(c, rules)),  # type: ignore[misc]
                identity.name,
                identity.why,
            )

    def sum_inside(self) -> None:
        """Take out of a sum what does not carry its index."""
        form = Form(tuple(_canonical_bound(t) for t in sum_inside(self.form).terms))
        self._record(form, "sum inside", RULES["sum inside"])

    def collect(self, *, scalars_first: bool = True) -> None:
        """Merge the terms in one differential."""
        form = collect(self.form, scalars_first=scalars_first)
        self._record(form, "collect", RULES["collect"])


@lru_cache(maxsize=1024)
def _instances(identity: Identity) -> dict[sp.Basic, sp.Basic]:
    """Return the identity at every choice of its token indices."""
    atoms = identity.before.atoms(sp.Symbol) | identity.after.atoms(sp.Symbol)
    rules: dict[sp.Basic, sp.Basic] = {identity.before: identity.after}
    for members in FAMILIES:
        used = [t for t in members if t in atoms]
        for choice in permutations(members[:3], len(used)) if used else ():
            if choice == tuple(used):
                continue
            renaming = dict(zip(used, choice, strict=True))
            rules[identity.before.xreplace(renaming)] = identity.after.xreplace(renaming)
    for before, after in list(rules.items()):
        if not is_scalar(before):
            rules[Transposed(before)] = Transposed(after)
    return rules


def _canonical_bound(term: Term) -> Term:
    """Name the bound token of a term ``j``, that of a memory ``t``, where the name is free."""
    for members, preferred in ((TOKENS, TOKENS[1]), (MEMORY, MEMORY[0])):
        bounds = [b for b, _ in term.over if b in members]
        if len(bounds) == 1 and bounds[0] != preferred and preferred not in term.free_symbols:
            term = term._changed({bounds[0]: preferred})
    return term


def body_jacobian(mapping: Map, argument: sp.Basic, body: Body) -> tuple[sp.Basic, list[Step]]:
    r"""Jacobian of a concrete map at `argument`, derived step by step from its body.

    Parameters
    ----------
    mapping : Map
        The map.
    argument : expression
        The column vector that the differential is taken with respect to.
    body : Body
        Named intermediates, output and identities.

    Returns
    -------
    jacobian : expression
        Factored; a `TokenBlocks` node if the map mixes tokens.
    steps : list of Step
    """
    form, steps = body_differential(mapping, argument, body)
    return read_jacobian(mapping, argument, form), steps


def body_differential(
    mapping: Map,
    argument: sp.Basic,
    body: Body,
    is_weight: Callable[[sp.Basic], bool] = lambda expr: False,
) -> tuple[Form, list[Step]]:
    r"""Differential of a concrete map's output in its argument and, where asked for, its weights.

    Parameters
    ----------
    mapping, argument, body
        As for `body_jacobian`.
    is_weight : callable
        Which leaves vary besides the argument; none unless said.

    Returns
    -------
    form : Form
        Down to the argument and the weights; at output token ``i`` if the map mixes tokens.
    steps : list of Step
    """
    names = {v.name for v in body.lets}

    def is_atom(expr: sp.Basic) -> bool:
        if isinstance(expr, Let | ScalarLet) and expr.name in names and expr != argument:
            return True
        return of_argument(expr, argument) or is_weight(expr)

    known: dict[str, tuple[tuple[sp.Symbol, ...], Form]] = {}

    def lookup(atom: sp.Basic) -> Form | None:
        entry = known.get(getattr(atom, "name", "")) if isinstance(atom, Let | ScalarLet) else None
        if entry is None or atom == argument:
            return None
        indices, form = entry
        renaming = {a: b for a, b in zip(indices, atom.indices, strict=True) if a != b}
        return form.renamed(renaming)

    def lookup_uncut(atom: sp.Basic) -> Form | None:
        return None if getattr(atom, "name", None) in body.cuts else lookup(atom)

    steps: list[Step] = []
    output = _output_let(mapping, argument, body)
    for quantity in (*body.lets, output):
        rules: list[str] = []
        form = Differentiator(is_atom, rules)(quantity.definition)
        line = Recorder(quantity, form, rules, steps)
        line.simplify(body.identities)
        while line.substitute(lookup_uncut):
            line.simplify(body.identities)
        if any(t.over for t in line.form.terms):
            line.sum_inside()
            line.simplify(body.identities)
        line.collect()
        if quantity == output:
            while line.substitute(lookup):
                pass
            if not mapping.mixes_tokens and any(t.over for t in line.form.terms):
                line.sum_inside()
                line.collect(scalars_first=False)
        known[quantity.name] = (quantity.indices, line.form)
    return known[output.name][1], steps


def of_argument(atom: sp.Basic, argument: sp.Basic) -> bool:
    """Whether an atom is the argument of a map, or a token of it."""
    return atom == argument or (isinstance(atom, At) and atom.family == argument)


def read_jacobian(mapping: Map, argument: sp.Basic, form: Form) -> sp.Basic:
    """Read the Jacobian off the differential of a map, whose atoms are the argument alone."""
    if mapping.mixes_tokens:
        return _read_blocks(mapping, argument, form)
    if not form.terms:
        return sp.ZeroMatrix(mapping.output_rows(argument), argument.shape[0])
    (term,) = form.terms
    return term.coefficient


def _output_let(mapping: Map, argument: sp.Basic, body: Body) -> Let:
    indices = (TOKENS[0],) if mapping.mixes_tokens else ()
    return Let(f"{mapping.name}({argument})", body.output, *indices)


def _read_blocks(mapping: Map, argument: sp.Basic, form: Form) -> TokenBlocks:
    """Read the block from token ``j`` to token ``i`` off a differential at token ``i``."""
    i, j, k, *_ = TOKENS
    parts = []
    for term in form.terms:
        token = term.atom.position
        coefficient, over = term.coefficient, dict(term.over)
        if token == i:
            renaming = {j: k} if j in over else {}
            coefficient = product([sp.KroneckerDelta(i, j), coefficient.xreplace(renaming)])
            bounds = [(renaming.get(b, b), size) for b, size in term.over]
        else:
            coefficient = coefficient.xreplace({token: j}) if token != j else coefficient
            bounds = [(b, size) for b, size in term.over if b != token]
        for bound, size in reversed(bounds):
            coefficient = index_sum(coefficient, bound, size)
        parts.append(coefficient)
    return TokenBlocks(JacobianOf(mapping, argument), total(parts), i, j)
