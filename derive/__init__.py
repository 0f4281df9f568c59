"""Closed-form Jacobians of residual blocks by where the normalisation sits."""
