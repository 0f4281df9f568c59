"""Benchmarks: the closed form and its peers on the same weights, in turn, in one process."""

from derive.bench.rows import Row, table
from derive.bench.suite import TASKS, run

__all__ = ["TASKS", "Row", "run", "table"]
