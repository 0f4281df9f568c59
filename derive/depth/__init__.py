"""Stacks over depth: products, sums, spectra of the derived Jacobians."""

from derive.depth.asymptotics import (
    ContractionRate,
    contraction_rate,
    lyapunov_spectrum,
    placed_lyapunov_spectrum,
)
from derive.depth.certified import Certified, certify
from derive.depth.paths import PathExpansion, path_expansion
from derive.depth.placed import placed_stack, starting_scalars
from derive.depth.precision import Simulation, precision_rows, simulate
from derive.depth.rounded import Precision
from derive.depth.rows import depth_rows
from derive.depth.spectrum import spectra, spectrum_row, token_log_norms
from derive.depth.stack import Stack
from derive.depth.streams import StreamStack
from derive.depth.weight_gradients import weight_gradient_log_norms, weight_gradients

__all__ = [
    "Certified",
    "ContractionRate",
    "PathExpansion",
    "Precision",
    "Simulation",
    "Stack",
    "StreamStack",
    "certify",
    "contraction_rate",
    "depth_rows",
    "lyapunov_spectrum",
    "path_expansion",
    "placed_lyapunov_spectrum",
    "placed_stack",
    "precision_rows",
    "simulate",
    "spectra",
    "spectrum_row",
    "starting_scalars",
    "token_log_norms",
    "weight_gradient_log_norms",
    "weight_gradients",
]
