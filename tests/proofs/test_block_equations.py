"""The check of a real layer against an equation: what it accepts and what it says."""

import sys

import pytest

from derive.errors import MissingExtraError
from proofs.systems._shared import POST, PRE, BlockEquation, _derived, _reference, default


@pytest.mark.torch
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


def test_without_torch_a_check_is_not_done_rather_than_failed(monkeypatch):
    _reference.cache_clear()
    _derived.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="torch"):
        BlockEquation(system="torch-pre", equation=POST, instead=PRE, scale=2.0).certificate()
    with pytest.raises(MissingExtraError, match="torch"):
        default("", "BertConfig", "num_hidden_layers", "12", "T5Config").check.certificate()
