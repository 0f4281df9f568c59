"""The laws beside the literature: published statements, ours at their setting, and verdicts."""

from derive.laws.literature.entry import SEEN, Comparison, Paper, Published, verdict
from derive.laws.literature.papers import PAPERS
from derive.laws.literature.table import ENTRIES, literature_row, select

__all__ = [
    "ENTRIES",
    "PAPERS",
    "SEEN",
    "Comparison",
    "Paper",
    "Published",
    "literature_row",
    "select",
    "verdict",
]
