"""Theorems about variants of the residual block: streams, other norms, scaled branches."""
