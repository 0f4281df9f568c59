"""Theorems and verdicts: a claim, the steps that settle it, and how strong that is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from derive.errors import DomainError
from derive.proof.assumption import Assumption
from derive.proof.check import Certificate, Check, Formula
from derive.proof.source import Cite

__all__ = ["GENERAL", "RIGOROUS", "STRENGTHS", "Cited", "Step", "Theorem", "Verdict"]

STRENGTHS = (
    "identity",
    "bound",
    "gaussian",
    "exact",
    "counterexample",
    "observed",
    "montecarlo",
    "training",
    "cited",
)
"""Kinds of certificates, strongest first."""
GENERAL = frozenset(STRENGTHS[:3])
"""Kinds that hold for every d."""
RIGOROUS = frozenset(STRENGTHS[:5])
"""Kinds that prove or refute; the others support."""


class Verdict(Enum):
    """What became of a claim."""

    PROVED = "proved"
    REFUTED = "refuted"
    CONDITIONAL = "conditional"
    SUPPORTED = "supported"
    OPEN = "open"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Cited(Check):
    """A step that is taken from a source and not checked here.

    Attributes
    ----------
    what : str
        What is taken, in words; formulas between dollar signs.
    cite : Cite
        From where.
    """

    what: str
    cite: Cite
    kind = "cited"

    def certificate(self) -> Certificate:
        """Say that this was not checked."""
        return Certificate(self.label, self.what, True, f"not checked here: {self.cite}")

    def formula(self) -> Formula:
        """Return the words."""
        return Formula(self.what)

    def wrong(self) -> Iterator[tuple[str, Check]]:
        """Yield nothing: what is not checked rejects nothing, and proves nothing."""
        return iter(())


@dataclass(frozen=True)
class Step:
    """One step of a proof.

    Attributes
    ----------
    claim : str
        What it shows, in words; formulas between dollar signs.
    by : str
        Why, in words: the rule or the idea.
    check : Check
        What certifies it.
    """

    claim: str
    by: str
    check: Check


@dataclass(frozen=True, kw_only=True)
class Theorem:
    """A claim with its verdict, assumptions, steps and sources.

    Attributes
    ----------
    id : str
        Lower-case words with hyphens.
    area : str
        The chapter that it belongs to.
    title : str
        A few words.
    statement : str
        What is claimed, in our words; formulas between dollar signs.
    verdict : Verdict
        What became of it.
    steps : tuple of Step
        The proof, or the refutation and what is true instead.
    sources : tuple of Cite
        Who claims it; own results have none.
    assumptions : tuple of Assumption
        All that the steps suppose.
    uses : tuple of Theorem
        Theorems that the steps rest on.
    holds_when, fails_when : str
        For a claim that can be read in several ways: under which it is true, under which not.
    remark : str
        What else a reader should know.

    Raises
    ------
    DomainError
        If the verdict says more than the certificates can, an assumption of a step is not stated,
        a claim that was refuted or is conditional does not say what is true, or a name is not one.
    """

    id: str
    area: str
    title: str
    statement: str
    verdict: Verdict
    steps: tuple[Step, ...]
    sources: tuple[Cite, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    uses: tuple[Theorem, ...] = ()
    holds_when: str = ""
    fails_when: str = ""
    remark: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.id):
            raise DomainError(f"id: expected lower-case words with hyphens, got {self.id!r}")
        if not self.steps:
            raise DomainError(f"{self.id}: expected at least one step")
        stated = set(self.assumptions)
        for step in self.steps:
            unstated = set(getattr(step.check, "assuming", ())) - stated
            if unstated:
                names = ", ".join(a.name for a in unstated)
                raise DomainError(f"{self.id}: expected {names} among the assumptions")
        self._check_verdict()

    def _check_verdict(self) -> None:
        kinds = [step.check.kind for step in self.steps]
        match self.verdict:
            case Verdict.PROVED if not set(kinds) <= GENERAL:
                excess = ", ".join(sorted(set(kinds) - GENERAL))
                raise DomainError(f"{self.id}: a proof for every d cannot rest on {excess}")
            case Verdict.PROVED if self.strength not in GENERAL:
                raise DomainError(f"{self.id}: a proof cannot use a theorem that is not proved")
            case Verdict.REFUTED if not set(kinds) & (RIGOROUS | {"observed"}):
                raise DomainError(f"{self.id}: a refutation needs a rigorous witness")
            case Verdict.CONDITIONAL if len(kinds) < 2 or not set(kinds) <= RIGOROUS:
                raise DomainError(
                    f"{self.id}: a conditional verdict needs a step that proves the condition and "
                    "one that shows what happens without it, both rigorous"
                )
            case Verdict.SUPPORTED if set(kinds) == {"cited"}:
                raise DomainError(f"{self.id}: what is only cited is open")
        readings = self.holds_when and self.fails_when
        if self.verdict in (Verdict.REFUTED, Verdict.CONDITIONAL) and not readings:
            raise DomainError(
                f"{self.id}: a {self.verdict} claim has to say under which reading it holds and "
                "under which it fails"
            )

    @property
    def strength(self) -> str:
        """The weakest certificate, also of the theorems that are used."""
        return max(
            (*(step.check.kind for step in self.steps), *(t.strength for t in self.uses)),
            key=STRENGTHS.index,
        )

    @property
    def label(self) -> str:
        """The strength as tables print it, with the sizes of an exact check."""
        labels = [s.check.label for s in self.steps if s.check.kind == self.strength]
        return labels[0] if labels else self.strength

    def as_dict(self) -> dict[str, object]:
        """Return the entry for JSON, with stable keys."""
        return {
            "id": self.id,
            "area": self.area,
            "title": self.title,
            "statement": self.statement,
            "verdict": str(self.verdict),
            "strength": self.label,
            "certificates": [step.check.label for step in self.steps],
            "assumptions": [a.statement for a in self.assumptions],
            "sources": [str(cite) for cite in self.sources],
            "uses": [t.id for t in self.uses],
            "holds_when": self.holds_when,
            "fails_when": self.fails_when,
        }
