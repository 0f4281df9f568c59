"""Real blocks in, their weights and autodiff Jacobians out; the only package that imports torch.

Nothing here needs torch to be imported: a function that does raises `MissingExtraError` when it is
missing.
"""

from derive.backends.autodiff import autodiff_jacobian, check_weights, jacobian, output
from derive.backends.precision import PrecisionReport, float64_throughout
from derive.backends.reading import known_modules, read_block, register_reader
from derive.backends.real_block import RealBlock
from derive.backends.systems import SYSTEMS, build, stack, state

__all__ = [
    "SYSTEMS",
    "PrecisionReport",
    "RealBlock",
    "autodiff_jacobian",
    "build",
    "check_weights",
    "float64_throughout",
    "jacobian",
    "known_modules",
    "output",
    "read_block",
    "register_reader",
    "stack",
    "state",
]
