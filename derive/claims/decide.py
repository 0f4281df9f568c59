"""What becomes of a claim: proved, refuted with a small witness, or not decided; never more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from derive.calculus.atoms import Matrix, State, Vector
from derive.calculus.tensor import is_scalar
from derive.claims.file import OwnClaim
from derive.claims.trials import BatchRing, batch_values
from derive.errors import DeriveError, UnknownNodeError
from derive.proof.bound import Bound
from derive.proof.check import constant
from derive.proof.identity import shown_equal
from derive.proof.interval import IntervalRing, entries, sizes_at
from derive.proof.size import measured

__all__ = ["Decision", "decide"]

TRIALS = 10_000
WIDTHS = (2, 3, 4, 5)
SMALL = 400
"""Small inputs that are tried as witnesses at each width."""
CLEAR = 1e-6
"""Relative excess in floating point from which a violation is looked at in exact arithmetic."""


@dataclass(frozen=True)
class Decision:
    """What became of a claim.

    Attributes
    ----------
    claim : OwnClaim
        The claim.
    verdict : str
        ``proved``, ``refuted`` or ``not decided``.
    strength : str
        The kind of certificate; "" where nothing is decided.
    why : str
        The rules, the witness, or what was tried.
    witness : mapping
        Values by name, for a refuted claim.
    """

    claim: OwnClaim
    verdict: str
    strength: str
    why: str
    witness: Mapping[str, Any]

    def __str__(self) -> str:
        lines = [f"{self.claim.title}: {self.claim.text}"]
        lines += [f"  assuming {a.statement}" for a in self.claim.assumptions]
        strength = f" ({self.strength})" if self.strength else ""
        lines.append(f"  {self.verdict}{strength}: {self.why}")
        lines += [f"    {name} = {value}" for name, value in self.witness.items()]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the decision for JSON."""
        return {
            "id": self.claim.title,
            "statement": self.claim.text,
            "assumptions": [a.statement for a in self.claim.assumptions],
            "verdict": self.verdict,
            "strength": self.strength,
            "why": self.why,
            "witness": {k: str(v) for k, v in self.witness.items()},
            "holds": {"proved": True, "refuted": False}.get(self.verdict),
        }


def decide(claim: OwnClaim) -> Decision:
    """Decide a claim as far as the procedures go.

    An equation is compared by the decision procedure at symbolic sizes, an inequality bounded by
    named rules. What is not proved is tried at small rational inputs, smallest width first, where
    interval arithmetic makes a refutation rigorous, and then at 10,000 random inputs.
    """
    relation = claim.relation
    if relation.sign == "==":
        try:
            if shown_equal(relation.left, relation.right):
                return Decision(claim, "proved", "identity", "for every d, by the normal form", {})
        except UnknownNodeError:
            pass  # outside the fragment: what is left are trials
    else:
        bound = Bound(
            claim=constant((relation.left, relation.right)),
            of=lambda: None,
            instead=lambda: None,
            facts=lambda _: claim.facts,
        )
        holds, why = bound.decide(relation.left, relation.right)
        if holds:
            return Decision(claim, "proved", "bound", f"for every d: {why}", {})
    return _refuted(claim) or _tried(claim)


def _refuted(claim: OwnClaim) -> Decision | None:
    """Look for a witness: small integers first, at the smallest width."""
    tokens = _tokens(claim)
    rigorous = claim.relation.sign == "=="
    strength = "counterexample" if rigorous else "floating point"
    for width in WIDTHS:
        for values in _small_inputs(claim, width, tokens):
            ring = IntervalRing(0, values)
            found = _apart(claim, ring, sizes_at(width, tokens), tokens)
            if found:
                witness = {"d": width, **({"n": tokens} if tokens > 1 else {}), **values}
                return Decision(claim, "refuted", strength, found, {**witness, **ring.drawn()})
    return None


def _tokens(claim: OwnClaim) -> int:
    sides = (claim.relation.left, claim.relation.right)
    nodes = (node for side in sides for node in sp.preorder_traversal(side))
    return 2 if any(getattr(node, "mixes_tokens", False) for node in nodes) else 1


