"""How claims print: a side that is named, and one that is not."""

import pytest
import sympy as sp

from derive.proof import Identity

t = sp.Symbol("t", positive=True)


@pytest.mark.parametrize(
    ("name", "right", "expected"),
    [
        ("", 1, "1 = 1"),
        ("v_L", 1, "v_L = 1"),
        ("v_L", 2, "v_L = 2"),
    ],
)
def test_a_named_side_prints_as_its_name(name, right, expected):
    check = Identity(
        claim=lambda left: (left, right), of=lambda: sp.S.One, instead=lambda: t, name=name
    )
    assert check.formula().text == expected
    assert check.formula().latex == expected
    assert check.certificate().holds == (right == 1)


def test_the_name_has_no_part_in_the_certificate():
    named, plain = (
        Identity(
            claim=lambda s: (s**2, t**2), of=lambda: t, instead=lambda: t + 1, name=name
        ).certificate()
        for name in ("anything", "")
    )
    assert named.holds
    assert plain.holds
    assert named.detail == plain.detail
