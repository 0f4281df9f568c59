"""The map of the documents: every entry in it exists, and every entry of the area is in it."""

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
NAMED = {id_ for _, _, cell in ROWS for id_ in re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)+", cell)}
ENTRIES = {t.id for t in collected().values() if t.area == "documents"}
DOCUMENTS = ("handbook", "course", "interview")


def test_every_row_has_an_entry_or_a_reason():
    for where, said, cell in ROWS:
        assert where
        assert said
        assert cell.startswith("— (") or re.match(r"[a-z0-9]+-", cell), cell


def test_every_entry_named_exists():
    named = {id_ for id_ in NAMED if id_.startswith(tuple(f"{d}-" for d in DOCUMENTS))}
    assert named <= ENTRIES, sorted(named - ENTRIES)


def test_every_entry_of_the_area_is_named():
    assert ENTRIES <= NAMED, sorted(ENTRIES - NAMED)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_entries_cite_the_document_they_are_named_after(document):
    for theorem in collected().values():
        if theorem.id.startswith(f"{document}-"):
            assert document in {cite.source.key for cite in theorem.sources}, theorem.id
