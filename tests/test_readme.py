"""The code blocks of README.md and docs/ run, and show what they say they show.

A ``python`` block with prompts is a doctest, one without is executed; the blocks of a page share
their names. In a ``console`` block each ``$ derive`` line is run as a command and its output is
compared. Numbers are compared to three digits, and what is below 1e-12 counts as rounding.
"""

from __future__ import annotations

import doctest
import math
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")
CHECKS = ("torch", "transformers", "crosscheck", "derive check", "backends")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    body: str

    @property
    def id(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, m.start()) + 2, m[1], m[2]) for m in FENCE.finditer(text)
    ]


ALL = [block for page in PAGES for block in blocks(page)]


def marked(value, text: str, name: str):
    """A parameter with the marker that the imports in `text` ask for."""
    needs = any(word in text for word in CHECKS)
    marks = [pytest.mark.torch, pytest.mark.transformers] if needs else []
    return pytest.param(value, marks=marks, id=name)


def same(want: str, got: str) -> bool:
    """Whether two outputs agree, white space apart and numbers up to rounding."""
    if NUMBER.sub("#", want).split() != NUMBER.sub("#", got).split():
        return False
    pairs = zip(NUMBER.findall(want), NUMBER.findall(got), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=2e-3, abs_tol=1e-12) for a, b in pairs)


class Checker(doctest.OutputChecker):
    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, got, optionflags) or same(want, got)


def run_doctest(block: Block, names: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(
        block.body, names, block.id, str(block.page), block.line
    )
    report: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(Checker(), optionflags=flags)
    result = runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert not result.failed, "".join(report)


PYTHON_PAGES = [p for p in PAGES if any(b.language == "python" for b in blocks(p))]


@pytest.mark.parametrize(
    "page",
    [marked(p, p.read_text(encoding="utf-8"), str(p.relative_to(ROOT))) for p in PYTHON_PAGES],
)
def test_python_blocks(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            if ">>> " in block.body:
                run_doctest(block, names)
            else:
                code = compile("\n" * (block.line - 1) + block.body, str(page), "exec")
                exec(code, names)


def commands(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output that follows it."""
    parts = re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]
    return [(c, out) for c, _, out in (part.partition("\n") for part in parts)]


COMMANDS = [
    (block, command, output)
    for block in ALL
    if block.language == "console"
    for command, output in commands(block)
]


@pytest.mark.parametrize(
    ("block", "command", "output"),
    [
        pytest.param(b, c, o, marks=m.marks, id=f"{b.id} {c}")
        for b, c, o in COMMANDS
        for m in [marked(b, c, c)]
    ],
)
def test_console_blocks(block, command, output, tmp_path):
    words, _, status = command.partition("   # exit ")
    program, *arguments = shlex.split(words)
    assert program == "derive", f"{block.id}: only derive is run here, not {program}"
    done = subprocess.run(
        [sys.executable, "-m", "derive.cli", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == int(status or 0), done.stderr
    shown = done.stdout + done.stderr
    if output.strip().endswith("..."):  # only the beginning is shown
        kept = output.strip().removesuffix("...").rstrip()
        shown = "\n".join(shown.splitlines()[: len(kept.splitlines())])
        output = kept
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert Checker().check_output(output, shown, flags), shown


def test_every_block_has_a_known_language():
    assert {b.language for b in ALL} <= {"python", "console", "sh", "text", "make"}
    unknown = [b.id for b in ALL if b.language == ""]
    assert not unknown, f"a block without a language is not tested: {unknown}"


def test_shell_blocks_name_targets_that_exist():
    """``sh`` blocks are commands for a fresh machine; CI runs them, here their names are held."""
    targets = set(re.findall(r"^([\w -]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {name for line in targets for name in line.split()}
    for block in ALL:
        if block.language == "sh":
            for target in re.findall(r"^make ([\w-]+)", block.body, re.MULTILINE):
                assert target in known, f"{block.id}: make {target}"


def test_the_first_screen_holds_the_two_commands():
    first = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30]
    assert any(line.startswith("make report") for line in first)
    assert any(line.startswith("make test") for line in first)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_versions_agree():
    import derive

    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {derive.__version__}\n" in text
    assert f'version = "{derive.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"## [{derive.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
