"""Every theorem holds, and each of its certificates rejects every wrong version of its claim."""

import pytest

from derive.proof import Theorem, collected
from derive.proof.assumption import satisfying
from derive.proof.perturb import KINDS
from derive.proof.verify import verify_step

THEOREMS = collected()
STEPS = [
    pytest.param(theorem, index, id=f"{theorem.id}-{index + 1}")
    for theorem in THEOREMS.values()
    for index in range(len(theorem.steps))
]
CHECKED = [p for p in STEPS if p.values[0].steps[p.values[1]].check.kind != "cited"]


@pytest.mark.parametrize(("theorem", "index"), STEPS)
def test_step_holds(theorem: Theorem, index: int) -> None:
    certificate = verify_step(theorem.id, index).certificate
    assert certificate.holds, f"{certificate} {certificate.detail}"


@pytest.mark.parametrize(("theorem", "index"), CHECKED)
def test_step_rejects_what_is_wrong(theorem: Theorem, index: int) -> None:
    """Sign, factor, term, zero, every assumption, and another subject: no exceptions."""
    check = theorem.steps[index].check
    kinds = set()
    for kind, wrong in check.wrong():
        kinds.add(kind)
        assert not wrong.certificate().holds, f"accepted with a wrong {kind}: {wrong.formula()}"
    expected = set(KINDS) - (set() if getattr(check, "assuming", ()) else {"assumption"})
    assert kinds == expected


@pytest.mark.parametrize("theorem", THEOREMS.values(), ids=lambda t: t.id)
def test_assumptions_can_be_satisfied(theorem: Theorem) -> None:
    satisfying(theorem.assumptions)
