"""Every theorem holds, and each of its certificates rejects every wrong version of its claim."""

import os

import pytest

from derive.errors import MissingExtraError
from derive.proof import Cache, Check, Theorem, collected, verify
from derive.proof.perturb import KINDS

THEOREMS = collected()
CHECKED = [
    pytest.param(step.check, id=f"{theorem.id}-{number}")
    for theorem in THEOREMS.values()
    for number, step in enumerate(theorem.steps, 1)
    if step.check.kind != "cited"
]
CACHE = Cache() if "NORMDERIVE_CACHE" in os.environ else None
"""Only where a folder is named: CI writes the book from what the tests have found."""


@pytest.mark.parametrize("theorem", THEOREMS.values(), ids=lambda t: t.id)
def test_verdict_stands(theorem: Theorem) -> None:
    """Every step holds, and the assumptions can be satisfied."""
    (found,) = verify([theorem], cache=CACHE)
    missing = [step.missing for step in found.steps if step.missing]
    if missing:
        pytest.skip(missing[0])
    shown = [f"{s.certificate} {s.certificate.detail}" for s in found.steps]
    assert found.holds, (found.problem, shown)


@pytest.mark.parametrize("check", CHECKED)
def test_step_rejects_what_is_wrong(check: Check) -> None:
    """Sign, factor, term, zero, every assumption, and another subject: no exceptions."""
    kinds = set()
    try:
        for kind, wrong in check.wrong():
            kinds.add(kind)
            assert not wrong.certificate().holds, f"accepted with a wrong {kind}: {wrong.formula()}"
    except MissingExtraError as error:
        pytest.skip(str(error))
    expected = set(KINDS) - (set() if getattr(check, "assuming", ()) else {"assumption"})
    assert kinds == expected
