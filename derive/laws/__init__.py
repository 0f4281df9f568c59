"""Depth laws: what placement does to forward variance and gradient, over random weights."""
