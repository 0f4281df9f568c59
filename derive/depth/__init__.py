"""Stacks over depth: products, sums, spectra of the derived Jacobians."""

from derive.depth.rows import depth_rows
from derive.depth.spectrum import spectra, spectrum_row, token_log_norms
from derive.depth.stack import Stack
from derive.depth.weight_gradients import weight_gradient_log_norms, weight_gradients

__all__ = [
    "Stack",
    "depth_rows",
    "spectra",
    "spectrum_row",
    "token_log_norms",
    "weight_gradient_log_norms",
    "weight_gradients",
]
