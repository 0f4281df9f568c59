"""Coverage over a table: rates, misses measured again, the page."""

import math
from dataclasses import replace

import pytest

from derive.errors import DomainError, UnknownNameError
from derive.laws import coverage
from derive.laws.coverage import Case, Look, bias, cases, confirm, deep_cases, look, rate
from derive.laws.law import DepthLaw
from derive.laws.measure import Estimate
from derive.render.coverage import coverage_page

from .. import command

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CASE = Case(DepthLaw("pre"), 2, 8, 8, seeds=4, seed=7)


def made(mean, half=0.1, quantity="growth", case=CASE, law=1.0, spread=0.01):
    return Look(case, quantity, law, Estimate(mean, mean - half, mean + half, spread))


@pytest.mark.parametrize(("held", "total"), [(19, 20), (20, 20), (1, 3), (0, 4)])
def test_the_interval_of_a_rate_is_clopper_and_pearsons(held, total):
    """Its ends leave 2.5 % of a binomial distribution on their side."""
    found = rate([made(1.0)] * held + [made(2.0)] * (total - held))
    assert (found.held, found.total) == (held, total)

    def at_least(k, p):
        return sum(math.comb(total, j) * p**j * (1 - p) ** (total - j) for j in range(k, total + 1))

    if held:
        assert at_least(held, found.low) == pytest.approx(0.025)
    else:
        assert found.low == 0
    if held < total:
        assert 1 - at_least(held + 1, found.high) == pytest.approx(0.025)
    else:
        assert found.high == 1


def test_what_has_no_spread_does_not_count():
    assert rate([made(1.0, 0, spread=0.0)] * 5 + [made(2.0)]).total == 1
    assert str(rate([])) == "-"
    assert str(rate([made(1.0)] * 2)) == "2 of 2: 100.0 % (15.8 to 100.0)"
    mean, error = bias([made(1.1), made(1.0), made(5.0, spread=0.0)])
    assert mean == pytest.approx(math.log(1.1) / 2)
    assert error == pytest.approx(math.log(1.1) / 2)
    assert math.isnan(bias([made(1.0)])[0])


def test_numbers_without_spread_are_equal_to_rounding():
    single = replace(CASE, dtype="float32")
    assert made(1 + 1e-10, 0, spread=1e-25).covered
    assert not made(1 + 1e-6, 0, spread=1e-25).covered
    assert made(1 + 1e-6, 0, spread=1e-14, case=single).covered
    assert not made(1 + 1e-6, 1e-9, spread=1e-14).covered
    assert not made(1 + 1e-4, 0, spread=1e-14, case=single).covered
    assert made(0.0, 0, law=0.0, spread=0.0).covered


def answers(monkeypatch, reply):
    """Put stand-ins for measurements; return what was asked."""
    asked = []

    def stand_in(case, **options):
        asked.append((case, options))
        return [made(mean, case=case, quantity=what) for what, mean in reply(case).items()]

    monkeypatch.setattr(coverage, "look", stand_in)
    return asked


def test_misses_are_measured_again_at_a_corrected_confidence(monkeypatch):
    asked = answers(
        monkeypatch, lambda case: {"growth": 1.0, "W_1": 1.5 if case.width == 8 else 1.1}
    )
    looks = [made(1.0), made(2.0), made(2.0, quantity="W_1")]
    chance, failing = confirm(looks)
    assert (chance.failed, chance.reason) == (False, "chance")
    assert (failing.failed, failing.reason) == (True, "finite width")
    (again, options), (wider, _) = asked
    assert options == {"confidence": 1 - 0.05 / 2}
    assert (again.seeds, again.width) == (12, 8)
    assert set(range(again.seed, again.seed + 12)).isdisjoint(range(7, 11))
    assert (wider.width, wider.hidden) == (32, 32)


def test_a_deviation_that_stays_is_not_called_finite_width(monkeypatch):
    answers(monkeypatch, lambda case: {"growth": 1.5})
    (found,) = confirm([made(1.4)])
    assert (found.failed, found.reason) == (True, "not explained by the width")
    assert list(confirm([made(1.0)])) == []


def test_the_table_has_seeds_of_its_own_for_every_case():
    found = cases(placements=["post", "residual", "mix-ln"], seeds=16)
    assert len(found) == 3 * 2 * 4 * 4
    seeds = [s for one in found for s in range(one.seed, one.seed + 5000 + 16 * 3)]
    assert len(seeds) == len(set(seeds))
    with pytest.raises(DomainError, match="seeds: expected 2 to 1000, got 1"):
        cases(seeds=1)
    with pytest.raises(UnknownNameError, match="nonsense"):
        cases(placements=["nonsense"])


def test_looks_are_of_growth_ratio_and_the_first_of_each_matrix():
    law = DepthLaw("post", sublayers=("attention", "ffn:relu"), tokens=2)
    found = look(Case(law, 4, 8, 8, seeds=3))
    by = {one.quantity: one for one in found}
    assert list(by)[:2] == ["growth", "gradient_ratio"]
    assert set(list(by)[2:]) == {"W_O", "W_V", "W_K", "W_Q", "W_1", "W_2"}
    weights = law.predict(4, width=8, hidden=8).weights
    assert by["W_1"].law == weights[1]["W_1"]
    assert by["W_K"].covered
    assert not by["W_K"].has_spread
    assert not by["growth"].has_spread  # the norm sets it
    assert by["gradient_ratio"].has_spread


def test_a_case_without_a_law_has_no_looks():
    assert look(Case(DepthLaw("pre", sublayers=("abstract",)), 1, 8, 8, seeds=2)) == []


def test_deep_cases_are_real_sizes():
    found = deep_cases()
    assert {one.width for one in found} == {64, 256, 1024}
    assert {one.layers for one in found} == {1, 6, 24, 96, 192}
    assert {one.dtype for one in found} == {"float32"}


def test_the_page_states_rates_and_failures(monkeypatch):
    answers(monkeypatch, lambda case: {"growth": 1.5})
    looks = [made(1.4), made(1.0, quantity="gradient_ratio")]
    deep = [made(1.0), made(2.0, quantity="gradient_ratio", spread=0.5)]
    page = coverage_page([CASE], looks, list(confirm(looks)), deep)
    assert "| growth | 0 of 1: 0.0 % (0.0 to 97.5) | - | - |" in page
    assert "1 failed beyond chance" in page
    assert "not explained by the width" in page
    assert "## Real sizes" in page
    assert "| pre | 8 | 2 | 4 |" in page
    assert "| no | 0.5 | 2.00 |" in page
    nothing = coverage_page([CASE], [made(1.0)], [])
    assert "None." in nothing
    assert "Real sizes" not in nothing
    assert "Without a law: pre." in coverage_page([CASE], [], [])


def test_the_command_writes_the_page(capsys, tmp_path):
    small = ("coverage", "pre", "--layers", "1", "--width", "8", "--seeds", "2", "--tokens", "2")
    code, out, err = command.run(capsys, *small)
    assert (code, err) == (0, "")
    assert "| growth |" in out
    path = tmp_path / "page.md"
    code, written, err = command.run(capsys, *small, "--out", str(path))
    assert (code, written.strip(), err) == (0, str(path), "")
    assert path.read_text() == out
    code, out, err = command.run(capsys, "coverage", "nonsense")
    assert (code, out) == (2, "")
    assert err.startswith("derive: placement: expected one of")
