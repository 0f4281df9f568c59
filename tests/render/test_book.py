"""The book of proofs: sound LaTeX for every claim, a well-formed page, references that resolve."""

import re
import xml.etree.ElementTree as ET

import pytest

from derive.proof import collected
from derive.render.book import book_html, book_tex, strength_rows, strengths_markdown
from derive.render.proof import proof_latex, proof_text, sentence_latex

from .latex_rules import complaints

THEOREMS = tuple(collected().values())


@pytest.mark.parametrize("theorem", THEOREMS, ids=lambda t: t.id)
def test_every_claim_is_sound_latex_and_text(theorem):
    assert complaints(proof_latex(theorem)) == []
    shown = proof_text(theorem)
    assert shown.startswith(f"{theorem.id}: {theorem.title}")
    assert all(f"\n  {number}. " in shown for number in range(1, len(theorem.steps) + 1))


def test_references_and_citations_of_the_book_resolve():
    tex = book_tex(THEOREMS)
    for used, defined in (
        (r"\\ref\{(.*?)\}", r"\\label\{(.*?)\}"),
        (r"\\cite\{(.*?)\}", r"\\bibitem\{(.*?)\}"),
    ):
        assert set(re.findall(used, tex)) <= set(re.findall(defined, tex))
    assert tex.count(r"\section{") == len(THEOREMS)


def test_the_page_is_well_formed_and_its_links_lead_somewhere():
    page = book_html(THEOREMS)
    body = page.partition("</style>")[2].replace("&nbsp;", " ")
    ET.fromstring("<html><head>" + body)  # raises if it is not
    anchors = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= anchors
    assert page.count("<article") == len(THEOREMS)


def test_strengths_add_up():
    rows = strength_rows(THEOREMS)
    assert sum(count for _, count, _ in rows) == len(THEOREMS)
    assert all(f"| {kind} | {count} |" in strengths_markdown(THEOREMS) for kind, count, _ in rows)


def test_words_are_escaped_and_formulas_are_not():
    assert sentence_latex(r"50% of $W_O$ & more") == r"50\% of $W_O$ \& more"
