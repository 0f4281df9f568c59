"""Depth laws: what placement does to forward variance and gradient, over random weights."""

from derive.laws.components import Moments
from derive.laws.gaussian import DualKernel, dual_kernel
from derive.laws.initial import SCHEMES, Scheme
from derive.laws.law import DepthLaw, Prediction
from derive.laws.measure import Estimate, Measurement, measure
from derive.laws.rows import law_rows
from derive.laws.solve import Solution

__all__ = [
    "SCHEMES",
    "DepthLaw",
    "DualKernel",
    "Estimate",
    "Measurement",
    "Moments",
    "Prediction",
    "Scheme",
    "Solution",
    "dual_kernel",
    "law_rows",
    "measure",
]
