"""Theorems on what depth does to signals and gradients, at random weights."""
