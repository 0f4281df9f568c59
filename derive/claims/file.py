r"""Claims as files: TOML with a block, assumptions and a relation.

.. code-block:: toml

    title = "a pre-norm block keeps its input"
    block = "x + F(N(x))"            # or a placement: "pre"
    norm = "layernorm"
    assume = ["eps == 0"]
    relation = "J*x == x"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sympy as sp

import derive
from derive.blocks.build import block as build_block
from derive.blocks.build import state, sublayer
from derive.calculus.atoms import Inner, Matrix, Ones, Vector, eye
from derive.calculus.derivation import Derivation, derivation
from derive.calculus.maps import Map
from derive.claims.relation import Relation, parse_relation
from derive.errors import DomainError, ParseError
from derive.proof.assumption import Assumption, given, satisfying
from derive.proof.bound import AtMost, Contraction
from derive.symbols import alpha, beta, d, eps, n

__all__ = ["OwnClaim", "read_claim"]

LARGEST = 100_000
KEYS = {
    "title": "words",
    "block": "placement or equation; J is its Jacobian",
    "other": "a second placement or equation; K is its Jacobian",
    "norm": "kind of the norms, layernorm by default",
    "sublayer": "kind of the sublayer, abstract by default",
    "assume": "list of relations, such as 'eps == 0' or 'mean == 0'",
    "relation": "what is claimed",
}


@dataclass(frozen=True)
class OwnClaim:
    """A claim of a user's.

    Attributes
    ----------
    title : str
        In words.
    relation : Relation
        What is claimed, with the assumptions put in.
    assumptions : tuple of Assumption
        As stated.
    text : str
        The relation as it was written.
    facts : tuple
        What is known of the norms in it, for bounds.
    """

    title: str
    relation: Relation
    assumptions: tuple[Assumption, ...]
    text: str
    facts: tuple[Any, ...] = ()


def read_claim(path: str | Path) -> OwnClaim:
    """Read a claim from a TOML file; see the module for an example.

    Raises
    ------
    ParseError
        If the file is not such a claim; the message names the key.
    DomainError
        If no input satisfies the assumptions.
    OSError
        If it cannot be read.
    """
    path = Path(path)
    if path.stat().st_size > LARGEST:
        raise ParseError(f"{path.name}: expected at most {LARGEST} bytes")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParseError(f"{path.name}: expected TOML; {error}") from None
    unknown = sorted(set(found) - set(KEYS))
    if unknown:
        raise ParseError(f"{path.name}: expected keys {', '.join(KEYS)}, got {unknown[0]!r}")
    for key in ("title", "block", "other", "norm", "sublayer", "relation"):
        if not isinstance(found.get(key, ""), str):
            raise ParseError(f"{path.name}: {key}: expected a text, got {found[key]!r}")
    assume = found.get("assume", [])
    if not isinstance(assume, list) or not all(isinstance(a, str) for a in assume):
        raise ParseError(f"{path.name}: assume: expected a list of texts, got {assume!r}")
    if "relation" not in found:
        raise ParseError(f"{path.name}: expected a relation, got none")
    return _claim(found, path.stem)


def _claim(found: dict[str, Any], name: str) -> OwnClaim:
    norm, kind = found.get("norm", "layernorm"), found.get("sublayer", "abstract")
    x = state("x")
    names: dict[str, sp.Basic] = {
        "x": x,
        "ones": Ones(d),
        "I": eye(d),
        "C": eye(d) - Ones(d) * Ones(d).T / d,
        "gain": Vector("gain", d),
        "bias": Vector("bias", d),
        "A": Matrix("A", d, d),
        "B": Matrix("B", d, d),
        "mean": Inner(Ones(d), x) / d,
        **{s.name: s for s in (d, n, eps, alpha, beta)},
    }
    maps: dict[str, Map] = {"F": sublayer(kind), "N": derive.norm(norm)}
    facts: list[Any] = []
    for key, letter in (("block", "J"), ("other", "K")):
        if key in found:
            derived = derivation(build_block(found[key], norm, kind, x), x)
            names[letter] = derived.jacobian
            facts += _norm_facts(derived)
            if key == "block":
                names |= {v.name: v for v in derived.lets if v.name not in names}
    assumptions = tuple(_assumption(text, names) for text in found.get("assume", []))
    satisfying(assumptions)
    relation = parse_relation(found["relation"], names, maps)
    put = [given(side, assumptions) for side in (relation.left, relation.right)]
    return OwnClaim(
        found.get("title", name),
        Relation(put[0], relation.sign, put[1]),
        assumptions,
        found["relation"],
        tuple(fact.given(assumptions) for fact in facts),
    )


def _norm_facts(derived: Derivation) -> list[Any]:
    """Return that each core of a norm is a contraction, and its root at least the root of eps."""
    named = {quantity.name: quantity for quantity in derived.lets}
    found: list[Any] = []
    for name, xhat in named.items():
        stem, _, number = name.partition("_")
        roots = [named.get("_".join(filter(None, (r, number)))) for r in ("s", "r")]
        root = next((r for r in roots if r is not None), None)
        if stem != "xhat" or root is None:
            continue
        core = eye(d) - xhat * xhat.T / d
        if roots[0] is not None:
            core = eye(d) - Ones(d) * Ones(d).T / d - xhat * xhat.T / d
        found.append(Contraction(core, [(eps / (d * root**2), xhat)]))
        found.append(AtMost(1 / root, 1 / sp.sqrt(eps), Inner(root * xhat, root * xhat) / d, -2))
    return found


def _assumption(text: str, names: dict[str, sp.Basic]) -> Assumption:
    """Return ``name == value`` as a substitution, ``mean == 0`` as an input without mean."""
    known = {k: v for k, v in names.items() if k not in ("J", "K")}
    relation = parse_relation(text, known)
    left, right = relation.left, relation.right
    if relation.sign == "==" and left == names["mean"] and right == 0:
        return Assumption(text, text, ((names["x"], names["C"] * names["x"]),))
    if relation.sign == "==" and isinstance(left, sp.Symbol | Vector | Matrix):
        if left in right.free_symbols:
            raise DomainError(f"assume: expected a value without {left} itself, got {text!r}")
        if isinstance(left, sp.Symbol) and left.is_nonnegative and right.is_negative:
            raise DomainError(f"assume: expected a value that {left} can have, got {text!r}")
        return Assumption(text, text, ((left, right),))
    free = left.free_symbols | right.free_symbols
    if relation.sign == "<=" and free and all(isinstance(s, sp.Symbol) for s in free):
        return Assumption(text, text, (), sp.Le(left, right))
    raise ParseError(
        f"assume: expected 'name == value' for a scalar, a vector or a matrix, 'mean == 0', or an "
        f"inequality of scalars, got {text!r}"
    )
