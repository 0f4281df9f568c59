"""Structured linear operators over tokens, their ordered products and their path sums."""

from derive.linalg.block_matrix import BlockMatrix
from derive.linalg.composition import Chain, Sum
from derive.linalg.continuum import magnus, ordered_exponential, refinements
from derive.linalg.contraction import Contraction
from derive.linalg.contributions import branch_contributions
from derive.linalg.cost import Cost, cost
from derive.linalg.deflation import DeflatedFactor
from derive.linalg.ensembles import token_square_norms
from derive.linalg.exponents import LyapunovSpectrum, kaplan_yorke_dimension
from derive.linalg.extreme import Triplets, bottom_triplets, top_triplets
from derive.linalg.growth import product_spectra
from derive.linalg.invariants import diagonal, frobenius_norm, log_abs_det, trace
from derive.linalg.lyapunov import lyapunov_spectrum
from derive.linalg.materialise import materialise, token_blocks, token_pair_blocks
from derive.linalg.norms import spectral_norm
from derive.linalg.operator import Operator
from derive.linalg.path_shares import effective_lengths, path_energies
from derive.linalg.paths import first_order, graded_path_sums, path_sums
from derive.linalg.products import end_to_end, gradient_log_norms, log_norm, product_of_blocks
from derive.linalg.remainder import (
    log_product_remainder_bound,
    log_remainder_bound,
    product_remainder_bound,
    remainder_bound,
)
from derive.linalg.scaled import ScaledMatrix
from derive.linalg.singular import Spectrum, alignments
from derive.linalg.spectrum import log_singular_values
from derive.linalg.strong_paths import strongest_paths
from derive.linalg.token_map import token_pair_log_norms
from derive.linalg.tokenwise import Dense, Diagonal, Identity, LowRank, Scaling, Zero

__all__ = [
    "BlockMatrix",
    "Chain",
    "Contraction",
    "Cost",
    "DeflatedFactor",
    "Dense",
    "Diagonal",
    "Identity",
    "LowRank",
    "LyapunovSpectrum",
    "Operator",
    "ScaledMatrix",
    "Scaling",
    "Spectrum",
    "Sum",
    "Triplets",
    "Zero",
    "alignments",
    "bottom_triplets",
    "branch_contributions",
    "cost",
    "diagonal",
    "effective_lengths",
    "end_to_end",
    "first_order",
    "frobenius_norm",
    "graded_path_sums",
    "gradient_log_norms",
    "kaplan_yorke_dimension",
    "log_abs_det",
    "log_norm",
    "log_product_remainder_bound",
    "log_remainder_bound",
    "log_singular_values",
    "lyapunov_spectrum",
    "magnus",
    "materialise",
    "ordered_exponential",
    "path_energies",
    "path_sums",
    "product_of_blocks",
    "product_remainder_bound",
    "product_spectra",
    "refinements",
    "remainder_bound",
    "spectral_norm",
    "strongest_paths",
    "token_blocks",
    "token_pair_blocks",
    "token_pair_log_norms",
    "token_square_norms",
    "top_triplets",
    "trace",
]
