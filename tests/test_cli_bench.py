"""derive bench: its rows, what they are read for, and its refusals. No time is tested."""

import json

import numpy as np
import pytest

from derive.bench import numeric, problem, suite
from derive.bench.machine import one_thread
from derive.bench.problem import Elsewhere, Problem, measure
from derive.bench.rows import OURS, Row, exponents, losses, table
from derive.cli import main
from derive.errors import UnknownNameError

KEYS = {
    "task",
    "size",
    "method",
    "median_s",
    "ratio_to_best_peer",
    "fraction_of_dgemm",
    "peak_mb",
    "agrees",
}


def cli(*args):
    with pytest.raises(SystemExit) as stop:
        main(["bench", *args])
    return stop.value.code


def row(method, seconds, ratio=None, agrees=True):
    return Row("task", "size", method, seconds, ratio, None, None, agrees)


def fake(peer=1.0, **more):
    def problems(quick):
        methods = {OURS: lambda: np.ones(3), "peer": lambda: peer * np.ones(3)}
        yield Problem("fake", f"quick={quick}", methods, {"other": "not installed"}, **more)

    return problems


def test_json_has_the_eight_keys(monkeypatch, capsys):
    monkeypatch.setattr(suite, "TASKS", {"fake": fake()})
    assert cli("--quick", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [set(r) for r in rows] == [KEYS] * 3
    assert [r["method"] for r in rows] == [OURS, "peer", "other: not installed"]
    assert [r["agrees"] for r in rows] == [True, True, None]
    assert rows[1]["ratio_to_best_peer"] == 1.0
    assert rows[2]["median_s"] is None


def test_a_method_that_disagrees_is_named_and_fails(monkeypatch, capsys):
    monkeypatch.setattr(suite, "TASKS", {"fake": fake(peer=1 + 1e-11)})
    assert cli("--quick") == 1
    captured = capsys.readouterr()
    assert "NO" in captured.out
    assert "some results do not agree" in captured.err


@pytest.mark.parametrize("peer", [np.nan, np.inf, 0.0, -1.0])
def test_wrong_results_do_not_agree(peer):
    (problem_,) = fake(peer=peer)(True)
    rows = measure(problem_, rounds=1, least=0)
    assert [r.agrees for r in rows] == [False, False, None]


def test_the_table_ends_with_blas_and_losses(monkeypatch, capsys):
    monkeypatch.setattr(suite, "TASKS", {"fake": fake()})
    assert cli() == 0
    out = capsys.readouterr().out
    assert "BLAS of the process: " in out
    assert "other: not installed" in out
    assert "loss" in out.splitlines()[-1]


def test_losses_are_printed_as_losses():
    assert losses([row(OURS, 2.0, 0.5), row("peer", 1.0, 1.0)]) == [
        "loss: task, size: 2.00x the time of the best peer"
    ]
    assert losses([row(OURS, 1.0, 2.0), row("peer", 2.0, 1.0)]) == []


def test_what_was_timed_elsewhere_is_not_run_again():
    methods = {OURS: lambda: None, "slow": Elsewhere(12.5)}
    ours, slow = measure(Problem("t", "s", methods), rounds=1, least=0)
    assert slow.median_s == 12.5
    assert slow.ratio_to_best_peer == 1.0
    assert ours.ratio_to_best_peer > 1
    assert ours.agrees is None


def test_exponents_are_fitted():
    assert exponents([(n, 3e-9 * n**2.5) for n in (64, 128, 256)]) == pytest.approx(2.5)
    assert exponents([(64, 1.0)]) is None
    assert exponents([]) is None


def test_seconds_have_a_unit():
    cells = [line[3] for line in table([row(OURS, t) for t in (2.5, 0.25, 2.5e-5, None)])[1:]]
    assert cells == ["2.5 s", "250 ms", "25 us", ""]


def test_a_task_that_is_not_known_is_named(capsys):
    assert cli("--tasks", "tokns") == 2
    assert "task: expected one of tokens, sequences" in capsys.readouterr().err
    with pytest.raises(UnknownNameError, match="got 'x'"):
        suite.run(["x"])


def test_a_peer_that_is_not_installed_is_a_row(monkeypatch):
    for module in ("torch_peer", "jax_peer"):
        monkeypatch.setattr(numeric, module, lambda case: None)
    found = next(numeric.token_stacks(True))
    assert found.missing == {"jax": "not installed", "torch": "not installed"}
    rows = measure(found, rounds=1, least=0)
    assert [r.method for r in rows] == [OURS, "jax: not installed", "torch: not installed"]
    assert rows[0].ratio_to_best_peer is None
    assert rows[0].fraction_of_dgemm > 0


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("task", ["tokens", "sequences", "products", "gradients", "lyapunov"])
def test_the_peers_agree(task):
    pytest.importorskip("torch")
    with one_thread():
        found = next(suite.TASKS[task](True))
        ours = found.methods[OURS]()
        for name, work in found.methods.items():
            assert problem.difference(ours, work()) <= found.tolerance, name


def test_make_bench_is_the_command():
    from pathlib import Path

    text = (Path(__file__).parent.parent / "Makefile").read_text()
    assert "derive bench $(ARGS)" in text
