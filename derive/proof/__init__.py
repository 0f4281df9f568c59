"""Theorems, certificates and verdicts; knows no transformer."""

from derive.proof.assumption import Assumption
from derive.proof.bound import AtMost, Bound, Contraction, NormFact
from derive.proof.check import Certificate, Check
from derive.proof.collection import collected, find
from derive.proof.counterexample import Counterexample
from derive.proof.entrywise import Entries, Laplacian
from derive.proof.exact import Exact
from derive.proof.gaussian import ChiSquare, Expectation, Gaussian, chi_square
from derive.proof.identity import Identity, Induction
from derive.proof.montecarlo import MonteCarlo
from derive.proof.observed import Observed, Training
from derive.proof.size import MaxAbs, SmallestSingular, SpectralNorm
from derive.proof.source import Cite, Source
from derive.proof.theorem import Cited, Step, Theorem, Verdict
from derive.proof.verify import Cache, Verified, verify

__all__ = [
    "Assumption",
    "AtMost",
    "Bound",
    "Cache",
    "Certificate",
    "Check",
    "ChiSquare",
    "Cite",
    "Cited",
    "Contraction",
    "Counterexample",
    "Entries",
    "Exact",
    "Expectation",
    "Gaussian",
    "Identity",
    "Induction",
    "Laplacian",
    "MaxAbs",
    "MonteCarlo",
    "NormFact",
    "Observed",
    "SmallestSingular",
    "Source",
    "SpectralNorm",
    "Step",
    "Theorem",
    "Training",
    "Verdict",
    "Verified",
    "chi_square",
    "collected",
    "find",
    "verify",
]
