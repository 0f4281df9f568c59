"""`derive literature`: text, JSON, Markdown, mistakes."""

from pathlib import Path

import pytest

from derive.laws.literature import ENTRIES

from . import command
from .test_readme import same

pytestmark = pytest.mark.slow

TABLE = Path(__file__).parents[1] / "docs" / "literature-table.md"

KEYS = [
    "id",
    "paper",
    "reference",
    "where",
    "seen",
    "statement",
    "setting",
    "comparisons",
    "verdict",
    "reason",
]


def test_json_of_a_paper(capsys):
    rows = command.rows_of(capsys, "literature", "--paper", "kedia")
    assert [row["id"] for row in rows] == [n for n in ENTRIES if n.startswith("kedia")]
    assert all(list(row) == KEYS for row in rows)
    scaled = next(row for row in rows if row["id"] == "kedia-deepscalelm")
    assert scaled["setting"]["init"] == "unit"
    assert {row["verdict"] for row in rows} == {"agrees", "depends"}


def test_text_marks_what_does_not_hold(capsys):
    code, out, err = command.run(capsys, "literature", "--paper", "xiong-skip-factor")
    assert (code, err) == (0, "")
    assert out.startswith("xiong-skip-factor: depends\n")
    assert "  = identity path from layer L to 1: stated 0.362887, ours 0.3629\n" in out
    assert "  ! |dL/dW_2|, layer 1 over layer L: stated 0.362887, ours 1\n" in out
    assert out.endswith("statements 1: depends 1\n")


def test_markdown_escapes_and_closes_every_row(capsys):
    code, out, _ = command.run(capsys, "literature", "--paper", "xiong", "--format", "markdown")
    assert code == 0
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {6}
    assert r"\|dL/dW\_2\|" in out


@pytest.mark.parametrize("args", [("--paper", "nobody"), ("--paper", "")])
def test_an_unknown_paper_is_one_line(capsys, args):
    code, out, err = command.run(capsys, "literature", *args)
    assert (code, out) == (2, "")
    assert err.startswith("derive: paper: expected one of xiong, ")
    assert err.count("\n") == 1


def test_the_page_of_the_docs_is_what_the_command_writes(capsys):
    """Numbers to 0.2 %: the measured exponents of one row depend on the linear algebra library."""
    code, out, _ = command.run(capsys, "literature", "--format", "markdown")
    written = TABLE.read_text(encoding="utf-8")
    assert code == 0
    assert same(written, out)
    assert not same(written.replace("agrees", "differs", 1), out)
