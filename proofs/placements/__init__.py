"""Theorems about single blocks, by where their norm sits."""
