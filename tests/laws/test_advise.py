"""Advice: its numbers are the laws', its ranking, its strengths, its margins."""

import math

import pytest

from derive.blocks.placements import MIXES, PLACEMENTS, STREAMS, all_placements
from derive.errors import DomainError, WeightError
from derive.laws.advise import (
    CLOSED,
    FIRST_ORDER,
    LITERATURE,
    MEASURED,
    RECURSION,
    advice_row,
    advise,
    formula_text,
    no_advice_row,
    ranked,
)
from derive.laws.edge import ScaledLaw
from derive.laws.law import DepthLaw

pytestmark = pytest.mark.slow

STRENGTHS = {CLOSED, RECURSION, FIRST_ORDER, MEASURED, LITERATURE}


def told(row):
    """Every strength that a row states."""
    if isinstance(row, dict):
        own = [row["strength"]] if row.get("strength") else []
        return own + [s for value in row.values() for s in told(value)]
    if isinstance(row, list):
        return [s for value in row for s in told(value)]
    return []


@pytest.fixture(scope="module")
def pre():
    return advise(DepthLaw("pre"), 24, width=256)


def test_numbers_are_those_of_the_law(pre):
    row = advice_row(pre)
    assert row["gradient"]["ratio"] == pytest.approx(13.0)
    assert row["gradient"]["formula"] == "L/2 + 1"
    assert row["growth"]["ratio"] == pytest.approx(13.0)
    assert not row["gradient"]["within"]
    harmonic = sum(1 / k for k in range(1, 27))
    assert row["update"]["amplification"] == pytest.approx(2 * (harmonic - 1.5))
    assert row["limit"] | {"strength": 0} == {
        "kind": "power",
        "rate": 0.0,
        "power": 1.0,
        "jensen_gap": 0.0,
        "strength": 0,
    }


def test_what_it_advises_holds(pre):
    for knob in ("branch", "init"):
        edge = pre.edge("gradient", knob)
        held = advise(ScaledLaw.of(pre.law, knob, edge.scale), 24, width=256, edges=False)
        assert held.within
        assert held.found.gradient_ratio == pytest.approx(2.0, rel=1e-8)
    edge = pre.edge("update", "branch")
    held = advise(ScaledLaw.of(pre.law, "branch", edge.scale), 24, width=256, edges=False)
    assert held.amplification == pytest.approx(1.0, rel=1e-8)


def test_weight_gradients_of_pre_norm_fall_as_the_stream_grows(pre):
    """Both matrices have v_L/v_l, what arrives at the branch; their inputs are normed."""
    v = [1 + k / 2 for k in range(25)]
    first, last = (1 + 1) * v[24] / v[1], (1 + 1) * v[24] / v[24]
    assert pre.weight_ratio == pytest.approx(first / last, rel=1e-6)


def test_margins(pre):
    largest = math.sqrt(13 * 2 * math.log(2 * 256))
    assert pre.largest_entry == pytest.approx(largest)
    assert pre.margin("float16") == pytest.approx(65504 / largest)
    assert pre.margin("bfloat16") == pytest.approx(3.3895313892515355e38 / largest, rel=1e-12)


def test_every_statement_has_its_strength(pre):
    measured = advise(DepthLaw("deepnorm"), 4, width=48, edges=False, seeds=4)
    for row in (advice_row(pre), advice_row(measured)):
        assert set(told(row)) <= STRENGTHS
    row = advice_row(measured)
    assert row["measured"]["strength"] == MEASURED
    assert row["measured"]["width"] == 48
    assert [p["strength"] for p in row["published"]] == [LITERATURE]
    attention = advise(DepthLaw("pre", sublayers=("attention",), tokens=4), 4, edges=False)
    assert advice_row(attention)["gradient"]["strength"] == RECURSION
    assert attention.spread is None


def test_ranking_puts_ratios_near_1_first_and_then_small_updates():
    names = ("pre", "post", "deepnorm", "sandwich", "no-norm")
    found = ranked(advise(DepthLaw(name), 24, edges=False) for name in names)
    assert [a.law.placement for a in found] == ["deepnorm", "post", "pre", "sandwich", "no-norm"]


@pytest.mark.parametrize("name", all_placements())
def test_every_placement_of_the_catalogue_is_advised_on_or_says_what_it_lacks(name):
    law = DepthLaw(name, sublayers=("attention", "ffn:gelu"), tokens=2)
    if name == "mhc":
        with pytest.raises(WeightError, match="no value for the scalar") as caught:
            advise(law, 6, edges=False)
        row = no_advice_row(name, "layernorm", ("ffn",), "lecun", 6, 64, 2, caught.value)
        assert "no value" in row["refused"]
        assert list(row) == list(advice_row(advise(DepthLaw("pre"), 2, edges=False)))
        return
    row = advice_row(advise(law, 6, edges=False))
    assert row["refused"] is None
    assert 0 < row["gradient"]["ratio"] < math.inf


def test_the_catalogue_is_whole():
    assert set(all_placements()) == {*PLACEMENTS, *STREAMS, *MIXES}


def test_a_decoder_on_a_correlated_memory_is_told_apart_from_an_encoder():
    from derive.laws.components import Moments

    law = DepthLaw("N(x + C(x))", sublayers=("attention",), tokens=8, memory=Moments(1.0, 1.0))
    row = advice_row(advise(law, 12, edges=False))
    assert row["gradient"]["ratio"] == pytest.approx(0.5**12)
    assert not row["gradient"]["within"]


def test_formulas_are_rounded_in_their_constants_only():
    solved = DepthLaw("post", sublayers=("ffn:gelu",)).solution
    assert formula_text(solved.explicit()[1]) == "1.021**L"
    assert formula_text(None) is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"target": 1.0}, "target: expected above 1, got 1.0"),
        ({"target": math.inf}, "target: expected above 1, got inf"),
        ({"bound": 0.0}, "bound: expected above 0, got 0.0"),
        ({"seeds": 1}, "seeds: expected 0 or at least 2, got 1"),
        ({"layers": 0}, "layers: expected at least 1, got 0"),
        ({"width": 2}, "width: expected at least 3, got 2"),
        ({"correlation": 2.0}, "correlation: expected"),
    ],
)
def test_mistakes_are_told(options, match):
    with pytest.raises(DomainError, match=match):
        advise(DepthLaw("pre"), **{"layers": 3, "edges": False, **options})


def test_a_stack_that_passes_no_gradient_is_refused():
    law = DepthLaw("C(x)", sublayers=("attention",), tokens=2)
    with pytest.raises(DomainError, match="gradient: expected a stack through which"):
        advise(law, 2)
