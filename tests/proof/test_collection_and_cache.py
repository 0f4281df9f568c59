"""Finding theorems, and the results that are kept: by content, so that a change is seen."""

import importlib
import sys

import pytest

from derive.errors import DomainError, UnknownNameError
from derive.proof import Cache, collected, find
from derive.proof.collection import theorems_in
from derive.proof.verify import _file_digest, verify

collection_module = importlib.import_module("derive.proof.collection")
verify_module = importlib.import_module("derive.proof.verify")

THEOREM = """
from {package}.setting import FACTOR
from derive.proof import Identity, Step, Theorem, Verdict
from derive.symbols import d

theorem = Theorem(
    id="{id}",
    area="tests",
    title="A test",
    statement="$2d = d + d$.",
    verdict=Verdict.PROVED,
    steps=(
        Step(
            "It is.",
            "addition",
            Identity(claim=lambda k: (k * d, d + d), of=lambda: FACTOR, instead=lambda: 3),
        ),
    ),
)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two theorems in a folder of its own, found in place of the installed ones."""
    name = f"made_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "setting.py").write_text("FACTOR = 2\n")
    (folder / "apart.py").write_text("UNUSED = 1\n")
    for id_ in ("first", "second"):
        (folder / f"{id_}.py").write_text(THEOREM.format(package=name, id=id_))
    monkeypatch.syspath_prepend(str(tmp_path))

    class Entry:
        def __init__(self, module):
            self.name = module

        def load(self):
            return importlib.import_module(self.name)

    monkeypatch.setattr(collection_module, "entry_points", lambda group: [Entry(name)])
    _forget()
    yield folder
    _forget()
    for module in [m for m in sys.modules if m.partition(".")[0] == name]:
        del sys.modules[module]


def _forget():
    collection_module._located.cache_clear()
    verify_module._source.cache_clear()
    verify_module._file_digest.cache_clear()


def test_theorems_of_a_package_are_found(package):
    assert list(collected()) == ["first", "second"]
    assert [t.id for t in find(["second", "first"])] == ["second", "first"]
    assert len(theorems_in(importlib.import_module(package.name))) == 2


def test_two_theorems_of_one_id_are_reported(package):
    (package / "third.py").write_text(THEOREM.format(package=package.name, id="first"))
    _forget()
    with pytest.raises(DomainError, match=r"first: two theorems have this id, in .*first and in"):
        collected()


def test_an_id_that_is_none_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean layernorm-jacobian"):
        find(["layernorm-jacobean"])


def test_the_digest_follows_what_a_file_imports(package):
    digests = []
    for changed in ("nothing", "apart", "setting", "first"):
        if changed != "nothing":
            path = package / f"{changed}.py"
            path.write_text(path.read_text() + "# changed\n")
        _forget()
        digests.append(_file_digest(f"{package.name}.first"))
    same, apart, setting, own = digests
    assert same == apart  # what is not imported does not matter
    assert len({apart, setting, own}) == 3


def test_a_result_is_kept_until_something_changes(package, tmp_path):
    cache = Cache(tmp_path / "kept")

    def run():
        return {v.theorem.id: v.cached for v in verify(list(collected().values()), cache=cache)}

    assert run() == {"first": False, "second": False}
    assert run() == {"first": True, "second": True}
    path = package / "second.py"
    path.write_text(path.read_text() + "# changed\n")
    _forget()
    assert run() == {"first": True, "second": False}


def test_a_broken_entry_counts_as_none(package, tmp_path):
    cache = Cache(tmp_path / "kept")
    list(verify(list(collected().values()), cache=cache))
    files = sorted(cache.folder.glob("*.json"))
    assert len(files) == 2
    files[0].write_text("{")
    again = list(verify(list(collected().values()), cache=cache))
    assert sorted(v.cached for v in again) == [False, True]
    assert all(v.holds for v in again)


def test_what_fails_is_not_kept(package, tmp_path):
    (package / "setting.py").write_text("FACTOR = 3\n")
    cache = Cache(tmp_path / "kept")
    found = list(verify(list(collected().values()), cache=cache))
    assert not any(v.holds for v in found)
    assert not list(cache.folder.glob("*.json"))
