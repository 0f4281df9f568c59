"""The table of strengths in README is generated; how large the collection has to be."""

import re
from pathlib import Path

from derive.proof import Counterexample, collected
from derive.proof.theorem import GENERAL, Verdict
from derive.render.book import strengths_markdown

README = Path(__file__).parents[2] / "README.md"
THEOREMS = tuple(collected().values())


def test_the_table_in_the_readme_is_the_generated_one():
    found = re.search(
        r"<!-- strengths[^\n]*-->\n(.*?)\n<!-- /strengths -->", README.read_text(), re.DOTALL
    )
    assert found is not None
    assert found[1].strip() == strengths_markdown(THEOREMS), "run: derive claims --strengths"


def test_the_collection_is_as_large_as_it_says():
    general = [t for t in THEOREMS if any(s.check.kind in GENERAL for s in t.steps)]
    refuted = [
        t
        for t in THEOREMS
        if t.verdict is Verdict.REFUTED
        and any(isinstance(s.check, Counterexample) for s in t.steps)
    ]
    assert len(THEOREMS) >= 80
    assert len(general) >= 40
    assert len(refuted) >= 12


def test_proved_means_for_every_width():
    assert all(t.strength in GENERAL for t in THEOREMS if t.verdict is Verdict.PROVED)
