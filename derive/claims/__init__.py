"""A user's own claim: a file of a few lines in, proved, refuted or not decided out."""

from derive.claims.decide import Decision, decide
from derive.claims.file import OwnClaim, read_claim

__all__ = ["Decision", "OwnClaim", "decide", "read_claim"]
