"""`derive claims`, `derive verify` and `derive book` as a user calls them."""

import json
from typing import NamedTuple

import pytest

from tests.command import run as run_with

KEYS = {"id", "statement", "verdict", "strength", "certificates", "assumptions", "sources"}


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run the command line with a cache of its own."""
    monkeypatch.setenv("NORMDERIVE_CACHE", str(tmp_path))
    return lambda *args: Run(*run_with(capsys, *args))


class Run(NamedTuple):
    status: int
    stdout: str
    stderr: str


def test_json_has_the_stable_keys(run):
    rows = json.loads(run("claims", "--json").stdout)
    assert rows
    assert all(set(row) >= KEYS for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)


def test_filters(run):
    rows = json.loads(run("claims", "--area", "norms", "--source", "xiong2020", "--json").stdout)
    assert "layernorm-jacobian" in {row["id"] for row in rows}
    assert {row["area"] for row in rows} == {"norms"}
    for option, wrong in (("--area", "nrms"), ("--source", "nobody"), ("--verdict", "true")):
        found = run("claims", option, wrong)
        assert found.status == 2
        assert f"{option}: expected one of" in found.stderr


def test_an_unknown_claim_names_the_nearest(run):
    found = run("claims", "layernorm-jacobean")
    assert found.status == 2
    assert "did you mean layernorm-jacobian" in found.stderr


@pytest.mark.parametrize(
    ("form", "expected"),
    [("text", "identity: holds"), ("tex", r"\begin{enumerate}"), ("html", "<math")],
)
def test_a_proof_in_every_format(run, form, expected):
    found = run("claims", "layernorm-jacobian", "--proof", "--format", form)
    assert found.status == 0
    assert expected in found.stdout


def test_verification_is_kept_and_repeated_on_demand(run):
    first, second, third = (
        json.loads(run("verify", "layernorm-jacobian", "--json", *more).stdout)[0]
        for more in ((), (), ("--no-cache",))
    )
    assert [r["cached"] for r in (first, second, third)] == [False, True, False]
    assert all(r["holds"] for r in (first, second, third))


def test_a_file_is_decided(run, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('block = "post"\nrelation = "J*ones == ones"\n')
    found = run("verify", str(path))
    assert found.status == 1
    assert "refuted (counterexample)" in found.stdout
    assert run("verify", str(tmp_path / "none.toml")).status == 2
