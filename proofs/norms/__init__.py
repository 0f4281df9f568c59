"""Theorems about the norms themselves."""
