"""Which layer may import which: the architecture, held by a test."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import derive

ROOT = Path(derive.__file__).parent
# A package may import those of its own level and of every level below.
LEVELS = [
    {"errors"},
    {"symbols"},
    {"calculus", "linalg"},
    {"blocks", "proof"},
    {"claims", "initialise", "lower"},
    {"backends", "depth"},
    {"laws"},
    {"crosscheck", "render"},
    {"report", "bench"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
# `Derivation` shows itself: it asks the renderer when it is printed, not when it is imported.
ASKED_WHEN_CALLED = {("calculus", "render")}


def modules():
    return sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem != "__init__")


def imported(path):
    """Yield (name, whether at the top level of the module)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names if node.module == "derive" else [None]:
                name = f"derive.{alias.name}" if alias else node.module
                yield name, id(node) in top


def part_of(path):
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    here = part_of(path)
    assert here in LEVEL, f"{here} has no level: add it to LEVELS"
    for name, top in imported(path):
        parts = name.split(".")
        if parts[0] != "derive" or len(parts) == 1 or parts[1] not in LEVEL:
            continue
        if not top and (here, parts[1]) in ASKED_WHEN_CALLED:
            continue
        assert LEVEL[parts[1]] <= LEVEL[here], f"{here} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_frameworks_stay_where_they_belong(path):
    roots = {name.split(".")[0] for name, _ in imported(path)}
    here = part_of(path)
    assert "proofs" not in roots
    if here == "linalg":
        assert "sympy" not in roots
    if here != "backends":
        assert not roots & {"torch", "transformers"}
    if here not in ("cli", "report", "render"):
        assert not roots & {"click", "tqdm", "matplotlib", "jinja2", "latex2mathml"}


def test_import_derive_is_light():
    heavy = ["torch", "transformers", "matplotlib", "jinja2", "latex2mathml", "click", "tqdm"]
    code = f"import derive, sys; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert found.strip() == "[]"


def test_a_wrong_import_would_be_seen(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from derive.cli import main\nimport torch\n")
    assert dict(imported(wrong)) == {"derive.cli": True, "torch": True}
