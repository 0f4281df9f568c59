"""Theorems about attention: its softmax, its paths, its mixing of tokens."""
