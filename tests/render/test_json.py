"""JSON: round trip, stable keys, and the Jacobian can be rebuilt from it."""

from __future__ import annotations

import json

import sympy as sp

from derive.calculus.printing import text
from derive.render.json import derivation_json

KEYS = {
    "block",
    "state",
    "output",
    "jacobian",
    "token_block",
    "definitions",
    "blocks",
    "steps",
    "assumptions",
}


def test_round_trip(D):
    found = derivation_json(D)
    assert json.loads(json.dumps(found)) == found
    assert set(found) == KEYS
    assert found["jacobian"]["text"] == text(D.jacobian)
    assert (found["token_block"] is None) == (not D.mixes_tokens)
    assert [s["rule"] for s in found["steps"]] == [s.rule for s in D.steps]
    for step in found["steps"]:
        assert set(step) >= {"before", "after", "rule", "why", "latex_before", "latex_after"}
        assert all(isinstance(v, str) and v for v in step.values())


def test_srepr_keeps_the_structure(sample):
    found = derivation_json(sample)["jacobian"]["srepr"]
    assert found == sp.srepr(sample.jacobian)
    assert found.count("(") == found.count(")")
