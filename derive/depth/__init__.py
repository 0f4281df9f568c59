"""Stacks over depth: products, sums, spectra of the derived Jacobians."""

from derive.depth.rows import depth_rows
from derive.depth.stack import Stack

__all__ = ["Stack", "depth_rows"]
