"""The errors that the toolkit raises on purpose.

Every message says which argument was wrong, what was expected and what came.
"""

from __future__ import annotations

__all__ = [
    "DeriveError",
    "DomainError",
    "MissingExtraError",
    "ParseError",
    "ShapeError",
    "UnknownNameError",
    "UnknownNodeError",
    "WeightError",
]


class DeriveError(Exception):
    """Base of every error raised by this toolkit for a user's mistake."""


class ShapeError(DeriveError, ValueError):
    """Operands or arrays whose shapes do not fit together."""


class DomainError(DeriveError, ValueError):
    """A value outside the domain of the operation (d = 1, eps < 0, zero variance at eps = 0)."""


class WeightError(DeriveError, ValueError):
    """A weight that is missing, not finite, or of the wrong kind."""


class UnknownNameError(DeriveError, LookupError):
    """A placement, norm, sublayer, activation or system that is not known by that name."""


class UnknownNodeError(DeriveError, TypeError):
    """An expression node (or module) that an operation has no rule for."""


class ParseError(DeriveError, ValueError):
    """A text that is not a block expression."""


class MissingExtraError(DeriveError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""


class MissingPackageError(MissingExtraError):
    """A package is needed that no extra can bring, because of what it requires itself."""
