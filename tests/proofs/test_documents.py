"""The map of the documents: its entries and verdicts are those of the area, no more, no less."""

import re
from pathlib import Path

import pytest

from derive.proof import collected

MAP = Path(__file__).parents[2] / "docs" / "documents.md"
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in MAP.read_text().splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| where"))
]
NAMED = {pair for _, _, cell in ROWS if not cell.startswith("—") for pair in cell.split(", ")}
ENTRIES = {f"{t.id}: {t.verdict}" for t in collected().values() if t.area == "documents"}
DOCUMENTS = ("handbook", "course", "interview")


def test_every_row_has_an_entry_or_a_reason():
    for where, said, cell in ROWS:
        assert where
        assert said
        assert re.fullmatch(r"— \(.+\)|[a-z].+: [a-z]+", cell), cell


def test_entries_and_verdicts_of_the_map_are_those_of_the_collection():
    assert NAMED == ENTRIES


@pytest.mark.parametrize("document", DOCUMENTS)
def test_entries_cite_the_document_they_are_named_after(document):
    for theorem in collected().values():
        if theorem.id.startswith(f"{document}-"):
            assert document in {cite.source.key for cite in theorem.sources}, theorem.id