def _atoms(claim: OwnClaim) -> list[Any]:
    found: set[Any] = set()
    for side in (claim.relation.left, claim.relation.right):
        for node in sp.preorder_traversal(side):
            if isinstance(node, State | Vector | Matrix):
                found.add(node)
        found |= {s for s in side.free_symbols if isinstance(s, sp.Symbol)}
    sizes = set(sizes_at(2))
    return sorted(found - sizes, key=str)


def _small_inputs(claim: OwnClaim, width: int, tokens: int) -> Iterator[dict[str, Any]]:
    """Yield values of all atoms: few small integers, then more and larger ones."""
    rng = np.random.default_rng(width)
    sizes = sizes_at(width)
    atoms = _atoms(claim)
    for trial in range(SMALL):
        most = 2 + trial // 80
        values: dict[str, Any] = {}
        for atom in atoms:
            if isinstance(atom, sp.Symbol):
                drawn = int(rng.integers(1, most + 1))
                values[atom.name] = (
                    drawn if atom.is_nonnegative else drawn * (-1) ** int(rng.integers(2))
                )
                continue
            shape = tuple(int(sp.sympify(s).subs(sizes)) for s in atom.shape)
            if isinstance(atom, State):
                shape = (shape[0], tokens)
            drawn_array = rng.integers(-most, most + 1, size=shape)
            values[atom.name] = (
                drawn_array[:, 0].tolist() if shape[1] == 1 else drawn_array.tolist()
            )
        yield values


def _apart(claim: OwnClaim, ring: IntervalRing, sizes: Mapping[Any, int], tokens: int) -> str:
    """Return what refutes the claim at these values, or ""."""
    relation = claim.relation
    sides = (relation.left, relation.right)
    try:
        if relation.sign == "==":
            left, right = (entries(side, ring, sizes, tokens) for side in sides)
            gaps = [
                (abs(float(a - b)), k)
                for k, (a, b) in enumerate(zip(left, right, strict=True))
                if a.apart(b)
            ]
            if not gaps:
                return ""
            _, k = max(gaps)
            place = "" if is_scalar(relation.left) else f" in entry {k + 1}"
            return f"left = {float(left[k]):.6g}, right = {float(right[k]):.6g}{place}"
        return _exceeds(relation.left, relation.right, ring, sizes)
    except (DeriveError, ZeroDivisionError):
        return ""


def _exceeds(left: sp.Expr, right: sp.Expr, ring: IntervalRing, sizes: Mapping[Any, int]) -> str:
    """Compare an inequality; sizes of matrices are known to rounding, which the margin covers."""
    try:
        a, b = measured(left, ring, sizes), measured(right, ring, sizes)
    except (TypeError, ValueError, OverflowError):
        return ""
    margin = CLEAR * (1 + abs(a) + abs(b))
    return f"left = {a:.6g}, right = {b:.6g}" if a > b + margin else ""


def _tried(claim: OwnClaim) -> Decision:
    """Try many random inputs; a violation is reported with its place, and nothing is proved."""
    relation = claim.relation
    tokens = _tokens(claim)
    count = TRIALS // len(WIDTHS)
    for width in WIDTHS:
        ring = BatchRing(count, width)
        sizes = sizes_at(width, tokens)
        with np.errstate(all="ignore"):
            left, right = (
                batch_values(side, ring, sizes, tokens) for side in (relation.left, relation.right)
            )
        scale = 1e-300 + np.abs(left).max(axis=(1, 2)) + np.abs(right).max(axis=(1, 2))
        gap = np.abs(left - right) if relation.sign == "==" else left - right
        worst = gap.max(axis=(1, 2)) / scale
        if np.nanmax(worst) > CLEAR:
            k = int(np.nanargmax(worst))
            why = (
                f"in floating point at d = {width}, random input {k} of seed {width}, where left "
                f"and right are {worst[k]:.2g} of their size apart"
            )
            return Decision(claim, "refuted", "floating point", why, {})
    sizes_words = ", ".join(map(str, WIDTHS))
    why = f"holds in {TRIALS:,} trials at d = {sizes_words}" + (", n = 2" if tokens > 1 else "")
    return Decision(claim, "not decided", "", why, {})
