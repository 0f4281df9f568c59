"""The check of a real layer against an equation: what it accepts and what it says."""

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from proofs.systems._shared import POST, PRE, BlockEquation  # noqa: E402


def test_a_layer_has_one_of_two_equations():
    right = BlockEquation(system="torch-pre", equation=PRE, instead=POST)
    assert right.certificate().holds
    assert right.error() < 1e-14
    wrong = BlockEquation(system="torch-pre", equation=POST, instead=PRE)
    assert not wrong.certificate().holds
    assert wrong.error() > 0.1


def test_every_wrong_version_is_an_equation_that_can_be_read():
    made = {
        kind: wrong.formula().text
        for kind, wrong in BlockEquation(system="s", equation=PRE, instead=POST).wrong()
    }
    assert made["term"] == "s: h = A(N1(x)); F(N2(h))"
    assert made["zero"] == "s: h = x + 0*A(N1(x)); h + 0*F(N2(h))"
    assert made["placement"] == f"s: {POST}"
