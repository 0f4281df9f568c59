"""Closed-form Jacobians of residual blocks by where the normalisation sits.

``derive.derivation(N(x + F(x)), x)`` derives the Jacobian of a block step by step; the same
expression prints as LaTeX, is lowered to linear operators over depth and is checked against
autodiff of real blocks.
"""

from derive.blocks.activations import activation
from derive.blocks.attention import Attention
from derive.blocks.build import block, layer, state, sublayer
from derive.blocks.norms import LayerNorm, RMSNorm, norm
from derive.blocks.placements import PLACEMENTS, Placement, placement
from derive.blocks.sublayers import FFN, GatedFFN, Sublayer
from derive.calculus.derivation import Derivation, derivation, jacobian
from derive.calculus.let import let
from derive.errors import DeriveError

__all__ = [
    "FFN",
    "PLACEMENTS",
    "Attention",
    "Derivation",
    "DeriveError",
    "GatedFFN",
    "LayerNorm",
    "Placement",
    "RMSNorm",
    "Sublayer",
    "activation",
    "block",
    "derivation",
    "jacobian",
    "layer",
    "let",
    "norm",
    "placement",
    "state",
    "sublayer",
]

__version__ = "0.1.0"
